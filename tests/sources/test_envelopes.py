"""Change records in Debezium's envelope: the row after each change is the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.sources import canonical, check_expressions, good, open_history, quarantined
from tests.sampling import first_of
from tests.sources.conftest import BASE, make_pipeline, write_log

ROW = "id BIGINT, t BIGINT, shop STRUCT<name: STRING>, op STRING"


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {"id": number, "t": BASE + number, "shop": {"name": "a"}, "op": "of the row", **fields}


def change(op: str | None, before: Any = None, after: Any = None) -> dict[str, Any]:
    return {"before": before, "after": after, "op": op, "ts_ms": BASE + 1, "source": {"ts_ms": BASE, "db": "shop"}}


CHANGES = [
    change("c", None, row(0)),
    change("u", row(0), row(1)),
    change("r", None, row(2)),
    change("d", row(3), None),
    change("d", None, None),
    change("t", None, None),
    change("u", row(1), None),
    change("c", None, row(7, t="soon")),
    {"id": 8, "t": BASE},
]
NO_CHANGE = {
    5: "no change of a row: `op` is t",
    6: "a change without the row after it: `op` is u",
    7: "wrong type for field after.t",
    8: "not in Debezium's envelope: it has no `op`",
}
DELETE = "a delete, which has no row after it"


def defined(path: Path, envelope: Any, **sections: Any) -> Pipeline:
    value = {"format": "json", "column": "value", "schema": ROW, "envelope": envelope}
    time = {"expression": "t", "unit": "ms", "missing": "quarantine"}
    return make_pipeline(path, **{"value": value, "keys": {"shop": "shop.name"}, "event_time": time, **sections})


def records(spark, pipeline: Pipeline) -> tuple[list[tuple[int, int, str]], dict[int, str]]:
    """Offset, id and `op` of the good records, and the reasons of the others by offset."""
    frame = canonical(open_history(spark, pipeline), pipeline)
    rows = good(frame).select("rw_offset", "id", "op").orderBy("rw_offset").collect()
    return [tuple(one) for one in rows], {one.offset: one.reason for one in quarantined(frame).collect()}


@pytest.mark.parametrize("schema_include", first_of([False, True]))
def test_the_row_after_a_change_is_the_record_and_deletes_are_as_configured(
    spark, tmp_path: Path, schema_include: bool
) -> None:
    values = [{"schema": {"type": "struct"}, "payload": one} if schema_include else one for one in CHANGES]
    write_log(tmp_path / "a.parquet", [(0, n, n, "k", json.dumps(value)) for n, value in enumerate(values)])
    writes = [(0, 0, "of the row"), (1, 1, "of the row"), (2, 2, "of the row")]
    wrong = NO_CHANGE if not schema_include else {**NO_CHANGE, 7: "wrong type for field payload.after.t"}
    for deletes, kept, put_aside in (
        ("drop", [], {}),
        ("quarantine", [], {3: DELETE, 4: DELETE}),
        ("keep", [(3, 3, "of the row")], {4: "a delete without the row before it"}),
    ):
        envelope = {"kind": "debezium", "deletes": deletes, "schema_include": schema_include}
        found, reasons = records(spark, defined(tmp_path, envelope))
        assert (deletes, found) == (deletes, [*writes, *kept])
        assert (deletes, reasons) == (deletes, {**wrong, **put_aside})


def test_the_envelope_is_there_beside_the_row_for_filters_and_event_times(spark, tmp_path: Path) -> None:
    write_log(tmp_path / "a.parquet", [(0, n, n, "k", json.dumps(one)) for n, one in enumerate(CHANGES[:4])])
    value = {"format": "json", "column": "value", "schema": "id BIGINT", "envelope": "debezium"}
    time = {"expression": "source.ts_ms", "unit": "ms"}
    pipeline = defined(tmp_path, None, value=value, event_time=time, keys={"kind": "op"},
                       filter={"before_watermark": "op <> 'r' and source.db = 'shop' and `offset` < 9"})  # fmt: skip
    assert check_expressions(spark, pipeline) == []
    frame = canonical(open_history(spark, pipeline), pipeline)
    assert {(one.id, one.kind, one.rw_event_time) for one in good(frame).collect()} == {(0, "c", BASE), (1, "u", BASE)}
    assert not {"after", "before"} & set(frame.columns)


def test_files_and_tables_whose_columns_are_the_envelope_are_opened_too(spark, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in CHANGES[:4]))
    spark.read.json(str(tmp_path / "a.jsonl")).coalesce(1).write.parquet(str(tmp_path / "parquet"))
    value = {"format": "columns", "envelope": {"kind": "debezium", "deletes": "keep"}}
    lines = {"value": {**value, "schema": ROW}, "history": {"format": "json", "position": {}}}
    for path, sections in (
        (tmp_path / "a.jsonl", lines),
        (tmp_path / "parquet", {"value": value, "history": {"position": {}}}),
    ):
        pipeline = defined(path, None, **sections, mode="complete")
        assert check_expressions(spark, pipeline) == []
        found = canonical(open_history(spark, pipeline), pipeline)
        assert sorted(one.id for one in good(found).collect()) == [0, 1, 2, 3]
        assert quarantined(found).count() == 0
    sections = {"value": {**value, "envelope": {"kind": "debezium", "schema_include": True}}}
    pipeline = defined(tmp_path / "parquet", None, **sections, history={"position": {}})
    with pytest.raises(DefinitionError, match="it has no field `payload` with a row"):
        canonical(open_history(spark, pipeline), pipeline)
