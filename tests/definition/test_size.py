"""Which histories are known to be small before Spark runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline, size
from tests.runs.small_runs import definition_text


def is_small(tmp_path: Path, folder: Path | str) -> bool:
    file = tmp_path / "small.yaml"
    file.write_text(definition_text("small", folder))
    return size.is_small(load_pipeline(file))


def test_files_on_this_machine_are_small_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    data.mkdir()
    assert not is_small(tmp_path, data)  # no file: nothing is known
    (data / "a.json").write_text("x" * 60)
    (data / "b.json").write_text("x" * 40)
    assert is_small(tmp_path, data)
    assert is_small(tmp_path, data.as_uri())
    monkeypatch.setattr(size, "SMALL", 99)
    assert not is_small(tmp_path, data)


@pytest.mark.parametrize("folder", ["s3a://lake/data", "/data/{a,b}"])
def test_of_other_files_the_size_is_not_known(tmp_path: Path, folder: str) -> None:
    assert not is_small(tmp_path, folder)
