"""Window assignment as Spark columns, the same windows as `spark_jobs.eventtime.windows` gives."""

from __future__ import annotations

from collections.abc import Iterable
from zoneinfo import ZoneInfo

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import HOUR
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, WallClockWindows, changes_clocks, disorder
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.intervals import CalendarInterval
from spark_jobs.eventtime.windows import (
    AlignedWindows,
    AnySessionWindows,
    AnyWindows,
    CalendarDayWindows,
    CalendarSessionWindows,
    CumulativeWindows,
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)
from spark_jobs.replay.columns import EVENT_TIME, GAP, INSTANT, is_within
from spark_jobs.replay.grid import day_start, local_day_index, start_of
from spark_jobs.spark.conditions import any_of

START = "window_start"
END = "window_end"


def latest_start(windows: AlignedWindows, time: Column | None = None) -> Column:
    """The last window start on the grid at or before `time`, or the event time (slide > size: perhaps of no window)."""
    return start_of(windows, F.col(EVENT_TIME) if time is None else time)


def latest_end(windows: AlignedWindows) -> Column:
    """The end of the last window that the event time is in; windows close in the order of their ends."""
    if isinstance(windows, CalendarDayWindows):
        return day_start(windows, local_day_index(windows, F.col(EVENT_TIME)) + F.lit(1))
    return latest_start(windows) + F.lit(windows.longest)


def end_after(windows: AlignedWindows, start: Column) -> Column | None:
    """The end of the window that starts at `start`; None where several windows share a start."""
    if isinstance(windows, CalendarDayWindows):
        return day_start(windows, local_day_index(windows, start) + F.lit(1))
    return None if windows.fixed_length is None else start + F.lit(windows.fixed_length)


def start_before(windows: AlignedWindows, end: Column) -> Column:
    """The start of the window that ends at `end`."""
    if windows.fixed_length is not None:
        return end - F.lit(windows.fixed_length)
    return start_of(windows, end - F.lit(1))


def session_gap(windows: AnySessionWindows, records: DataFrame) -> Column:
    """The gap of each record's own session (ms)."""
    match windows:
        case SessionWindows(gap):
            return F.lit(gap)
        case DynamicSessionWindows(gap_expression):
            return F.col(GAP) if GAP in records.columns else F.expr(gap_expression).cast("bigint")
        case CalendarSessionWindows(gap, zone):
            return after_interval(F.col(EVENT_TIME), gap, zone.key) - F.col(EVENT_TIME)


def assign_windows(records: DataFrame, windows: AlignedWindows) -> DataFrame:
    """One row for each (record, window), with `window_start` and `window_end` (BIGINT epoch ms).

    Of windows in a wall clock's time the records' event time is in that time too: see `in_window_time`.
    """
    start = latest_start(windows)
    ts = F.col(EVENT_TIME)
    match windows:
        case WallClockWindows(inner):
            return assign_windows(records, inner)
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
            raise TypeError(f"no Spark assignment for {type(windows).__name__}")


def windows_of_each(windows: AlignedWindows, span: TimeRange | None) -> Column:
    """How many windows with a start in `span` (None: any) a record with an event time is in."""
    start, ts = latest_start(windows), F.col(EVENT_TIME)

    def is_chosen(begin: Column) -> Column:
        return F.lit(True) if span is None else is_within(begin, span)

    match windows:
        case WallClockWindows(inner):
            return windows_of_each(inner, span)
        case SlidingWindows(size, slide):
            backs = F.lit([k * slide for k in range(-(-size // slide))]).cast("array<bigint>")
            return F.size(F.filter(backs, lambda back: (start - back > ts - F.lit(size)) & is_chosen(start - back)))
        case CumulativeWindows(size, step):
            ends = F.lit(size // step) - F.floor((ts - start) / F.lit(step))
            return F.when(is_chosen(start), ends).otherwise(0)
        case _:
            return F.when(is_chosen(start), 1).otherwise(0)


def in_window_time(records: DataFrame, windows: AnyWindows) -> DataFrame:
    """The records with the event time as the windows count it; the instant is kept where that is another one."""
    if not isinstance(windows, WallClockWindows | WallClockSessions) or INSTANT in records.columns:
        return records
    return records.withColumns({INSTANT: F.col(EVENT_TIME), EVENT_TIME: shown_time(F.col(EVENT_TIME), windows.zone)})


def shown_time(instant: Column, zone: ZoneInfo) -> Column:
    """What the zone's clocks show at an instant (epoch ms), in ms as if it were UTC."""
    return F.unix_millis(F.from_utc_timestamp(F.timestamp_millis(instant), zone.key))


def closing(windows: AnyWindows, end: Column) -> Column:
    """The watermark (epoch ms) that closes a window with this end, which is in the windows' own time."""
    last = end - F.lit(1)
    if not isinstance(windows, WallClockWindows | WallClockSessions):
        return last

    def instant(shown: Column) -> Column:
        return F.unix_millis(F.to_utc_timestamp(F.timestamp_millis(shown), windows.zone.key))

    first, an_hour_later = instant(last), instant(last + F.lit(HOUR))
    if not changes_clocks(windows.zone):
        return first
    comes_twice = an_hour_later - first > F.lit(HOUR)
    is_skipped = first == an_hour_later
    of_change = F.when(is_skipped, first - F.pmod(first, F.lit(HOUR)))
    return of_change.when(comes_twice, first + F.lit(HOUR)).otherwise(first)


def out_of_order(windows: AnyWindows) -> int:
    """A window closes at most this much (ms) before one that ends earlier."""
    return disorder(windows.zone) if isinstance(windows, WallClockWindows | WallClockSessions) else 0


def in_instants(records: DataFrame) -> DataFrame:
    """The records with their event time as the history has it."""
    if INSTANT not in records.columns:
        return records
    return records.withColumn(EVENT_TIME, F.col(INSTANT)).drop(INSTANT)


def in_span(records: DataFrame, windows: AlignedWindows, span: TimeRange) -> DataFrame:
    """The records that can be in a window with a start in `span`."""
    return in_spans(records, windows, [span])


def in_spans(records: DataFrame, windows: AlignedWindows, spans: Iterable[TimeRange]) -> DataFrame:
    """The records that can be in a window with a start in one of `spans`."""
    ts = F.col(EVENT_TIME)
    inside = ((ts >= F.lit(span.start)) & (ts < F.lit(span.end + windows.longest)) for span in spans)
    return records.where(any_of(inside))


def after_interval(time: Column, interval: CalendarInterval, zone: str) -> Column:
    """The instant (epoch ms, BIGINT) this much after `time` (epoch ms), by the calendar of the zone.

    Spark adds by the calendar of its session's zone, which is UTC here: local times of the zone are added to as if they
    were of UTC.
    """
    moment = F.timestamp_millis(time)
    for amount, unit in ((interval.months, "MONTH"), (interval.days, "DAY")):
        if amount:
            moment = _moved(moment, F.expr(f"INTERVAL '{amount}' {unit}"), zone)
    return F.unix_millis(F.timestamp_micros(F.unix_micros(moment) + F.lit(interval.micros)))


def _moved(moment: Column, interval: Column, zone: str) -> Column:
    """As Java resolves it: of a local time that comes twice the one with the offset before, if it has that one."""
    local = F.from_utc_timestamp(moment, zone)
    moved = local + interval
    offset = F.unix_micros(local) - F.unix_micros(moment)
    unchanged = F.timestamp_micros(F.unix_micros(moved) - offset)
    return F.when(F.from_utc_timestamp(unchanged, zone) == moved, unchanged).otherwise(F.to_utc_timestamp(moved, zone))
