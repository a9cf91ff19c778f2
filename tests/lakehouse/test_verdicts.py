"""The table of verdicts: what a comparison opens, sees again, changes and closes."""

from __future__ import annotations

from datetime import UTC, datetime

from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.verdict import Verdict
from spark_jobs.lakehouse.verdicts import ComparingRun, VerdictTable


def test_a_value_that_differs_by_a_microsecond_is_another_one(spark) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.verdict_tests")
    table = VerdictTable(spark, "rewindow.verdict_tests.of_instants", ["k"])

    def recorded(run: str, micros: int) -> dict[str, int]:
        found = spark.range(1).select(
            F.lit("a").alias("k"),
            F.timestamp_millis(F.lit(0)).alias("window_start"),
            F.timestamp_millis(F.lit(60_000)).alias("window_end"),
            F.timestamp_micros(F.lit(micros)).alias("first_at__emitted"),
            F.lit(Verdict.MISMATCH.value).alias("verdict"),
        )
        at = datetime(2024, 1, 1, tzinfo=UTC)
        comparing = ComparingRun(run, "{}", at)
        return table.record(found, lambda rows: rows, TimeRange(0, 60_000), comparing)

    assert recorded("first", 1) == {"opened": 1}
    assert recorded("again", 1) == {"seen": 1}
    assert recorded("other", 2) == {"changed": 1}
