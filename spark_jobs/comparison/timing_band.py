"""The timing band: the time around each close in which the log cannot say which records came in time.

It is wider while the live job lagged, which the emission times of its rows show.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, Emitted, live_of
from spark_jobs.definition import Pipeline
from spark_jobs.engines import live_engine
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import Band, merged
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.grid import end_grid
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import MAX_GRID_POINTS, Timeline


def detected_band(pipeline: Pipeline, spec: ReplaySpec, timeline: Timeline, emitted: Emitted) -> Band:
    """The engine's band, with the lags that `emitted_at` shows. Collects one row for each window end to the driver."""
    engine = live_engine(pipeline)
    band = replace(engine.band(pipeline, live_of(pipeline)), wider=spec.rules.wider)
    if not emitted.has_emission_time or spec.has_sessions or not engine.shows_lags:
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
