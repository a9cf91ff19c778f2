"""Text with a time: which instants it gives, and why others give none."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from spark_jobs.sources.records.times import instants
from spark_jobs.spark.gateway import jvm

TEN = 1_719_828_000_000
"""2024-07-01T10:00:00Z."""

CLEAR = {
    "2024-07-01T10:00:00Z": TEN,
    "2024-07-01T10:00:00.000Z": TEN,
    "2024-07-01 10:00:00Z": TEN,
    " 2024-07-01T10:00Z ": TEN,
    "2024-07-01T10:00:00 Z": TEN,
    "2024-07-01T12:00:00+02:00": TEN,
    "2024-07-01T12:00+02": TEN,
    "2024-07-01T12:00:00.0+0200": TEN,
    "2024-07-01T10:00:00 UTC": TEN,
    "2024-07-01T10:00:00 GMT": TEN,
    "2024-07-01T12:00:00 UTC+2": TEN,
    "2024-07-01T12:00:00 GMT+02:00": TEN,
    "2024-07-01 12:00:00 Europe/Berlin": TEN,
    "2024-07-01T12:00:00+02:00[Europe/Berlin]": TEN,
    "2024-07-01T07:00:00 America/Argentina/Buenos_Aires": TEN,
}
NO_DATE = ("10:00Z", "10:00:00Z", "T10:00:00Z", "T10:00:00+01:00", "10:00:00 UTC", "10:00 BST", "T10:00", "10:00:00")
NO_ZONE = ("2024-07-01T10:00:00", "2024-07-01", "2024-07-01T10:00[Europe/Berlin]", "2024")
LOWER_CASE = ("2024-07-01t10:00:00Z", "2024-07-01T10:00:00z", "2024-07-01 10:00:00.5z ", "2024-07-01t10:00:00+00:00")
NO_CLEAR_ZONE = (
    "2024-07-01T10:00:00BST", "2024-07-01 10:00:00 EST", "2024-07-01 10:00:00 CET", "2024-07-01 10:00:00 EST5EDT",
    "2024-07-01 10:00:00 NZ", "2024-07-01T10:00:00.000 Japan", "2024-07-01 10:00:00 GB",
)  # fmt: skip


def test_text_needs_a_date_and_a_clear_zone(spark: SparkSession) -> None:
    short_names = [str(name) for name in jvm(spark).java.time.ZoneId.SHORT_IDS.keySet()]
    assert {"BST", "IST", "CST", "AST", "ECT", "EST"} <= set(short_names)
    unclear = [*NO_CLEAR_ZONE, *(f"2024-07-01T10:00:00 {name}" for name in short_names)]
    texts = [*CLEAR, *NO_DATE, *NO_ZONE, *LOWER_CASE, *unclear]
    read = instants(F.col("t"), StringType(), "iso")
    frame = spark.createDataFrame([(text,) for text in texts], "t STRING")
    rows = frame.select("t", read.milliseconds.alias("ms"), read.reason.alias("reason")).collect()
    found = {row.t: row for row in rows}
    assert {text: (found[text].ms, found[text].reason) for text in CLEAR} == {t: (ms, None) for t, ms in CLEAR.items()}
    for text in NO_DATE:
        assert found[text].ms is None, text
        assert found[text].reason, text
    assert found["T10:00:00Z"].reason == "event time without date: T10:00:00Z"
    for group, why in ((NO_ZONE, "without zone"), (LOWER_CASE, "lower-case t or z"), (unclear, "no clear zone")):
        for text in group:
            assert found[text].ms is None, text
            assert why in found[text].reason, found[text]
