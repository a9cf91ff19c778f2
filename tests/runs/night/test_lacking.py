"""What published windows count, and what is still there of it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import HistoryError
from spark_jobs.runs.night.lacking import BOUNDS, LATER, TOTAL, refuse_twice, windows_in
from spark_jobs.spark.joins import OTHER


def test_of_end_offsets_the_larger_number_counts_and_no_text(spark: SparkSession) -> None:
    panes = [("a", '{"0":9,"1":100}', 3), ("a", '{"0":10,"1":20}', 4)]
    windows = spark.createDataFrame(panes, "k STRING, as_of STRING, records_on_time BIGINT")
    windows = windows.selectExpr("*", "timestamp_millis(0) AS window_start", "timestamp_millis(60000) AS window_end")
    (found,) = windows_in(windows, ["k"]).collect()
    assert (found["rw_as_of"], found[TOTAL]) == ({"0": 10, "1": 100}, 4)


def test_a_record_that_a_kept_window_counts_is_refused_beside_others(spark: SparkSession) -> None:
    names = ", ".join(f"{OTHER}{name} BIGINT" for name in BOUNDS)
    rows = [(0, 60_000, 2, 0), (60_000, 120_000, 3, 1), (120_000, 180_000, 4, 2)]
    moved = spark.createDataFrame(rows, f"{names}, {TOTAL} BIGINT, {LATER} BIGINT")
    refuse_twice(moved.where(f"{LATER} = 0"), "t")
    with pytest.raises(
        HistoryError, match="2 windows from 1970-01-01T00:01:00Z to 1970-01-01T00:03:00Z have 7 records"
    ):
        refuse_twice(moved, "t")
