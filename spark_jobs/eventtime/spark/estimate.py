"""Batches that nobody has kept, as they may have been: by when the records were appended, and the trigger's interval.

What a query has read at each tick of its trigger follows from the append times, and its watermark from what it has read
(Spark rules 7 to 14). Where a tick has no data and the watermark has moved, a batch without data runs (rule 22).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from spark_jobs.eventtime.spark.batches import INITIAL_WATERMARK, Batches
from spark_jobs.eventtime.spark.checkpoint import Checkpoint
from spark_jobs.eventtime.spark.logs import Column, KafkaOffsets, OffsetLog, OffsetLogEntry, Partition
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP

NO_TIME: Final = MIN_TIMESTAMP
"""In `Ticks.largest`: none of the records has an event time."""


@dataclass(frozen=True, slots=True)
class Ticks:
    """What there was to read at each tick that had records, ascending, as columns.

    `times`: epoch ms, multiples of the trigger's interval. `largest`: the largest event time since the tick before, or
    `NO_TIME`. `ends`: the end offset (exclusive) that each partition has reached.
    """

    times: Column
    largest: Column
    ends: Mapping[int, Column]


@dataclass(frozen=True, slots=True)
class Gap:
    """Batches `first` to `last` that nobody has kept, and those around them.

    `before` None: there is none, so that the gap begins with the query. `after` None: the query's end is lost, too;
    then `last` is None, since nobody knows how many there were.
    """

    first: int
    last: int | None
    before: OffsetLogEntry | None
    after: OffsetLogEntry | None


def gaps_of(checkpoint: Checkpoint, found: Batches) -> list[Gap]:
    """The gaps of a checkpoint, ascending; what is before its first batch is one, too."""
    log = checkpoint.offsets
    return [Gap(lost[0], lost[-1], log[lost[0] - 1] if lost[0] else None, log[lost[-1] + 1]) for lost in found.missing]


def with_batches(
    checkpoint: Checkpoint,
    gap: Gap,
    ticks: Ticks,
    source: str,
    topic: str,
    delay: int,
    interval: int,
    *,
    no_data_batches: bool = True,
) -> Checkpoint:
    """The checkpoint with batches in the place of a gap.

    Args:
        ticks: What there was to read between the batches around the gap.
        source, topic: What of the query reads the history.
        delay: That of `withWatermark`, ms.
        interval: That of the trigger, ms. Where the query has run fewer batches, a multiple of it is taken.
        no_data_batches: Whether a batch without data runs where a tick has none and the watermark has moved.
    """
    watermark = INITIAL_WATERMARK
    if gap.before is not None:
        commit = checkpoint.commits.get(gap.before.batch)
        watermark = gap.before.watermark if commit is None else commit.next_watermark
    made = _made(ticks, gap, watermark, delay, interval, no_data_batches)
    count = len(made.times) if gap.last is None else gap.last - gap.first + 1
    while len(made.times) > count and len(ticks.times) > 1:
        interval *= 2
        ticks = _joined(ticks, interval)
        made = _made(ticks, gap, watermark, delay, interval, no_data_batches)
    # Batches too many are left out at the beginning; where there are too few, the last ones have read nothing.
    rows = np.minimum(np.arange(count) + max(0, len(made.times) - count), len(made.times) - 1)
    start = _ends(gap.before, source, topic)
    ends = {number: np.full(count, end, dtype=np.int64) for number, end in start.items()}
    times = np.full(count, 0 if gap.after is None else gap.after.timestamp, dtype=np.int64)
    watermarks = np.full(count, watermark, dtype=np.int64)
    if len(made.times):
        ends |= {number: column[made.tick[rows]] for number, column in ticks.ends.items()}
        times = made.times[rows] if gap.after is None else np.minimum(made.times[rows], gap.after.timestamp)
        watermarks = made.watermarks[rows]
    log = OffsetLog(
        np.arange(gap.first, gap.first + count, dtype=np.int64),
        watermarks,
        times,
        np.zeros(count, dtype=np.int64),
        ({},),
        {source: np.ones(count, dtype=np.int64)},
        {Partition(source, topic, number): column for number, column in ends.items()},
    )
    return replace(checkpoint, offsets=checkpoint.offsets.then(log))


@dataclass(frozen=True, slots=True)
class _Made:
    """Batches as columns: when each runs, with which watermark, and the row of the tick up to which it has read."""

    times: Column
    watermarks: Column
    tick: Column


def _made(ticks: Ticks, gap: Gap, watermark: int, delay: int, interval: int, no_data_batches: bool) -> _Made:
    highest = MAX_TIMESTAMP if gap.after is None else max(watermark, gap.after.watermark)
    reached = np.where(ticks.largest == NO_TIME, watermark, np.minimum(ticks.largest - delay, highest))
    known = np.maximum.accumulate(np.concatenate(([watermark], reached)))
    before, moved = known[:-1], known[1:]
    end = MAX_TIMESTAMP if gap.after is None else gap.after.timestamp
    following = np.append(ticks.times[1:], end)[: len(ticks.times)]
    alone = no_data_batches & (moved > before) & (following > ticks.times + interval)
    tick = np.repeat(np.arange(len(ticks.times)), 1 + alone)
    without_data = np.diff(tick, prepend=-1) == 0
    return _Made(
        ticks.times[tick] + np.where(without_data, interval, 0),
        np.where(without_data, moved[tick], before[tick]),
        tick,
    )


def _joined(ticks: Ticks, interval: int) -> Ticks:
    """The ticks of a longer interval."""
    times = -(-ticks.times // interval) * interval
    first = np.flatnonzero(np.diff(times, prepend=times[0] - 1))
    last = np.append(first[1:], len(times)) - 1
    ends = {number: column[last] for number, column in ticks.ends.items()}
    return Ticks(times[last], np.maximum.reduceat(ticks.largest, first), ends)


def _ends(entry: OffsetLogEntry | None, source: str, topic: str) -> Mapping[int, int]:
    offset = None if entry is None else entry.offsets.get(source)
    return offset.ends.get(topic, {}) if isinstance(offset, KafkaOffsets) else {}
