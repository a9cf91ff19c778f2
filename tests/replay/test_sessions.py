"""Sessions that were all emitted complete: nothing is late, and the late records have their usual columns."""

# pyright: reportReturnType=false

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Ascending
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import DynamicSessionWindows, SessionWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.sessions import coarse_thresholds, kept_thresholds, sessionize
from spark_jobs.replay.spec import ReplaySpec
from tests.sampling import first_of

RECORDS = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, k STRING, gap BIGINT"
TIMES = TimeRange(0, 1000)


def replay(spark, event_times: list[int], windows: SessionWindows | DynamicSessionWindows) -> Replay:
    rows = [(0, i, 2000 + i, time, "k", 30) for i, time in enumerate(event_times)]
    spec = ReplaySpec(FLINK, WatermarkStrategy(Ascending(), (0,), ((0,),)), windows, 0, ("k",), {"n": "count(*)"})
    return Replay(History(spark.createDataFrame(rows, RECORDS), TIMES, 2000 + len(rows)), spec)


@pytest.mark.parametrize("windows", first_of([DynamicSessionWindows("gap"), SessionWindows(30)]), ids=str)
def test_records_in_order_make_complete_sessions_and_no_late_records(spark, windows) -> None:
    with replay(spark, [0, 10, 20, 100, 110], windows) as in_order, replay(spark, [0, 200, 10], windows) as late:
        sessions = in_order.windows(TIMES).select("window_start", "window_end", "n").orderBy("window_start").collect()
        assert [tuple(row) for row in sessions] == [(0, 50, 3), (100, 140, 2)]
        assert late.late(TIMES).select("rw_event_time").collect() == [(10,)]
        nothing = in_order.late(TIMES)
        assert nothing.collect() == []
        assert nothing.dtypes == late.late(TIMES).dtypes


def test_the_records_of_few_and_of_many_sessions_are_found_alike(spark, monkeypatch) -> None:
    times = [0, 200, 10, 205, 190, 400, 395, 100, 210, 600]
    rows = [(0, at, 2000 + at, time, (None, "a", "b")[at % 3], 30) for at, time in enumerate(times)]
    spec = ReplaySpec(
        FLINK, WatermarkStrategy(Ascending(), (0,), ((0,),)), SessionWindows(30), 0, ("k",), {"n": "count(*)"}
    )

    def found() -> tuple[list, list]:
        with Replay(History(spark.createDataFrame(rows, RECORDS), TIMES, 2000 + len(rows)), spec) as replay:
            assert replay.windows(TIMES).where("records_dropped > 0").count()
            return tuple(sorted(map(str, frame.collect())) for frame in (replay.windows(TIMES), replay.late(TIMES)))

    few = found()
    monkeypatch.setattr("spark_jobs.replay.sessions._FEW_SESSIONS", 0)
    assert found() == few


@pytest.mark.parametrize("key", ["{0}", "named_struct('t', {0})"])
def test_sessions_whose_keys_are_a_microsecond_apart_stay_two(spark, key: str) -> None:
    """Each has a late record, so that its records go through the operator."""
    rows = [(0, at, 2000 + at, time, "k", 30) for at, time in enumerate([0, 0, 200, 200, 10, 10])]
    strategy = WatermarkStrategy(Ascending(), (0,), ((0,),))
    spec = ReplaySpec(FLINK, strategy, SessionWindows(30), 0, ("k",), {"n": "count(*)"})
    instant = key.format("timestamp_micros(rw_offset % 2)")
    records = spark.createDataFrame(rows, RECORDS).withColumn("k", F.expr(instant))
    with Replay(History(records, TIMES, 2000 + len(rows)), spec) as replay:
        windows = replay.windows(TIMES).select("window_start", "window_end", "n", "n__complete", "records_dropped")
        assert Counter(map(tuple, windows.collect())) == {
            (0, 30, 1, None, 0): 2,
            (0, 40, None, 2, 1): 2,
            (200, 230, 1, 1, 0): 2,
        }
        assert replay.late(TIMES).count() == 2


def test_a_timeline_that_was_kept_without_the_step_of_its_cells_has_the_former_one() -> None:
    times = TimeRange(0, 400_000_000)
    assert kept_thresholds(times, None).step == 2_000
    assert kept_thresholds(times, 500).step == 500
    assert coarse_thresholds(times, 64).step > coarse_thresholds(times, 1).step


@pytest.mark.long
def test_a_range_reads_no_more_than_its_sessions_need(spark) -> None:
    """A chain of records, each within the gap of the next, from 0 to 2,000; else one record every 1,000."""
    times = [*range(0, 2_000, 20), *range(3_000, 200_000, 1_000)]
    history = TimeRange(0, 200_000)
    rows = [(0, i, 300_000 + i, time, "k", 30) for i, time in enumerate(times)]
    read: list[int] = []

    def counted(records: DataFrame, *rest) -> DataFrame:
        read.append(records.count())
        return sessionize(records, *rest)

    def started(span: TimeRange) -> list[tuple[int, int, int]]:
        spec = ReplaySpec(
            FLINK, WatermarkStrategy(Ascending(), (0,), ((0,),)), SessionWindows(30), 0, (), {"n": "count(*)"}
        )
        records = spark.createDataFrame(rows, RECORDS)
        with Replay(History(records, history, 300_000 + len(rows)), spec) as replay:
            found = replay.windows(span).select("window_start", "window_end", "n").orderBy("window_start").collect()
        return [tuple(row) for row in found]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_jobs.replay.sessions.sessionize", counted)
        assert started(TimeRange(100_000, 103_000)) == [(at, at + 30, 1) for at in (100_000, 101_000, 102_000)]
        assert read == [4], "32 gaps on each side"
        read.clear()
        assert started(TimeRange(0, 10)) == [(0, 2_010, 100)]
        assert read[0] < 100 < read[-1] < len(rows), "a session that reaches out of what is read is read on"
        read.clear()
        assert started(TimeRange(1_500, 1_600)) == [], "the session has begun before"
        assert len(started(history)) == 1 + 197
        assert read[-1] == len(rows)
