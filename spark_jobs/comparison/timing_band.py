"""When the live job's own clock decided: the band around each close, and the lags that its rows give away."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import FIRST_AT, Emitted, live_of
from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.grid import end_grid
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import MAX_GRID_POINTS, Timeline


def source_subtasks(pipeline: Pipeline) -> int:
    """How many subtasks of the live job read the log."""
    return live_of(pipeline).source_subtasks or len(pipeline.watermark.subtasks or (0,))


def declared_band(pipeline: Pipeline) -> Band:
    """The band that the definition alone gives: one emission interval (periodic) and the margin to each side.

    With several source subtasks also the buffer timeout, with idleness a second interval. A lag is a row later
    than its close, one interval and `lag_after`.
    """
    live = live_of(pipeline)
    interval = live.interval if live.interval is not None else pipeline.watermark.interval
    buffered = live.buffer_timeout if source_subtasks(pipeline) > 1 else 0
    watermark = pipeline.watermark
    waits = interval if watermark.emission == "periodic" or watermark.idleness else 0
    if watermark.idleness:
        # Real ticks are a little longer than the interval: with a timeout of whole intervals, idleness is noticed one
        # tick earlier than exact ticks would.
        waits += interval
    lags = tuple(TimeRange(lag.start, lag.end) for lag in live.lags)
    slack = interval + live.lag_after + buffered
    # What was in the log before the job's timer started, it read as a backlog: one partition far ahead of another.
    backlog = (watermark.timer_start or 0) + interval if watermark.emission == "periodic" else 0
    return Band(waits + live.margin + buffered, slack, merged(lags), backlog_until=backlog)


def detected_band(pipeline: Pipeline, spec: ReplaySpec, timeline: Timeline, emitted: Emitted) -> Band:
    """The band with the lags that `emitted_at` shows: one row for each window end comes to the driver."""
    band = declared_band(pipeline)
    if not emitted.has_emission_time or isinstance(spec.windows, SessionWindows):
        return band
    table = emitted.rows.groupBy(END).agg(F.min(FIRST_AT).alias("at")).where("at IS NOT NULL").toArrow()
    ends, at = (table.column(name).to_numpy() for name in (END, "at"))
    order = np.argsort(ends)
    ends, at = ends[order], at[order]
    closes = closes_of(timeline, spec, ends, 0)[:, 0]
    behind = (closes > 0) & (closes < NEVER) & (at > closes + band.slack)
    lags = merged([*band.lags, *(TimeRange(int(a), int(b)) for a, b in zip(closes[behind], at[behind], strict=True))])
    # With an allowed lateness a window's contents are decided at C(x + L), not when it first came out.
    emissions = (ends, at) if spec.allowed_lateness == 0 else band.emissions
    return replace(band, lags=lags, emissions=emissions)


def closes_of(timeline: Timeline, spec: ReplaySpec, ends: np.ndarray, shift: int) -> np.ndarray:
    """C(end - 1 + shift) of some window ends (ascending): int64, shape (ends, 3)."""
    if not len(ends):
        return np.empty((0, 3), np.int64)
    grid = end_grid(spec.windows)
    first = grid.first_index_at_or_after(int(ends[0]))
    last = grid.first_index_at_or_after(int(ends[-1]))
    found = np.full((len(ends), 3), NEVER, np.int64)
    for begin in range(first, last + 1, MAX_GRID_POINTS):
        count = min(MAX_GRID_POINTS, last + 1 - begin)
        arrays = timeline.close_arrays(grid, begin, count, shift=shift)
        asked = grid.ends(begin, count)
        place = np.searchsorted(asked, ends)
        inside = (place < count) & (asked[np.minimum(place, count - 1)] == ends)
        found[inside] = arrays.positions[place[inside]]
    return found


def open_from(timeline: Timeline, shift: int) -> int:
    """The first window end of which C(end - 1 + shift) had not come at the as-of vector.

    Ends close in ascending order, so from there on none has.
    """
    if shift == MAX_TIMESTAMP:
        return -MAX_TIMESTAMP
    return min(timeline.never_from + 1, MAX_TIMESTAMP) - shift


def merged(lags: Iterable[TimeRange]) -> tuple[TimeRange, ...]:
    """Spans in order, those that overlap or touch made one."""
    result: list[TimeRange] = []
    for lag in sorted(lags, key=lambda lag: lag.start):
        if result and lag.start <= result[-1].end:
            result[-1] = TimeRange(result[-1].start, max(result[-1].end, lag.end))
        else:
            result.append(lag)
    return tuple(result)
