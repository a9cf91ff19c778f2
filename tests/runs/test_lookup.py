"""Runs that look each record up in a table, whose snapshot is pinned in the plan."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import HistoryError, RewindowError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, plan_from_json
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import check_expressions
from tests.runs.small_nights import tables_of
from tests.runs.small_runs import MINUTE, T0, definition_text, record, run, write

REGIONS = "rewindow.lookups.regions"


def regions(spark: SparkSession, rows: str, columns: str = "k, region") -> None:
    """The table with these rows: `(...), (...)`."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.lookups")
    spark.sql(f"CREATE OR REPLACE TABLE {REGIONS} USING iceberg AS SELECT * FROM VALUES {rows} AS t({columns})")


def defined(tmp_path: Path, name: str, lookup: str, *, keys: str = "{region: region}", accepts: str = "") -> Pipeline:
    text = definition_text(name, tmp_path / "data", end="freeze", namespace="lookups")
    text = text.replace("keys: {k: k}", f"lookup: {{table: {REGIONS}, {lookup}}}\nkeys: {keys}")
    text += f'filter: {{before_watermark: "{accepts}"}}\n' if accepts else ""
    path = tmp_path / f"{name}.yaml"
    path.write_text(text)
    return load_pipeline(path)


def totals(spark: SparkSession, pipeline: Pipeline) -> dict[str | None, int]:
    current = spark.table(Tables.of(pipeline).windows).where("valid_to IS NULL")
    return {row[0]: row[1] for row in current.groupBy("region").agg({"n__complete": "sum"}).collect()}


def test_records_have_the_columns_of_the_row_that_the_plan_has_pinned(spark: SparkSession, tmp_path: Path) -> None:
    records = [record(i) for i in range(300)]
    write(tmp_path / "data", records)
    of = {key: sum(one["k"] == key for one in records) for key in "ab"}
    regions(spark, "('a', 'north'), ('c', 'west')")
    by_run = defined(tmp_path, "by_run", "on: k, as_of: run")
    assert check_expressions(spark, by_run) == []
    run(spark, by_run)
    assert totals(spark, by_run) == {"north": of["a"], None: of["b"]}

    plan = make_plan(spark, by_run)
    spark.sql(f"INSERT INTO {REGIONS} VALUES ('b', 'south')")
    result = execute(spark, by_run, plan_from_json(plan.to_json()), NoProgress())
    assert result.changes.get("inserted", 0) == 0, "a plan is carried out with the rows that it has pinned"
    night = reconcile(spark, by_run, NoProgress())
    assert night.continued_from is not None, night.note
    assert totals(spark, by_run) == {"north": of["a"], "south": of["b"]}

    spark.sql(f"INSERT INTO {REGIONS} VALUES ('b', 'east')")
    with pytest.raises(HistoryError, match="has two rows for k = b: which one a record gets is not said"):
        make_plan(spark, by_run)


def test_a_row_that_differs_by_a_microsecond_is_another(spark: SparkSession, tmp_path: Path) -> None:
    records = [record(i) for i in range(100)]
    write(tmp_path / "data", records)
    regions(spark, "('a', timestamp_micros(1)), ('b', timestamp_micros(5))")
    timed = defined(tmp_path, "by_microsecond", "on: k, as_of: run")
    reconcile(spark, timed, NoProgress())
    spark.sql(f"UPDATE {REGIONS} SET region = timestamp_micros(2) WHERE k = 'a'")
    assert reconcile(spark, timed, NoProgress()).continued_from is not None
    at = {row[0].microsecond for row in spark.table(Tables.of(timed).windows).select("region").distinct().collect()}
    assert at == {2, 5}


@pytest.mark.long
def test_records_have_the_columns_of_the_row_that_was_valid_at_their_time(spark: SparkSession, tmp_path: Path) -> None:
    records = [record(i) for i in range(300)]
    write(tmp_path / "data", records)
    of = {key: sum(one["k"] == key for one in records) for key in "ab"}
    middle = T0 + 100_000
    until = f"timestamp_millis({middle})"
    versions = f"('a', 'old', timestamp_millis(0), {until}), ('a', 'new', {until}, NULL)"
    regions(spark, versions, "code, region, since, until")
    timed = defined(tmp_path, "timed", "on: {code: lower(k)}, as_of: event_time, valid_from: since, valid_to: until")
    run(spark, timed)
    old = sum(one["k"] == "a" and one["t"] < middle for one in records)
    assert totals(spark, timed) == {"old": old, "new": of["a"] - old, None: of["b"]}
    regions(spark, f"{versions}, ('a', 'too', timestamp_millis(5), timestamp_millis(6))", "code, region, since, until")
    with pytest.raises(HistoryError, match="has two rows for code = a at one time"):
        make_plan(spark, timed)
    wrong = defined(tmp_path, "wrong", "on: {nothing: k}, as_of: run")
    with pytest.raises(RewindowError, match="has no column `nothing`"):
        make_plan(spark, wrong)
    regions(spark, "('a', 'north')")
    typed = defined(tmp_path, "typed", "on: {k: v}, as_of: run")
    assert "write CAST(... AS STRING)" in str(check_expressions(spark, typed)[0])


@pytest.mark.parametrize(
    ("table", "of_record", "cast"),
    [
        ("BIGINT", "DOUBLE", "BIGINT"),
        ("DECIMAL(20, 2)", "DECIMAL(20, 1)", "DECIMAL(20,2)"),
        ("DOUBLE", "FLOAT", "DOUBLE"),
    ],
)
def test_numbers_of_two_types_are_not_compared(
    spark: SparkSession, tmp_path: Path, table: str, of_record: str, cast: str
) -> None:
    """9007199254740992 and 9007199254740993 are one DOUBLE: a record would get both rows, and count twice."""
    write(tmp_path / "data", [record(i, v=1) for i in range(20)])
    regions(spark, f"(CAST(1 AS {table}), 'one'), (CAST(2 AS {table}), 'two')", "id, region")
    other = defined(tmp_path, f"two_types_{table[:3]}".lower(), f"on: {{id: 'CAST(v AS {of_record})'}}, as_of: run")
    with pytest.raises(RewindowError, match=rf"CAST\(\.\.\. AS {re.escape(cast)}\)"):
        run(spark, other)


def test_whole_numbers_of_two_types_are_compared(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path / "data", [record(i, v=1) for i in range(20)])
    whole = defined(tmp_path, "whole_numbers", "on: {id: 'CAST(v AS SMALLINT)'}, as_of: run")
    regions(spark, "(1L, 'one'), (2L, 'two')", "id, region")
    run(spark, whole)
    assert totals(spark, whole) == {"one": 20}


def test_windows_that_lack_records_are_told_by_the_rows_that_they_were_made_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    regions(spark, "('a', 'north'), ('b', 'south')")
    write(tmp_path / "data", [record(i) for i in range(60)])
    write(tmp_path / "data", [record(i) for i in range(60, 200)], "part-1.json")
    lost = defined(tmp_path, "lost", "on: k, as_of: run")
    reconcile(spark, lost, NoProgress())
    (tmp_path / "data" / "part-0.json").unlink()
    spark.sql(f"UPDATE {REGIONS} SET region = 'east' WHERE k = 'a'")
    before = totals(spark, lost)
    first = spark.table(Tables.of(lost).windows).where(f"window_start < timestamp_millis({T0 + 60_000})")
    kept = sorted((row["region"], row["n__complete"]) for row in first.collect())

    def check(note: str) -> None:
        assert "4 windows keep their values" in note
        now = totals(spark, lost)
        assert sum(now.values()) == 200 and now["south"] == before["south"]
        assert sorted((row["region"], row["n__complete"]) for row in first.collect()) == kept
        assert now["north"] == sum(n for region, n in kept if region == "north"), "all others count elsewhere"

    check(reconcile(spark, lost, NoProgress()).note)
    assert "nothing has arrived" in reconcile(spark, lost, NoProgress()).note
    spark.sql(f"INSERT INTO {REGIONS} VALUES ('c', 'west')")
    assert "nothing has arrived" in reconcile(spark, lost, NoProgress()).note, "no record has this key"
    spark.sql(f"UPDATE {REGIONS} SET region = 'far' WHERE k = 'a'")
    check(reconcile(spark, lost, NoProgress()).note)


def test_a_full_run_takes_no_timeline_over_that_other_rows_have_moved(spark: SparkSession, tmp_path: Path) -> None:
    """A filter rejects by its row a record that had moved its partition's watermark; the others are on time without."""
    first = [record(0, p=0, o=0, k="a", t=T0 + 10 * MINUTE), record(1, p=1, o=0, k="b", t=T0)]
    write(tmp_path / "data", first)
    regions(spark, "('a', 'north'), ('b', 'south')")
    nightly = defined(tmp_path, "moved", "on: k, as_of: run", accepts="region <> 'hidden'")
    reconcile(spark, nightly, NoProgress())
    spark.sql(f"UPDATE {REGIONS} SET region = 'hidden' WHERE k = 'a'")
    then = [
        record(2, p=0, o=1, k="b", t=T0 + MINUTE),
        record(3, p=1, o=1, k="b", t=T0 + 10 * MINUTE),
        record(4, p=1, o=2, k="b", t=T0 + 2 * MINUTE),
    ]
    write(tmp_path / "data", then, "part-1.json")
    night = reconcile(spark, nightly, NoProgress())
    assert "looked up anew" in night.note
    full = defined(tmp_path, "moved_full", "on: k, as_of: run", accepts="region <> 'hidden'")
    execute(spark, full, make_plan(spark, full), NoProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert spark.table(Tables.of(nightly).late).isEmpty(), "the records that are accepted are on time"
