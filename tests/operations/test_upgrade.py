"""`rewindow upgrade`: tables of each earlier layout get what they lack, and the nights go on with them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import CatalogError, RunStateError
from spark_jobs.lakehouse.corrections import CORRECTION_FACTS
from spark_jobs.lakehouse.publication import FACTS
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, Tables, aligned
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS, VERDICT_FACTS, VerdictTable
from spark_jobs.operations.upgrade import BEFORE, upgrade
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress
from spark_jobs.runs.recovery import recover
from spark_jobs.runs.store import RunStore
from tests.operations.layouts import KEY, RUNS, downgrade, leave_open, without
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import write
from tests.sampling import sample

NULLS = ", ".join(["CAST(NULL AS TIMESTAMP)"] * 4)


def in_own_namespace(tmp_path: Path, name: str) -> Pipeline:
    """A pipeline whose ledger no other one uses."""
    pipeline(tmp_path, name, "tumbling, per event")
    path = tmp_path / f"{name}.yaml"
    path.write_text(path.read_text().replace("nightly_tests", name))
    return load_pipeline(path)


@pytest.mark.long
@pytest.mark.parametrize("layout", sample([1, 3], sorted(RUNS)))
def test_tables_of_an_earlier_layout_are_upgraded_and_the_next_night_goes_on(
    layout: int, spark: SparkSession, tmp_path: Path
) -> None:
    records, store = log_of(9, count=120), RunStore(str(tmp_path / "runs"))
    defined = in_own_namespace(tmp_path, f"layout_{layout}")
    tables = Tables.of(defined)
    write(tmp_path / "data", records[:80], "part-0.json")
    reconcile(spark, defined, NoProgress(), store=store)
    assert upgrade(spark, defined) == []
    published = PublishedTable(spark, tables.windows)
    windows, revisions = published.current().count(), published.revisions().count()

    downgrade(spark, defined, layout)
    write(tmp_path / "data", records[80:], "part-1.json")
    if layout <= 2:
        with pytest.raises(CatalogError, match="`rewindow upgrade PIPELINE`"):
            published.prepare(spark.table(tables.windows).drop(*FACTS.names).schema)
    killed = leave_open(spark, defined, layout) if layout > 1 else None  # a ledger of layout 1 names no table
    if killed:
        with pytest.raises(RunStateError, match=r"a run of a version before 0[.]2 has not ended"):
            recover(spark, tables, datetime.now(UTC), store)
    upgraded = upgrade(spark, defined, store)
    assert upgrade(spark, defined, store) == []
    ended = [one.ended for one in upgraded if one.ended]
    assert [list(one) for one in ended] == ([[killed]] if killed else [])
    assert all("has read as much" in what for one in ended for what in one.values())
    done = {one.table: one for one in upgraded if not one.ended}
    lacked = tuple(name for name in RUNS_SCHEMA.names if name not in RUNS[layout])
    assert (done[tables.runs].columns if tables.runs in done else ()) == lacked
    if layout <= 2:
        assert done[tables.windows].windows == (windows if layout == 1 else 0)
        assert all(row["as_of"].startswith("{") for row in published.revisions().collect())
        assert published.revisions().count() == (windows if layout == 1 else revisions)
        assert "as_of_map" not in published.current().columns
        assert (published.current().where(f"run_id = '{BEFORE}'").count() == 0) or layout == 1

    night = reconcile(spark, defined, NoProgress(), store=store)
    assert sum(night.changes.values()) > 0
    assert_history_is_whole(spark, defined)
    if killed:
        assert spark.sql(f"SHOW TABLES IN rewindow.{defined.name} LIKE '*staging*'").isEmpty()
        refs = spark.table(f"{tables.windows}.refs").where("name LIKE 'publishing%'")
        assert refs.isEmpty()
        full = in_own_namespace(tmp_path, f"layout_{layout}_full")
        execute(spark, full, make_plan(spark, full), NoProgress(), store=store)
        assert tables_of(spark, defined)[1] == tables_of(spark, full)[1], "the late records of the killed run are gone"


def test_as_of_vectors_that_are_maps_become_text_on_both_branches(spark: SparkSession, tmp_path: Path) -> None:
    """Layout 2. The second partition has fewer records; an upgrade that was killed in between goes on."""
    defined = in_own_namespace(tmp_path, "layout_maps")
    published = PublishedTable(spark, Tables.of(defined).windows)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.layout_maps")
    columns = f"{without(KEY)}, n BIGINT, revision INT, cause STRING, run_id STRING"
    times = "valid_from TIMESTAMP, valid_to TIMESTAMP"
    spark.sql(f"CREATE TABLE {published.table} ({columns}, as_of MAP<INT, BIGINT>, {times}) USING iceberg")
    window = "'a', timestamp_millis(0), timestamp_millis(60000)"
    for number, end in ((1, "timestamp_millis(9)"), (2, "NULL")):
        spark.sql(
            f"INSERT INTO {published.table} SELECT {window}, {number}L, {number}, 'backfill', 'run-{number}', "
            f"map(11, 7L, 2, {number}L), timestamp_millis({number}), {end}"
        )
    published.alter("CREATE BRANCH revisions")
    spark.sql(f"DELETE FROM {published.table} WHERE revision = 1")
    published.alter("RENAME COLUMN as_of TO as_of_map")

    upgrade(spark, defined)
    assert upgrade(spark, defined) == []
    expected = {1: '{"2":1,"11":7}', 2: '{"2":2,"11":7}'}
    assert {row["revision"]: row["as_of"] for row in published.revisions().collect()} == expected
    assert [row["as_of"] for row in published.current().collect()] == [expected[2]]
    published.prepare(spark.table(published.table).drop(*FACTS.names).schema)


def test_tables_of_comparisons_and_corrections_are_upgraded(spark: SparkSession, tmp_path: Path) -> None:
    """`final_before` came after the first comparisons."""
    defined = in_own_namespace(tmp_path, "layout_verdicts")
    tables = Tables.of(defined)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.layout_verdicts")
    key = without(KEY)
    for table, columns in (
        (tables.verdicts, f"{key}, verdict STRING, {without(VERDICT_FACTS)}"),
        (tables.comparisons, without(COMPARISON_COLUMNS, "final_before")),
        (tables.corrections, f"{key}, {without(CORRECTION_FACTS, 'since')}"),
    ):
        spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg")
    assert {one.table: one.columns for one in upgrade(spark, defined)} == {
        tables.comparisons: ("final_before",),
        tables.corrections: ("since",),
    }
    assert upgrade(spark, defined) == []


def test_verdicts_get_their_names_of_today_and_are_read_before(spark: SparkSession, tmp_path: Path) -> None:
    defined = in_own_namespace(tmp_path, "layout_words")
    tables = Tables.of(defined)
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.layout_words")
    columns = f"{without(KEY)}, verdict STRING, {without(VERDICT_FACTS)}"
    spark.sql(f"CREATE TABLE {tables.verdicts} ({columns}) USING iceberg")
    for number, verdict in enumerate(("drift", "unexpected", "missing")):
        start = f"timestamp_millis({number * 60_000})"
        spark.sql(f"INSERT INTO {tables.verdicts} SELECT 'a', {start}, {start}, '{verdict}', 'r', '{{}}', {NULLS}")
    spark.sql(f"CREATE TABLE {tables.comparisons} ({without(COMPARISON_COLUMNS)}) USING iceberg")
    counts = spark.createDataFrame(
        [("r", {"match": 5, "drift": 2, "unexpected": 1})], "run_id STRING, verdicts MAP<STRING, LONG>"
    )
    aligned(spark, tables.comparisons, counts).writeTo(tables.comparisons).append()

    today = ["mismatch", "extra", "missing"]
    current = VerdictTable(spark, tables.verdicts, ("k",)).current()
    assert current is not None and [row["verdict"] for row in current.orderBy("window_start").collect()] == today
    done = {one.table: one.verdicts for one in upgrade(spark, defined)}
    assert done == {tables.verdicts: 2, tables.comparisons: 1}
    assert [row["verdict"] for row in spark.table(tables.verdicts).orderBy("window_start").collect()] == today
    assert spark.table(tables.comparisons).collect()[0]["verdicts"] == {"match": 5, "mismatch": 2, "extra": 1}
    assert upgrade(spark, defined) == []


def test_a_table_of_somebody_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    defined = pipeline(tmp_path, "not_ours", "tumbling, per event")
    table = Tables.of(defined).windows
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.rsplit('.', 1)[0]}")
    spark.range(1).writeTo(table).createOrReplace()
    with pytest.raises(CatalogError, match="has no column k, window_end, window_start"):
        upgrade(spark, defined)
