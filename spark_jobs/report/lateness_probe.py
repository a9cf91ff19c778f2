"""What the advisor measures records with: the watermark just before each of them, and the bounds that it tries.

All generators except custom ones subtract a constant from the time that they follow. So the watermark with another
bound b is the one of this run, shifted by the difference: W_b = W + (B - b), B the configured bound. Therefore a record
at position r

    is behind the watermark       W(r) >= ts                        for the bounds b <= B + W(r) - ts
    finds its window closed       W(r) >= end - 1                   for the bounds b <= B + W(r) + 1 - end
    is dropped                    W(r) >= end - 1 + L               for b + L <= B + W(r) + 1 - end

with W(r) the watermark just before r. So one look-up for each record answers for every bound. Which records
are dropped depends only on the sum of bound and allowed lateness: the tolerance. The same holds of the delay of a
Structured Streaming query, and of the grace of a Kafka Streams application, with W the stream time of the record's own
partition, less the grace and 1 ms: there is no line over the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE, SECOND
from spark_jobs.eventtime.flink.suppliers import RecordTime
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER
from spark_jobs.replay.flink.making import TimelineMaker, restarted_timeline
from spark_jobs.replay.grid import EndGrid, RegularGrid, end_grid
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.staged_run import StagedRun
from spark_jobs.spark.cached import CachedFrames

MAX_COUNTED = 3_000_000
"""About how many records, the latest ones, are counted: the report must not cost more than the replay."""
RECONCILED_DAYS = 7
"""A nightly reconciliation counts only this many days of event time before its end, not its whole history."""

_MAX_POINTS = 150_000
_MAX_GROUPS = 250_000
_RESOLUTIONS = (
    *(1, 10, 100, 200, 500),
    *(s * SECOND for s in (1, 2, 5, 10, 15, 30)),
    *(m * MINUTE for m in (1, 2, 5, 15, 30)),
    *(h * HOUR for h in (1, 6)),
    *(d * DAY for d in (1, 7, 28)),
)
_TOLERANCES = (
    0,
    100,
    200,
    500,
    *(s * SECOND for s in (1, 2, 5, 10, 15, 20, 30, 45)),
    *(m * MINUTE for m in (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 45, 50)),
    *(m * MINUTE for m in (60, 75, 90, 105, 120, 150, 180, 240, 300, 360, 480, 600, 720, 960)),
    *(d * DAY for d in (1, 1.5, 2, 3, 4, 5, 7, 10, 14)),
)


@dataclass(frozen=True)
class WatermarkSteps:
    """The watermark over the log: after position `positions[i]` (arrival, major, minor) it is `values[i]` (epoch ms).

    Both are int64 and ascending. The watermark is rounded down to the resolution.
    """

    values: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True)
class LatenessProbe:
    """What the records are measured with.

    `event_times`: the range of the records that are counted. `tolerances` (ms, ascending): those that are tried.
    `configured`: the definition's bound or lag; `dropped_at`: the definition's tolerance (None: no record is ever
    dropped). `resolution` (ms): the smallest difference between tolerances that can be seen. `exact`: whether a window
    counts as closed exactly when the engine closes it. `parameter`: `bound` or `lag`, of other engines `delay` or
    `grace`; None: a custom generator. `by_partition`: each partition has its own watermark, and `steps` is empty.
    """

    event_times: TimeRange
    tolerances: tuple[int, ...]
    configured: int
    dropped_at: int | None
    resolution: int
    exact: bool
    steps: WatermarkSteps
    parameter: str | None
    by_partition: bool = False


_NO_STEPS = WatermarkSteps(np.empty(0, np.int64), np.empty((0, 3), np.int64))


def find_probe(evidence: StagedRun, cache: CachedFrames) -> LatenessProbe:
    """The probe of a run. It takes one scan of the history, or a few where the watermark has idleness."""
    strategy, spec = evidence.spec.strategy, evidence.spec
    times = counted_times(evidence.plan, evidence.kind)
    configured = strategy.generator.tolerance
    lateness = spec.allowed_lateness
    reach = max(times.end, evidence.plan.processing_time_end) - times.start
    windows = spec.windows
    step = windows.end_step if isinstance(windows, AlignedWindows) else None
    most = _MAX_POINTS
    if estimated_records(evidence.plan, evidence.kind, times) > _MAX_GROUPS:  # limits the memory of the aggregation
        most = min(most, _MAX_GROUPS // max(1, len(strategy.partitions)))
    by_partition = spec.rules.closes_by_partition
    resolution = 1 if by_partition else _resolution(reach, max(most, 1), step)
    offset = windows.end_phase
    tried = {int(t) for t in _TOLERANCES if t % resolution == 0 and t <= reach + resolution}
    tried |= {configured}
    dropped_at = None if lateness == MAX_TIMESTAMP else configured + lateness
    if dropped_at is not None:
        tried.add(dropped_at)
    tolerances = tuple(sorted(tried))
    exact = step is not None and step % resolution == 0
    parameter = evidence.pipeline.tolerance or strategy.generator.tolerance_parameter
    if by_partition:
        return LatenessProbe(
            times, tolerances, configured, dropped_at, resolution, exact, _NO_STEPS, parameter, by_partition=True
        )
    # The watermark values that decide: `end - 1 + tolerance - configured`, for ends on the windows' grid.
    phases = sorted({(offset + t - configured) % resolution for t in tolerances})
    grids = [RegularGrid(resolution, phase) for phase in phases]
    timeline = _fine_timeline(evidence, grids, times.start - configured - resolution, cache)
    low = times.start - configured - resolution
    high = max(times.end, evidence.plan.processing_time_end) + resolution
    return LatenessProbe(
        times,
        tolerances,
        configured,
        dropped_at,
        resolution,
        exact,
        _steps(timeline, grids, low, high),
        parameter,
    )


def end_grid_or_none(windows: AnyWindows) -> EndGrid | None:
    """The grid of window ends; sessions have none."""
    return end_grid(windows) if isinstance(windows, AlignedWindows) else None


def estimated_records(plan: Plan, kind: RunKind, times: TimeRange) -> int:
    """About how many records have these event times, if they are spread evenly over those of the history."""
    most = plan.history_records if kind == RunKind.RECONCILE else plan.records
    whole = max(1, plan.event_times.end - plan.event_times.start)
    return int(most * min(1.0, (times.end - times.start) / whole))


def counted_times(plan: Plan, kind: RunKind) -> TimeRange:
    """The event times (epoch ms) of the records that are counted: the latest ones, where all would be too many.

    A record that is ahead of the clock, by mistake, is not taken for the latest: one of the year 2100 would be the only
    one that is counted.
    """
    start, end = max(plan.span.start, plan.event_times.start), min(plan.span.end, plan.event_times.end)
    latest = min(end, plan.processing_time_end + 1) if plan.processing_time_end > start else end
    if kind == RunKind.RECONCILE and latest - start > RECONCILED_DAYS * DAY:
        start, end = latest - RECONCILED_DAYS * DAY, latest
    estimated = estimated_records(plan, kind, TimeRange(start, max(end, start + 1)))
    if estimated > MAX_COUNTED:  # the latest records are the best guide to those to come
        start, end = latest - int((latest - start) * MAX_COUNTED / estimated), latest
    return TimeRange(start, max(end, start + 1))


def _resolution(reach: int, most: int, step: int | None) -> int:
    """The finest resolution with at most `most` points; one that divides the windows' step if there is one."""
    fine = [r for r in _RESOLUTIONS if reach / r <= most] or [reach // most + 1]
    if step is not None:
        dividing = [r for r in fine if step % r == 0]
        if dividing:
            return dividing[0]
        if step >= fine[0]:
            return fine[0]
        if reach / step <= most:
            return step
    return fine[0]


def _fine_timeline(evidence: StagedRun, grids: Sequence[RegularGrid], low: int, cache: CachedFrames) -> Timeline:
    """The run's timeline with thresholds on these grids.

    Of a watermark that is a plain maximum, records that cannot move it to `low` or beyond are left out.
    """
    strategy = evidence.spec.strategy
    if evidence.timeline is None:
        raise ValueError("a run that computed complete values only has no timeline")
    if evidence.spec.rules.knows_every_step or not grids:
        return evidence.timeline

    def floor(value: Column, shift: int) -> Column:
        floors = [grid.floor(value, shift + 1) for grid in grids]
        return F.greatest(*floors) if len(floors) > 1 else floors[0]

    records, maximum = evidence.records, strategy.running_maximum
    if strategy.is_invertible and maximum is not None:
        time = ARRIVAL if maximum.time is RecordTime.ARRIVAL else EVENT_TIME
        records = records.where(F.col(time) >= F.lit(low))
    end = evidence.plan.processing_time_end
    maker = TimelineMaker(strategy, evidence.plan.event_times, cache)

    def make(life: DataFrame, until: int) -> Timeline:
        return maker.timeline(life, Thresholds(floor), until)

    if evidence.spec.restarts:
        return restarted_timeline(records, evidence.spec.restarts, end, make, cache)
    return make(records, end)


def _steps(timeline: Timeline, grids: Sequence[RegularGrid], low: int, high: int) -> WatermarkSteps:
    values, positions = [], []
    for grid in grids:
        first = grid.first_index_at_or_after(low)
        count = grid.first_index_at_or_after(high) - first + 1
        values.append(grid.ends(first, count) - 1)
        positions.append(timeline.close_arrays(grid, first, count).positions)
    x, at = np.concatenate(values), np.concatenate(positions)
    order = np.argsort(x, kind="stable")
    x, at = x[order], at[order]
    comes = at[:, 0] < NEVER
    x, at = x[comes], at[comes]
    if len(x):
        last = np.append((at[1:] != at[:-1]).any(axis=1), True)
        x, at = x[last], at[last]
    return WatermarkSteps(x, at)
