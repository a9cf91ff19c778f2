"""The windows of a definition. This module imports no Spark: it is read where DAGs are parsed."""

from __future__ import annotations

from zoneinfo import ZoneInfo

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.windows import (
    AlignedWindows,
    AnyWindows,
    CalendarDayWindows,
    CalendarSessionWindows,
    CumulativeWindows,
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
)


def windows_of(pipeline: Pipeline) -> AnyWindows:
    """The windows that the definition describes."""
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
    """The same: what has no effect and why, and what to do."""
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
