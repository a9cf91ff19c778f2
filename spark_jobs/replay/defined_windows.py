"""The windows of a definition. This module imports no Spark: it is read where DAGs are parsed."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from spark_jobs.definition import Pipeline
from spark_jobs.definition.watermark import Watermark
from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, WallClockWindows
from spark_jobs.eventtime.windows import (
    AlignedWindows,
    AnyWindows,
    CalendarDayWindows,
    CalendarSessionWindows,
    CumulativeWindows,
    DynamicSessionWindows,
    RegularWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)


def windows_of(pipeline: Pipeline) -> AnyWindows:
    """The windows that the definition describes."""
    windows = _as_instants(pipeline)
    zone = None if pipeline.flink_sql is None else pipeline.flink_sql.time_zone
    if zone is not None and isinstance(windows, SessionWindows):
        return WallClockSessions(windows.gap, ZoneInfo(zone))
    if zone is None or not isinstance(windows, RegularWindows):
        return windows
    return WallClockWindows(windows, ZoneInfo(zone))


def slices_of(pipeline: Pipeline) -> Slices | None:
    """The slices in which subtasks of a Flink SQL job hold records back; None: they hold none."""
    section = pipeline.flink_sql
    return None if section is None or not section.is_in_two_phases(pipeline.window) else _sliced(pipeline)


def losing_slices_of(pipeline: Pipeline) -> Slices | None:
    """The slices in which Flink's window operator gathers records where it can lose some; None: it loses none."""
    slices = _sliced(pipeline)
    return slices if slices is not None and slices.may_lose else None


def holds_back(pipeline: Pipeline) -> bool:
    """Whether records of a Flink SQL job wait in a buffer that decides whether they are counted."""
    is_split = slices_of(pipeline) is not None and len(pipeline.watermark.subtasks or ()) > 1
    return is_split or losing_slices_of(pipeline) is not None


def lost_by_flink(pipeline: Pipeline) -> str:
    """Why the live job itself loses records, as a sentence; empty: it loses none."""
    slices = _sliced(pipeline)
    if slices is None or not slices.why_lost:
        return ""
    return f"{slices.why_lost}: it loses records that came after its last checkpoint before a close"


def _sliced(pipeline: Pipeline) -> Slices | None:
    """The slices of a table function's windows; None: the job has none."""
    section, watermark, windows = pipeline.flink_sql, pipeline.watermark, windows_of(pipeline)
    if section is None or section.windows == "group_by" or not isinstance(watermark, Watermark):
        return None
    if isinstance(windows, CalendarDayWindows):
        windows = WallClockWindows(TumblingWindows(windows.days * DAY, windows.offset), windows.time_zone)
    if not isinstance(windows, RegularWindows | WallClockWindows):
        return None
    return Slices.of(windows, flushes_by_offset=watermark.is_since_2)


def _as_instants(pipeline: Pipeline) -> AnyWindows:
    window = pipeline.window
    match window.type:
        case "tumbling" if window.time_zone:
            return CalendarDayWindows(ZoneInfo(window.time_zone), window.size // DAY, window.offset)
        case "tumbling":
            return TumblingWindows(window.size, window.offset)
        case "sliding":
            return SlidingWindows(window.size, window.slide, window.offset)
        case "cumulative":
            return CumulativeWindows(window.size, window.step, window.offset)
        case "hopping":
            return SlidingWindows(window.size, window.advance)
        case "between_events":  # they follow the records, as sessions do
            return SessionWindows(window.time_difference)
        case "session" if window.gap_expression is not None:
            return DynamicSessionWindows(window.gap_expression)
        case "session" if window.time_zone is not None:
            return CalendarSessionWindows(window.calendar_gap, ZoneInfo(window.time_zone))
        case "session":
            return SessionWindows(window.fixed_gap)


def fields_without_effect(pipeline: Pipeline) -> tuple[str, ...]:
    """A sentence about each field of `live:` that does nothing beside others, or beside windows of this kind."""
    return tuple(f"{what}: {mend}" for what, mend in without_effect(pipeline))


def without_effect(pipeline: Pipeline) -> list[tuple[str, str]]:
    """Fields of `live:` without an effect: what has none and why, and what to do."""
    windows = windows_of(pipeline)
    lives = pipeline.live if isinstance(pipeline.live, tuple) else (pipeline.live,)
    late_outputs = [live for live in lives if live is not None and live.late_output is not None]
    if late_outputs and not (isinstance(windows, AlignedWindows) and windows.assigns_one):
        why = (
            "a late side output names records, not windows, and with "
            f"{pipeline.window.type} windows a record can be late for one window and in time for another"
        )
        return [(f"live.late_output has no effect: {why}", "leave it out")]
    if any(live.last_offsets is not None for live in late_outputs):
        why = "a row's offsets say which records it was made of"
        return [(f"live.late_output has no effect beside live.last_offsets: {why}", "leave one of them out")]
    return []
