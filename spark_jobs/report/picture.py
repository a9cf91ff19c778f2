"""The watermark picture: processing time across, event time up, the watermark's line, sampled records."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyspark.sql import DataFrame

from spark_jobs.eventtime.durations import DAY, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.report.classified_records import ClassifiedRecords, View
from spark_jobs.report.lateness import densest, late_points
from spark_jobs.report.lateness_probe import LatenessProbe, WatermarkSteps, end_grid_or_none
from spark_jobs.runs.work.staged_run import StagedRun

MAX_STEPS = 500
MAX_CLOSES = 200
LAG_CELLS = 180
MAX_STANDSTILLS = 5


def find_zoom(evidence: StagedRun, probe: LatenessProbe, late: DataFrame) -> TimeRange | None:
    """The arrivals that are worth a closer look: about 24 windows where most records were late; None: all fit."""
    times = probe.event_times
    reach = times.end - times.start
    step = evidence.spec.windows.usual_step
    length = min(max(24 * step, 10 * MINUTE, reach // 2000), 7 * DAY if step < DAY else 24 * step)
    if reach <= 2 * length:
        return None
    return densest(late, length, times.end)


def watermark_facts(
    evidence: StagedRun, probe: LatenessProbe, classified: ClassifiedRecords, late: DataFrame, zoom: TimeRange | None
) -> dict[str, Any]:
    """`overview`, and `zoom` where the range is long.

    Each holds `line` [arrival, watermark], `lag` (see `lag_of`), `closes` [arrival, window end] and the sampled records
    `on_time`, `behind` (behind the watermark, window still open) and `late` (dropped), each [arrival, event time].

    `standstills`: the longest times during which the watermark stood still. `idle`: how often a partition was idle
    (`count`), and the longest of these times (`longest`, [partition, from, to]); null where the definition knows none.
    """
    steps = probe.steps
    whole = TimeRange(classified.arrivals.start, classified.arrivals.end + 1)
    return {
        "resolution": probe.resolution,
        "by_partition": probe.by_partition,
        "overview": _view(evidence, probe, whole, classified.overview, late_points(late)),
        "zoom": None if zoom is None else _view(evidence, probe, zoom, classified.zoomed, late_points(late, zoom)),
        "standstills": _standstills(steps, whole),
        "idle": None if evidence.timeline is None else evidence.timeline.idle,
    }


def _view(
    evidence: StagedRun, probe: LatenessProbe, reach: TimeRange, sample: View, late: list[tuple[int, int]]
) -> dict[str, Any]:
    kept = [p for p in sample.points if not p.dropped]
    return {
        "from": reach.start,
        "to": reach.end,
        "line": line_of(probe.steps, reach),
        "lag": lag_of(probe.steps, reach),
        "closes": _closes(evidence, probe, reach),
        "on_time": sorted([p.arrival, p.event_time] for p in kept if not p.behind),
        "behind": sorted([p.arrival, p.event_time] for p in kept if p.behind),
        "late": [list(pair) for pair in late],
        "one_in": sample.one_in,
    }


def line_of(steps: WatermarkSteps, reach: TimeRange, most: int = MAX_STEPS) -> list[list[int]]:
    """The watermark as steps [arrival, value] over `reach`, at most `most`: the last in each stretch of time."""
    arrivals = steps.positions[:, 0] if len(steps.values) else np.empty(0, dtype=np.int64)
    before = int(np.searchsorted(arrivals, reach.start, side="right")) - 1
    stop = int(np.searchsorted(arrivals, reach.end, side="left"))
    line = [[reach.start, int(steps.values[before])]] if before >= 0 else []
    inside = np.arange(before + 1, stop)
    if len(inside):
        cell = (arrivals[inside] - reach.start) * (most - 2) // max(1, reach.end - reach.start)
        last = np.append(cell[1:] != cell[:-1], True)
        chosen = inside[last]
        line += [[int(arrivals[i]), int(steps.values[i])] for i in chosen]
    if line:
        line.append([reach.end, line[-1][1]])
    return line


def lag_of(steps: WatermarkSteps, reach: TimeRange, cells: int = LAG_CELLS) -> list[list[int]]:
    """[from, to, least, most]: how far the watermark stood behind processing time in equal stretches of `reach` (ms).

    It lags most just before a step and least just after one. Stretches before the first watermark are left out.
    """
    if not len(steps.values):
        return []
    arrivals, values = steps.positions[:, 0], steps.values
    width = -(-(reach.end - reach.start) // cells)
    edges = np.arange(reach.start, reach.end, width, dtype=np.int64)
    stops = np.minimum(edges + width, reach.end)
    first = np.searchsorted(arrivals, edges, side="right")
    last = np.searchsorted(arrivals, stops, side="left")
    lag = []
    for start, stop, i, j in zip(edges.tolist(), stops.tolist(), first.tolist(), last.tolist(), strict=True):
        own = slice(max(i - 1, 0), j)
        if own.start >= own.stop:
            continue
        begins = np.maximum(arrivals[own], start)
        ends = np.append(begins[1:], stop)
        lag.append([start, stop, int((begins - values[own]).min()), int((ends - values[own]).max())])
    return lag


def _closes(evidence: StagedRun, probe: LatenessProbe, reach: TimeRange) -> list[list[int]]:
    """[arrival, end] of windows that the watermark closed in `reach`; evenly thinned out where they are many."""
    grid, values = end_grid_or_none(evidence.spec.windows), probe.steps.values
    if grid is None or not len(values):
        return []
    line = line_of(probe.steps, reach)
    if not line:
        return []
    low, high = line[0][1], line[-1][1]
    first = grid.first_index_at_or_after(low + 2)
    count = grid.first_index_at_or_after(high + 2) - first
    if count <= 0:
        return []
    numbers = np.arange(count)[:: -(-count // MAX_CLOSES)]
    ends = np.array([int(grid.ends(first + int(i), 1)[0]) for i in numbers])
    at = np.searchsorted(values, ends - 1, side="left")
    return [
        [int(probe.steps.positions[i, 0]), int(end)]
        for i, end in zip(at, ends, strict=True)
        if i < len(values) and reach.start <= probe.steps.positions[i, 0] < reach.end
    ]


def _standstills(steps: WatermarkSteps, reach: TimeRange) -> list[dict[str, int]]:
    if not len(steps.values):
        return []
    arrivals = steps.positions[:, 0]
    inside = (arrivals >= reach.start) & (arrivals < reach.end)
    at, values = arrivals[inside], steps.values[inside]
    if not len(at):
        return []
    pauses = np.diff(np.append(at, reach.end))
    longest = np.argsort(-pauses, kind="stable")[:MAX_STANDSTILLS]
    return [
        {"from": int(at[i]), "to": int(at[i] + pauses[i]), "watermark": int(values[i])}
        for i in longest
        if pauses[i] > 0
    ]
