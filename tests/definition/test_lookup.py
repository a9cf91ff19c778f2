"""The section `lookup`."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.errors import DefinitionError
from tests.definition.texts import FLINK, loaded


def test_one_name_stands_for_a_column_of_both(tmp_path: Path) -> None:
    lookup = loaded(tmp_path, FLINK + "lookup: {table: lake.ref.shops, on: [shop, land], as_of: run}\n").lookup
    assert lookup is not None and lookup.on == {"shop": "shop", "land": "land"}
    plain = loaded(tmp_path, FLINK)
    assert '"lookup"' not in plain.to_canonical_json()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{table: t, on: a}", "lookup.as_of"),
        ("{table: t, on: a, as_of: event_time, valid_to: x}", "lookup.valid_from: is missing"),
        ("{table: t, on: a, as_of: run, valid_to: x}", "lookup.valid_to: belongs to `as_of: event_time`"),
        ("{table: t, on: {}, as_of: run}", "lookup.on"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        loaded(tmp_path, FLINK + f"lookup: {section}\n")
    assert message in str(refused.value)
