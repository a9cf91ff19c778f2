"""The slices of a run's range: along the windows' grid, and only where records are."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows, RegularWindows
from spark_jobs.replay.assign import START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.grid import divided, end_grid
from spark_jobs.replay.timeline import MAX_GRID_POINTS
from spark_jobs.sources.records.decode import REASON

_CELLS_OF_A_CHUNK = 8
"""Records are looked for in cells of the time; so many of them make the longest chunk."""


def grid_points(windows: AlignedWindows, span: TimeRange) -> int:
    """How many window ends a range of starts can have."""
    grid = end_grid(windows)
    return grid.first_index_at_or_after(span.end) - grid.first_index_at_or_after(span.start) + 1


def chunks_of(
    windows: AnyWindows,
    work: TimeRange,
    least: int | None = None,
    records: DataFrame | None = None,
    *,
    looked_up: int = 1,
) -> tuple[TimeRange, ...]:
    """Slices along the windows' grid, at least `least`, and none with too many closes to look up.

    Where the range has more ends than one slice may have, slices are made only where `records` have windows (None:
    everywhere): canonical records, or windows with their `window_start` (epoch ms). One aggregation finds that out.
    `looked_up`: how many closes each window end has. Sessions have no grid: they are one slice.
    """
    most = max(1, MAX_GRID_POINTS // looked_up)
    if not isinstance(windows, AlignedWindows):
        return (work,)
    points = grid_points(windows, work)
    if records is None or points <= most or not isinstance(windows, RegularWindows):
        return _sliced(windows, work, least, most)
    cells = _occupied(windows, work, records, most)
    if not cells:
        return (TimeRange(work.start, min(work.end, work.start + windows.end_step)),)
    packed = _packed(windows, cells, most)
    share = -(-(least or 1) // len(packed))
    return tuple(itertools.chain.from_iterable(_sliced(windows, part, share, most) for part in packed))


def gaps_between(work: TimeRange, chunks: Sequence[TimeRange]) -> tuple[TimeRange, ...]:
    """What of the range no chunk holds: no record has a window there."""
    edges = [work.start, *(edge for chunk in chunks for edge in (chunk.start, chunk.end)), work.end]
    pairs = zip(edges[::2], edges[1::2], strict=True)
    return tuple(TimeRange(start, end) for start, end in pairs if start < end)


def _sliced(windows: AlignedWindows, work: TimeRange, least: int | None, most: int) -> tuple[TimeRange, ...]:
    grid, points = end_grid(windows), grid_points(windows, work)
    count = max(least or 1, -(-points // most))
    count = min(count, points)
    first = grid.first_index_at_or_after(work.start)
    # Window starts lie on the grid of ends moved by the size; a cut at any instant is right, each window has one start.
    cuts = [int(grid.ends(first + i * points // count, 1)[0]) for i in range(1, count)]
    cuts = sorted({c for c in cuts if work.start < c < work.end})
    edges = [work.start, *cuts, work.end]
    return tuple(TimeRange(a, b) for a, b in itertools.pairwise(edges))


def _occupied(windows: RegularWindows, work: TimeRange, records: DataFrame, most: int) -> list[TimeRange]:
    """The ranges of starts that may have windows, in order; each lies within `work` and has few ends."""
    length = windows.end_step * max(1, most // _CELLS_OF_A_CHUNK)
    if REASON in records.columns:
        records = records.where(F.col(REASON).isNull())
    time, before = _start_of(windows, records)
    cell = divided(time - F.lit(work.start), length).alias("cell")
    numbers = sorted(row[0] for row in records.select(cell).where("cell IS NOT NULL").distinct().collect())
    found = []
    for number in numbers:
        start = max(work.start, work.start + number * length - before)
        end = min(work.end, work.start + (number + 1) * length)
        if start < end:
            found.append(TimeRange(start, end))
    return found


def _start_of(windows: RegularWindows, records: DataFrame) -> tuple[Column, int]:
    """An instant of each row, and how long before it a window of the row can begin."""
    return (F.col(START), 0) if START in records.columns else (F.col(EVENT_TIME), windows.longest)


def _packed(windows: RegularWindows, cells: Sequence[TimeRange], most: int) -> list[TimeRange]:
    """Neighbouring cells in one slice, with the gaps between them, as long as it has few ends."""
    packed: list[TimeRange] = []
    for cell in cells:
        if packed and cell.end <= packed[-1].end:
            continue
        if packed and grid_points(windows, TimeRange(packed[-1].start, cell.end)) <= most:
            packed[-1] = TimeRange(packed[-1].start, cell.end)
        else:
            start = max(cell.start, packed[-1].end) if packed else cell.start
            packed.append(TimeRange(start, cell.end))
    return packed
