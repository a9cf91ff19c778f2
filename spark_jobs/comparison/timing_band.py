"""The timing band: the time around each close in which the log cannot say which records came in time.

It is wider while the live job lagged, which the emission times of its rows show.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, Emitted, live_of
from spark_jobs.definition import Pipeline
from spark_jobs.definition.engine import Engine
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.grid import end_grid
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import MAX_GRID_POINTS, Timeline


def source_subtasks(pipeline: Pipeline) -> int:
    """The number of source subtasks of the live job."""
    inputs = pipeline.inputs or (pipeline,)
    return live_of(pipeline).source_subtasks or sum(len(one.watermark.subtasks or (0,)) for one in inputs)


def declared_band(pipeline: Pipeline) -> Band:
    """The band by the definition alone: one emission interval (periodic watermarks) and the margin, to each side.

    Several source subtasks add the buffer timeout, idleness adds a second interval. The job lagged where a row was
    emitted later than its close plus one interval plus `lag_after`. Kafka Streams has no band: a task reads its
    partition in the order of the log, however late it is.
    """
    if pipeline.engine is Engine.SPARK:  # the checkpoint says which batch has read each record
        return Band(0, MAX_TIMESTAMP)
    if pipeline.engine is Engine.KAFKA_STREAMS:
        return Band(0, 0)
    live = live_of(pipeline)
    watermarks = [one.watermark for one in pipeline.inputs or (pipeline,)]
    interval = live.interval if live.interval is not None else max(watermark.interval for watermark in watermarks)
    buffered = live.buffer_timeout if source_subtasks(pipeline) > 1 else 0
    is_periodic = any(watermark.emission == "periodic" for watermark in watermarks)
    has_idleness = any(watermark.idleness for watermark in watermarks)
    waits = interval if is_periodic or has_idleness else 0
    if has_idleness:
        # Real timer ticks are a little longer than the interval. With a timeout of whole intervals, idleness is
        # therefore detected one tick earlier than with exact ticks.
        waits += interval
    lags = tuple(TimeRange(lag.start, lag.end) for lag in live.lags)
    slack = interval + live.lag_after + buffered
    # The job read what was in the log before its timer started as a backlog: one partition far ahead of another.
    start = max(watermark.timer_start or 0 for watermark in watermarks)
    backlog = start + interval if is_periodic else 0
    return Band(waits + live.margin + buffered, slack, merged(lags), backlog_until=backlog)


def detected_band(pipeline: Pipeline, spec: ReplaySpec, timeline: Timeline, emitted: Emitted) -> Band:
    """The declared band, with the lags that `emitted_at` shows. Collects one row for each window end to the driver."""
    band = replace(declared_band(pipeline), wider=spec.rules.wider)
    if not emitted.has_emission_time or spec.has_sessions or pipeline.engine is not Engine.FLINK:
        return band
    table = emitted.emissions.groupBy(END).agg(F.min(AT).alias("at")).where("at IS NOT NULL").toArrow()
    ends, at = (table.column(name).to_numpy() for name in (END, "at"))
    order = np.argsort(ends)
    ends, at = ends[order], at[order]
    closes = closes_of(timeline, spec, ends, 0)[:, 0]
    known = (closes > 0) & (closes < NEVER)
    behind = known & (at > closes + band.slack)
    lags = merged([*band.lags, *(TimeRange(int(a), int(b)) for a, b in zip(closes[behind], at[behind], strict=True))])
    # With an allowed lateness a window's contents are decided at C(x + L), not when it first came out.
    delays = (ends[known], np.maximum(at - closes, 0)[known])
    emissions = delays if spec.allowed_lateness == 0 else band.emissions
    return replace(band, lags=lags, emissions=emissions)


def closes_of(timeline: Timeline, spec: ReplaySpec, ends: np.ndarray, shift: int) -> np.ndarray:
    """The positions C(end - 1 + shift) of window ends (ascending, epoch ms): int64 (ends, 3); `NEVER`: not reached."""
    if not len(ends):
        return np.empty((0, 3), np.int64)
    grid = end_grid(spec.aligned_windows)
    first = grid.first_index_at_or_after(int(ends[0]))
    last = grid.first_index_at_or_after(int(ends[-1]))
    found = np.full((len(ends), 3), NEVER, np.int64)
    for begin in range(first, last + 1, MAX_GRID_POINTS):
        count = min(MAX_GRID_POINTS, last + 1 - begin)
        arrays = timeline.close_arrays(grid, begin, count, shift=shift)
        wanted = grid.ends(begin, count)
        place = np.searchsorted(wanted, ends)
        inside = (place < count) & (wanted[np.minimum(place, count - 1)] == ends)
        found[inside] = arrays.positions[place[inside]]
    return found


def open_from(timeline: Timeline, spec: ReplaySpec, shift: int) -> int:
    """The first window end (epoch ms) whose C(end - 1 + shift) lies after the end offsets.

    Window ends close in ascending order, so no later one has closed either.
    """
    if shift == MAX_TIMESTAMP:
        return -MAX_TIMESTAMP
    if timeline.never_from in (MIN_TIMESTAMP, MAX_TIMESTAMP):
        return min(timeline.never_from + 1, MAX_TIMESTAMP) - shift
    return spec.windows.closed_until(timeline.never_from) + 1 - shift


_LAST = 253_370_764_800_000
"""The year 9999, as late as Python and Spark tell times (epoch ms)."""


def final_until(timeline: Timeline, spec: ReplaySpec) -> int:
    """The live job does not touch windows any more that end before this instant (epoch ms).

    The log has closed them and their allowed lateness; the end of a bounded input does not count.
    """
    return min(max(open_from(timeline, spec, spec.allowed_lateness), 0), _LAST)


def merged(lags: Iterable[TimeRange]) -> tuple[TimeRange, ...]:
    """The ranges in ascending order; those that overlap or touch are merged."""
    result: list[TimeRange] = []
    for lag in sorted(lags, key=lambda lag: lag.start):
        if result and lag.start <= result[-1].end:
            result[-1] = TimeRange(result[-1].start, max(result[-1].end, lag.end))
        else:
            result.append(lag)
    return tuple(result)
