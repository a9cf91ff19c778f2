"""Parallel steps: results in order, all ended, the caller's local properties and job tags. Background work."""

from __future__ import annotations

import threading
import time

import pytest
from pyspark.sql import SparkSession

from spark_jobs.spark.parallel import in_background, run_parallel


def test_steps_run_side_by_side_and_answer_in_their_order(spark: SparkSession) -> None:
    meeting = threading.Barrier(3, timeout=60)

    def count(rows: int) -> int:
        meeting.wait()  # no step goes on before all have started
        return spark.range(rows).count()

    assert run_parallel(spark, *(lambda rows=rows: count(rows) for rows in (3, 1, 2))) == [3, 1, 2]
    assert run_parallel(spark) == []


def test_a_step_alone_stays_in_its_thread(spark: SparkSession) -> None:
    assert run_parallel(spark, threading.get_ident) == [threading.get_ident()]


def test_the_first_error_in_line_is_raised_when_all_have_ended(spark: SparkSession) -> None:
    ended = []

    def fail_late() -> None:
        time.sleep(0.2)
        raise ValueError("first in line")

    def fail_soon() -> None:
        raise KeyError("first in time")

    def end() -> None:
        time.sleep(0.4)
        ended.append(spark.range(2).count())

    with pytest.raises(ValueError, match="first in line"):
        run_parallel(spark, fail_late, fail_soon, end)
    assert ended == [2]


def test_local_properties_and_job_tags_hold_in_each_step(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setLocalProperty("rewindow.test", "set")
    context.addJobTag("parallel")
    try:
        seen = run_parallel(
            spark, *[lambda: (context.getLocalProperty("rewindow.test"), set(context.getJobTags()))] * 2
        )
    finally:
        context.setLocalProperty("rewindow.test", None)
        context.removeJobTag("parallel")
    assert seen == [("set", {"parallel"})] * 2


def test_work_in_the_background_gives_its_result_or_its_error_to_who_asks() -> None:
    goes_on = threading.Event()
    waiting = in_background(lambda: goes_on.wait(60))
    assert not waiting.done()
    goes_on.set()
    assert waiting.result(60)
    with pytest.raises(ZeroDivisionError):
        in_background(lambda: 1 // 0).result(60)
