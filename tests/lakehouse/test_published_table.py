"""Branches of the published table, while others commit to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import CatalogError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.publication import Publication
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, refuse_unpublished, starts_within

HOUR = 3_600_000


@pytest.mark.long
def test_branches_are_changed_also_while_others_change_theirs(spark: SparkSession) -> None:
    """Iceberg alone gives up with `Table metadata refresh is required` about once in ten times."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    table = "rewindow.facts_tests.busy"
    patient = "TBLPROPERTIES ('commit.retry.num-retries'='50')"  # of the appends, whose tries are Iceberg's own
    spark.sql(f"CREATE TABLE {table} (n BIGINT) USING iceberg {patient}")
    spark.range(3).selectExpr("id AS n").writeTo(table).append()
    facts = PublishedTable(spark, table)
    head = facts.head()

    def change(name: str) -> int:
        for number in range(15):
            facts.alter(f"CREATE OR REPLACE BRANCH {name} AS OF VERSION {head}")
            if number % 5 == 4:
                spark.range(1).selectExpr("id AS n").writeTo(f"{table}.branch_{name}").append()
        return number

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(change, ("a", "b", "c"))) == [14] * 3
    assert facts.head() == head and {row.name for row in spark.table(f"{facts.table}.refs").collect()} == {
        "main",
        "a",
        "b",
        "c",
    }


def test_the_first_windows_of_a_range_are_those_of_a_comparison_and_lie_in_time_order(spark: SparkSession) -> None:
    """Without earlier windows nothing is compared; what comes out is the same, down to the types."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.first")
    hours = spark.range(48).select(
        F.concat(F.lit("k"), F.pmod("id", F.lit(3)).cast("string")).alias("k"),
        F.timestamp_millis(F.pmod(F.col("id") * 7, F.lit(48)) * HOUR).alias("window_start"),
        F.timestamp_millis(F.pmod(F.col("id") * 7, F.lit(48)) * HOUR + HOUR).alias("window_end"),
        F.when(F.col("id") != 5, F.col("id")).alias("n"),
    )  # fmt: skip
    facts.prepare(hours.schema)
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def publication(run_id: str, span: TimeRange) -> Publication:
        within = starts_within(span)
        cause = F.when(F.col("old_run_id").isNull() & (F.col("rw_start") >= F.lit(at)), "live").otherwise("backfill")
        return Publication(
            run_id, span, hours.where(within), ("k", "window_start", "window_end"), lambda rows: rows.where(within),
            lambda: cause, {0: 7}, f"publishing_{run_id}", list,
        )  # fmt: skip

    def assert_as_compared(step: Publication) -> None:
        quick, compared = facts.changes(step, at), facts.compared_changes(step, at)
        assert quick.schema.simpleString() == compared.schema.simpleString()
        assert sorted(map(str, quick.collect())) == sorted(map(str, compared.collect()))

    for step in (publication("first", TimeRange(0, 12 * HOUR)), publication("second", TimeRange(12 * HOUR, 24 * HOUR))):
        assert_as_compared(step)
        assert facts.publish(step, facts.head(), at) == {"inserted": 12}
    # Half of it is known: of that a third is another, a third is gone.
    third = publication("third", TimeRange(6 * HOUR, 30 * HOUR))
    hour = F.unix_millis("window_start") / F.lit(HOUR)
    other = F.when(hour % 3 == 1, F.lit(99)).otherwise(F.col("n"))
    third = replace(third, staged=third.staged.where(hour % 3 != 2).withColumn("n", other.cast("bigint")))
    assert_as_compared(third)
    assert facts.publish(third, facts.head(), at) == {"inserted": 4, "updated": 6, "retracted": 6}
    assert facts.publish(third, facts.head(), at) == {}
    whole = publication("whole", TimeRange(0, 48 * HOUR))
    assert_as_compared(whole)
    assert facts.publish(whole, facts.head(), at) == {"inserted": 26, "updated": 8}
    files = [row[0] for row in spark.sql(f"SELECT file_path FROM {facts.table}.files WHERE content = 0").collect()]
    for file in files:
        starts = [row[0] for row in spark.read.parquet(file).select("window_start").collect()]
        assert starts == sorted(starts)


def test_windows_that_come_back_end_their_retraction_also_where_nothing_else_changes(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.back")
    rows = "'a' AS k, timestamp_millis(0) AS window_start, timestamp_millis(3600000) AS window_end, 1 AS n"
    there = spark.sql(f"SELECT {rows}")
    facts.prepare(there.schema)
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def publish(run_id: str, staged: DataFrame) -> dict[str, int]:
        identity = ("k", "window_start", "window_end")
        return facts.publish(
            Publication(
                run_id, TimeRange(0, HOUR), staged, identity, lambda rows: rows, lambda: F.lit("backfill"), {0: 7},
                f"publishing_{run_id}", list,
            ),
            facts.head(), at,
        )  # fmt: skip

    assert publish("first", there) == {"inserted": 1}
    assert publish("gone", there.limit(0)) == {"retracted": 1}
    assert publish("back", there) == {"inserted": 1}
    revisions = facts.revisions().orderBy("revision").select("revision", "run_id", F.isnull("valid_to")).collect()
    assert [tuple(row) for row in revisions] == [(1, "first", False), (2, "gone", False), (3, "back", True)]
    assert [row["run_id"] for row in facts.current().collect()] == ["back"]
    assert publish("again", there) == {}


def test_a_table_of_another_layout_is_refused(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.of_another_layout")
    times = (f"timestamp_millis({at}) AS {name}" for at, name in enumerate(("window_start", "window_end")))
    staged = spark.range(1).selectExpr(*times).schema
    facts.prepare(staged)
    tables = Tables(facts.table, "", "", "", "")
    refuse_unpublished(spark, tables)
    spark.sql(f"ALTER TABLE {facts.table} SET TBLPROPERTIES ('rewindow.layout'='2')")
    for use in (lambda: facts.prepare(staged), lambda: refuse_unpublished(spark, tables)):
        with pytest.raises(CatalogError, match="has layout 2, and this version of Rewindow reads and writes layout 1"):
            use()


def test_a_table_of_another_tool_is_refused_by_the_column_that_differs(spark: SparkSession) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.earlier")
    columns = "window_start TIMESTAMP, window_end TIMESTAMP, revision INT, cause STRING, run_id STRING"
    spark.sql(
        f"CREATE TABLE {facts.table} ({columns}, as_of MAP<INT, BIGINT>, valid_from TIMESTAMP, valid_to TIMESTAMP)"
    )
    with pytest.raises(CatalogError, match="the table has no column as_of string: another tool") as refused:
        facts.prepare(spark.table(facts.table).select("window_start", "window_end").schema)
    assert "Name another table" in refused.value.hint


@pytest.mark.long
def test_a_window_of_which_only_the_close_differs_is_bookkeeping(spark: SparkSession) -> None:
    """It becomes a revision, so that the table is that of a full run, but it counts as no update."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.bookkeeping")
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def publish(run_id: str, windows: list[tuple[str, int, datetime | None]]) -> dict[str, int]:
        columns = "k STRING, n BIGINT, closed_at TIMESTAMP"
        staged = spark.createDataFrame(windows, columns).selectExpr(
            "k", "timestamp_millis(0) AS window_start", "timestamp_millis(3600000) AS window_end", "n", "closed_at"
        )
        facts.prepare(staged.schema)
        step = Publication(
            run_id, TimeRange(0, HOUR), staged, ("k", "window_start", "window_end"), lambda rows: rows,
            lambda: F.lit(run_id), {0: 7}, f"publishing_{run_id}", list,
        )  # fmt: skip
        return facts.publish(step, facts.head(), at)

    assert publish("first", [("a", 1, None), ("b", 1, None), ("c", 1, at)]) == {"inserted": 3}
    assert publish("second", [("a", 1, at), ("b", 2, at), ("c", 1, at)]) == {"bookkeeping": 1, "updated": 1}
    current = {row["k"]: (row["revision"], row["cause"], row["closed_at"]) for row in facts.current().collect()}
    closed = current["c"][2]
    assert current["a"] == (2, "first", closed) and current["b"] == (2, "second", closed)
    assert current["c"][:2] == (1, "first")


def test_what_an_open_window_gets_restates_nothing(spark: SparkSession) -> None:
    """It closes, gets more records while it is open, goes into a longer session, or stays as it is."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = PublishedTable(spark, "rewindow.facts_tests.opened")
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def windows(*rows: tuple[str, int, str, int | None, int]) -> DataFrame:
        """Key, length in hours, state, faithful and complete value."""
        made = spark.createDataFrame(list(rows), "k STRING, hours INT, state STRING, n BIGINT, n__complete BIGINT")
        start = F.timestamp_millis(F.lit(0)).alias("window_start")
        end = F.timestamp_millis(F.col("hours") * HOUR).alias("window_end")
        return made.select("k", start, end, "n", "n__complete", "state")

    def published(run_id: str, staged: DataFrame, cause: str) -> list[tuple[str, str, str]]:
        step = Publication(
            run_id, TimeRange(0, HOUR), staged, ("k", "window_start", "window_end"), lambda rows: rows,
            lambda: F.lit(cause), {0: 7}, f"publishing_{run_id}", list,
        )  # fmt: skip
        changes = facts.changes(step, at).select("k", "rw_change", "cause").collect()
        facts.publish(step, facts.head(), at)
        return sorted(map(tuple, changes))

    before = windows(
        ("closes", 1, "open", None, 1), ("fills", 1, "open", None, 1), ("stays", 1, "open", None, 1),
        ("grows", 1, "open", None, 1), ("known", 1, "closed", 1, 1), ("defined anew", 1, "open", None, 1),
    )  # fmt: skip
    facts.prepare(before.schema)
    assert {change for _, change, _ in published("before", before, "backfill")} == {"inserted"}
    after = windows(
        ("closes", 1, "closed", 1, 1), ("fills", 1, "open", None, 2), ("stays", 1, "open", None, 1),
        ("grows", 2, "open", None, 2), ("known", 1, "closed", 1, 2), ("defined anew", 1, "open", None, 1),
    )  # fmt: skip
    assert published("after", after, "late_arrivals") == [
        ("closes", "was_open", "closed"), ("fills", "was_open", "open"),
        ("grows", "inserted", "late_arrivals"), ("grows", "outgrown", "retraction"),
        ("known", "updated", "late_arrivals"),
    ]  # fmt: skip
    seen = facts.current().select("k", F.unix_millis("window_end"), "n__complete").collect()
    assert sorted(map(tuple, seen)) == [
        ("closes", HOUR, 1), ("defined anew", HOUR, 1), ("fills", HOUR, 2), ("grows", 2 * HOUR, 2), ("known", HOUR, 2),
        ("stays", HOUR, 1),
    ]  # fmt: skip
    anew = after.where("k = 'defined anew'").withColumn("n__complete", F.lit(9).cast("bigint"))
    rest = after.where("k <> 'defined anew'")
    assert published("anew", rest.unionByName(anew), "logic_change") == [("defined anew", "was_open", "logic_change")]
