"""Each part of a run's documents may have fields that a later version adds."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from spark_jobs.report.counted import Facts
from spark_jobs.runs.life.documents import Document
from tests.report.made import documents, made


@pytest.mark.parametrize("kind", tuple(documents()), ids=lambda kind: kind.__name__)
def test_a_document_with_fields_of_a_later_version_is_read(kind: type[Document]) -> None:
    assert kind.model_validate(made(kind, {"of_a_later_version": {"a": 1}}))


@pytest.mark.parametrize("line", [None, 5, "a text"])
def test_a_drawing_without_one_of_its_lines_is_drawn_without_it_or_is_damage(line: object) -> None:
    watermark = made(Facts)["watermark"]
    if line is None:
        del watermark["overview"]["behind"]
        assert Facts.model_validate({"watermark": watermark}).watermark
        return
    watermark["overview"]["behind"] = line
    with pytest.raises(ValidationError, match="behind"):
        Facts.model_validate({"watermark": watermark})
