"""Window assignment as Spark columns, the same windows as `spark_jobs.eventtime.windows` gives."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import (
    CalendarDayWindows,
    CumulativeWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.grid import RegularGrid, day_start, local_day_index

START = "window_start"
END = "window_end"


def latest_start(windows: WindowAssigner, time: Column | None = None) -> Column:
    """The last window start on the grid at or before `time`, or the event time (slide > size: perhaps of no window)."""
    ts = F.col(EVENT_TIME) if time is None else time
    match windows:
        case TumblingWindows(size, offset) | CumulativeWindows(size, _, offset):
            return RegularGrid(size, offset % size).floor(ts)
        case SlidingWindows(_, slide, offset):
            return RegularGrid(slide, offset % slide).floor(ts)
        case CalendarDayWindows():
            return day_start(windows, local_day_index(windows, ts))
        case _:
            raise TypeError(f"{type(windows).__name__} are merged, not assigned")


def latest_end(windows: WindowAssigner) -> Column:
    """The end of the last window that the event time is in; windows close in the order of their ends."""
    match windows:
        case TumblingWindows(size) | SlidingWindows(size) | CumulativeWindows(size):
            return latest_start(windows) + F.lit(size)
        case CalendarDayWindows():
            return day_start(windows, local_day_index(windows, F.col(EVENT_TIME)) + F.lit(1))
        case _:
            raise TypeError(f"{type(windows).__name__} are merged, not assigned")


def longest(windows: WindowAssigner) -> int:
    """The most milliseconds that one of these windows covers."""
    match windows:
        case CalendarDayWindows(_, days):
            return (days + 1) * 86_400_000
        case TumblingWindows(size) | SlidingWindows(size) | CumulativeWindows(size):
            return size
        case _:
            raise TypeError(f"{type(windows).__name__} have no longest window")


def assign_windows(records: DataFrame, windows: WindowAssigner) -> DataFrame:
    """One row for each (record, window), with `window_start` and `window_end` (BIGINT epoch ms)."""
    start = latest_start(windows)
    ts = F.col(EVENT_TIME)
    match windows:
        case TumblingWindows(size):
            assigned = records.withColumn(START, start)
            return assigned.withColumn(END, F.col(START) + F.lit(size))
        case SlidingWindows(size, slide):
            back = F.explode(F.lit([k * slide for k in range(-(-size // slide))]).cast("array<bigint>"))
            assigned = records.withColumn("_latest", start).withColumn("_back", back)
            assigned = assigned.withColumn(START, F.col("_latest") - F.col("_back")).drop("_latest", "_back")
            if size % slide or slide > size:
                assigned = assigned.where(F.col(START) > ts - F.lit(size))
            return assigned.withColumn(END, F.col(START) + F.lit(size))
        case CumulativeWindows(size, step):
            assigned = records.withColumn(START, start)
            first_end = ts - F.pmod(ts - F.col(START), F.lit(step)) + F.lit(step)
            ends = F.sequence(first_end, F.col(START) + F.lit(size), F.lit(step).cast("bigint"))
            return assigned.withColumn(END, F.explode(ends))
        case CalendarDayWindows():
            index = local_day_index(windows, ts)
            assigned = records.withColumn(START, day_start(windows, index))
            return assigned.withColumn(END, day_start(windows, index + F.lit(1)))
        case _:
            raise TypeError(f"{type(windows).__name__} are merged, not assigned")


def in_span(records: DataFrame, windows: WindowAssigner, span: TimeRange) -> DataFrame:
    """The records that can be in a window with a start in `span`."""
    ts = F.col(EVENT_TIME)
    return records.where((ts >= F.lit(span.start)) & (ts < F.lit(span.end + longest(windows))))
