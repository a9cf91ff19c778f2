"""The number of a shuffle's partitions follows the rows, and comes back."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.windows import AnyWindows, CumulativeWindows, SessionWindows, SlidingWindows, TumblingWindows
from spark_jobs.spark.shuffles import ROWS_OF_A_TASK, shuffles_for
from tests.bench.workload import replay_spec

PARTITIONS = "spark.sql.shuffle.partitions"


@pytest.mark.parametrize(
    ("tasks", "there"), [(0, 0), (1, 0), (500, 500)], ids=["no rows", "fewer than the session has", "more"]
)
def test_a_shuffle_has_tasks_for_its_rows_and_never_fewer_than_the_session_says(
    spark: SparkSession, tasks: int, there: int
) -> None:
    before = spark.conf.get(PARTITIONS)
    with shuffles_for(spark, tasks * ROWS_OF_A_TASK):
        assert spark.conf.get(PARTITIONS) == (str(there) if there else before)
    assert spark.conf.get(PARTITIONS) == before


def test_a_run_that_fails_leaves_the_session_as_it_was(spark: SparkSession) -> None:
    before = spark.conf.get(PARTITIONS)
    with pytest.raises(RuntimeError), shuffles_for(spark, 400 * ROWS_OF_A_TASK):
        raise RuntimeError
    assert spark.conf.get(PARTITIONS) == before


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        (TumblingWindows(MINUTE), 1),
        (SlidingWindows(HOUR, 5 * MINUTE), 12),
        (SlidingWindows(HOUR, 7 * MINUTE), 9),
        (SlidingWindows(MINUTE, HOUR), 1),
        (CumulativeWindows(HOUR, 10 * MINUTE), 6),
        (SessionWindows(MINUTE), 1),
    ],
    ids=repr,
)
def test_a_record_counts_once_for_each_of_its_windows(windows: AnyWindows, expected: int) -> None:
    assert replay_spec(windows).pairs(1) == expected
