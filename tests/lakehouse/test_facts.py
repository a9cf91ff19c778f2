"""Branches of the published table, while others commit to it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.lakehouse.facts import Facts, Publication
from spark_jobs.lakehouse.tables import starts_within
from spark_jobs.replay.assign import Span

HOUR = 3_600_000


def test_branches_are_changed_also_while_others_change_theirs(spark: SparkSession) -> None:
    """Iceberg alone gives up with `Table metadata refresh is required` about once in ten times."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    table = "rewindow.facts_tests.busy"
    spark.sql(f"CREATE TABLE {table} (n BIGINT) USING iceberg")
    spark.range(3).selectExpr("id AS n").writeTo(table).append()
    facts = Facts(spark, table)
    head = facts.head()

    def change(name: str) -> int:
        for number in range(15):
            facts._alter(f"CREATE OR REPLACE BRANCH {name} AS OF VERSION {head}")
            if number % 5 == 4:
                spark.range(1).selectExpr("id AS n").writeTo(f"{table}.branch_{name}").append()
        return number

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(change, ("a", "b", "c"))) == [14] * 3
    assert facts.head() == head and set(facts._refs()) == {"main", "a", "b", "c"}


def test_the_first_windows_of_a_range_are_those_of_a_comparison_and_lie_in_time_order(spark: SparkSession) -> None:
    """Without earlier windows nothing is compared; what comes out is the same, down to the types."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.facts_tests")
    facts = Facts(spark, "rewindow.facts_tests.first")
    hours = spark.range(48).select(
        F.concat(F.lit("k"), F.pmod("id", F.lit(3)).cast("string")).alias("k"),
        F.timestamp_millis(F.pmod(F.col("id") * 7, F.lit(48)) * HOUR).alias("window_start"),
        F.timestamp_millis(F.pmod(F.col("id") * 7, F.lit(48)) * HOUR + HOUR).alias("window_end"),
        F.when(F.col("id") != 5, F.col("id")).alias("n"),
    )  # fmt: skip
    facts.prepare(hours.schema)
    at = datetime(2026, 1, 1, tzinfo=UTC)

    def publication(run_id: str, span: Span) -> Publication:
        within = starts_within(span)
        cause = F.when(F.col("old_run_id").isNull() & (F.col("rw_start") >= F.lit(at)), "live").otherwise("backfill")
        return Publication(
            run_id, span, hours.where(within), ("k", "window_start", "window_end"), lambda rows: rows.where(within),
            lambda: cause, {0: 7},
        )  # fmt: skip

    first, second = publication("first", Span(0, 24 * HOUR)), publication("second", Span(24 * HOUR, 48 * HOUR))
    for step in (first, second):
        quick, compared = facts._inserted(step, at), facts._compared(step, at)
        assert facts._is_new(step.span)
        assert quick.schema.simpleString() == compared.schema.simpleString()
        assert sorted(map(str, quick.collect())) == sorted(map(str, compared.collect()))
        assert facts.publish(step, facts.head(), at) == {"inserted": 24}
        assert not facts._is_new(step.span)
    files = [row[0] for row in spark.sql(f"SELECT file_path FROM {facts.table}.files").collect()]
    for file in files:
        starts = [row[0] for row in spark.read.parquet(file).select("window_start").collect()]
        assert starts == sorted(starts)
