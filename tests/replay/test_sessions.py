"""Sessions that were all emitted complete: nothing is late, and the late records have their usual columns."""

from __future__ import annotations

import pytest

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.strategy import WatermarkStrategy
from spark_jobs.eventtime.suppliers import Ascending
from spark_jobs.eventtime.windows import DynamicSessionWindows, SessionWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink_rules import FLINK
from spark_jobs.replay.sessions import coarse_thresholds, kept_thresholds
from spark_jobs.replay.spec import ReplaySpec

RECORDS = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, k STRING, gap BIGINT"
TIMES = TimeRange(0, 1000)


def replay(spark, event_times: list[int], windows: SessionWindows | DynamicSessionWindows) -> Replay:
    rows = [(0, i, 2000 + i, time, "k", 30) for i, time in enumerate(event_times)]
    spec = ReplaySpec(FLINK, WatermarkStrategy(Ascending(), (0,), ((0,),)), windows, 0, ("k",), {"n": "count(*)"})
    return Replay(History(spark.createDataFrame(rows, RECORDS), TIMES, 2000 + len(rows)), spec)


@pytest.mark.parametrize("windows", [SessionWindows(30), DynamicSessionWindows("gap")], ids=str)
def test_records_in_order_make_complete_sessions_and_no_late_records(spark, windows) -> None:
    with replay(spark, [0, 10, 20, 100, 110], windows) as in_order, replay(spark, [0, 200, 10], windows) as late:
        sessions = in_order.windows(TIMES).select("window_start", "window_end", "n").orderBy("window_start").collect()
        assert [tuple(row) for row in sessions] == [(0, 50, 3), (100, 140, 2)]
        assert late.late(TIMES).select("rw_event_time").collect() == [(10,)]
        nothing = in_order.late(TIMES)
        assert nothing.collect() == []
        assert nothing.dtypes == late.late(TIMES).dtypes


def test_a_timeline_that_was_kept_without_the_step_of_its_cells_has_the_former_one() -> None:
    times = TimeRange(0, 400_000_000)
    assert kept_thresholds(times, None).step == 2_000
    assert kept_thresholds(times, 500).step == 500
    assert coarse_thresholds(times, 64).step > coarse_thresholds(times, 1).step
