"""Rows that the driver writes and reads itself are those that Spark writes and reads."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_jobs.lakehouse.few_rows import found, replaced
from spark_jobs.lakehouse.ledger import Ledger, is_conflict
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA, Tables, ensure_table
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS
from spark_jobs.runs.life.processes import STAGES_PROCESS
from spark_jobs.runs.life.recovery import OPEN, may_have_open_runs
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table

AT = datetime(2026, 3, 29, 1, 30, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
RUN = {
    "run_id": "a'b", "as_of": {0: 12, 7: 1 << 40}, "whole": True, "fidelity_reasons": ["x", "y"], "records_read": 3,
    "changes": {}, "timings": {"plan": 0.5}, "windows": 3, "started_at": AT,
}  # fmt: skip
STATE = {"run_id": "a'b", "pipeline": "p", "steps": b"\x00\xff", "as_of": {1: 2}}
COUNTS = {"run_id": "a'b", "day": date(2013, 1, 2), "verdicts": {"match": 4}, "lag_mean_ms": 2.5, "is_complete": False}


def made(spark: SparkSession, schema: StructType) -> str:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.few_rows_tests")
    name = f"rewindow.few_rows_tests.t{secrets.token_hex(4)}"
    ensure_table(spark, name, schema)
    return name


def read(spark: SparkSession, name: str, run_id: str = "a'b") -> list[dict[str, Any]] | None:
    table: JavaObject = loaded_iceberg_table(spark, name)
    return found(spark, table, run_id, table.currentSnapshot().snapshotId())


def write(spark: SparkSession, name: str, *rows: Mapping[str, Any], run_id: str = "a'b", **options: Any) -> bool:
    return replaced(spark, loaded_iceberg_table(spark, name), run_id, rows, **options)


@pytest.mark.parametrize(
    ("schema", "row"), [(RUNS_SCHEMA, RUN), (TIMELINE_STATE_SCHEMA, STATE), (COMPARISON_COLUMNS, COUNTS)]
)
def test_what_is_written_is_what_spark_reads(spark: SparkSession, schema: StructType, row: dict[str, Any]) -> None:
    name = made(spark, schema)
    assert write(spark, name, {**row, "run_id": "before"}, run_id="before")
    assert write(spark, name, row, row)
    assert write(spark, name, row)  # in their place
    assert spark.table(name).count() == 2
    (by_spark,) = spark.table(name).where(f'run_id = "{row["run_id"]}"').collect()
    seen = by_spark.asDict()
    assert all(seen[column] is None for column in schema.names if column not in row)
    assert {c: v for c, v in seen.items() if c in row and c != "started_at"} == {
        c: v for c, v in row.items() if c != "started_at"
    }
    if "started_at" in row:
        assert seen["started_at"].astimezone(UTC) == AT
    assert read(spark, name) == [seen]
    # Spark gives times as local ones without a zone; such a time goes in again as the same instant.
    write(spark, name, seen)
    assert read(spark, name) == [seen]


def test_what_spark_has_written_reads_the_same(spark: SparkSession) -> None:
    name = made(spark, RUNS_SCHEMA)
    write(spark, name, RUN)
    spark.table(name).writeTo(name).append()
    assert read(spark, name) == [row.asDict() for row in spark.table(name).collect()]
    assert read(spark, name, "another") == []


def test_rows_written_before_a_column_was_there_lack_it(spark: SparkSession) -> None:
    name = made(spark, StructType(RUNS_SCHEMA.fields[:5]))
    write(spark, name, {"run_id": "a'b", "status": "staged"})
    ensure_table(spark, name, RUNS_SCHEMA)
    assert read(spark, name) == [dict.fromkeys(RUNS_SCHEMA.names[:5]) | {"run_id": "a'b", "status": "staged"}]
    write(spark, name, RUN)
    assert spark.table(name).select("records_read").collect()[0][0] == 3


def test_a_row_that_has_changed_since_is_not_written_over(spark: SparkSession) -> None:
    name = made(spark, RUNS_SCHEMA)
    write(spark, name, RUN)
    known = loaded_iceberg_table(spark, name).currentSnapshot().snapshotId()
    write(spark, name, {**RUN, "run_id": "other"}, run_id="other", since=known)
    write(spark, name, {**RUN, "windows": 4}, since=known)  # the change of another run is none of this one
    with pytest.raises(Py4JJavaError) as refused:
        write(spark, name, {**RUN, "windows": 5}, since=known)
    assert is_conflict(refused.value)
    assert (read(spark, name) or [{}])[0]["windows"] == 4
    named = {
        row[0].removeprefix("file:") for row in spark.sql(f"SELECT file_path FROM {name}.all_data_files").collect()
    }
    there = {str(path) for path in Path(min(named)).parent.glob("*.parquet")}
    assert len(named) == 3
    assert there == named, "its file is gone"


def test_other_tables_are_for_spark(spark: SparkSession) -> None:
    name = made(spark, RUNS_SCHEMA)
    for run_id in ("a'b", "other"):
        write(spark, name, {**RUN, "run_id": run_id}, run_id=run_id)
    spark.sql(f"CALL rewindow.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert (read(spark, name) or [{}])[0]["windows"] == 3
    spark.sql(f"DELETE FROM {name} WHERE run_id = 'other'")
    assert read(spark, name) is None, "rows of that file are deleted one by one"
    with pytest.raises(Py4JJavaError, match="some, but not all, rows match"):
        write(spark, name, {**RUN, "run_id": "other"}, run_id="other")
    spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD status")
    assert not write(spark, name, RUN)


def test_rows_that_share_a_file_with_another_run_s_are_replaced_in_one_commit(spark: SparkSession) -> None:
    name = made(spark, TIMELINE_STATE_SCHEMA)
    for run_id in ("a'b", "other"):
        write(spark, name, {**STATE, "run_id": run_id}, run_id=run_id)
    spark.sql(f"CALL rewindow.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    before = spark.table(f"{name}.snapshots").count()
    Ledger(spark, Tables("", "", "", "", "")).put_rows(
        name, "a'b", [{**STATE, "steps": b"1"}, {**STATE, "steps": b"2"}]
    )
    assert spark.table(f"{name}.snapshots").count() == before + 1
    rows = {(row["run_id"], bytes(row["steps"]), row["as_of"][1]) for row in spark.table(name).collect()}
    assert rows == {("a'b", b"1", 2), ("a'b", b"2", 2), ("other", STATE["steps"], 2)}


@pytest.mark.long
def test_without_an_open_run_the_ledger_is_not_read(spark: SparkSession) -> None:
    name = made(spark, RUNS_SCHEMA)
    tables = Tables("", "", "", name, "")
    write(spark, name, {"run_id": "earlier", "status": "published", "finished_at": AT}, run_id="earlier")
    for status in RunStatus:
        for finished, process in ((AT, "host"), (None, "host"), (AT, STAGES_PROCESS)):
            write(spark, name, {**RUN, "status": status.value, "finished_at": finished, "process": process})
            is_open = not spark.table(name).where(OPEN).isEmpty()
            assert may_have_open_runs(spark, tables) == is_open, (status, finished, process)
