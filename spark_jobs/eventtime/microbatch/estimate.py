"""Batches that nobody has kept, as they may have been: by when the records were appended, and the trigger's interval.

What a query has read at each tick of its trigger follows from the append times, and its watermark from what it has read
(Spark rules 7 to 14). Where a tick has no data and the watermark has moved, a batch without data runs (rule 22).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_jobs.eventtime.microbatch.checkpoint import Checkpoint, KafkaOffsets, OffsetLogEntry


@dataclass(frozen=True, slots=True)
class Tick:
    """What there was to read at one tick: the end offset (exclusive) of each partition, the largest event time.

    `time`: epoch ms, a multiple of the trigger's interval. `largest`: of the records since the tick before; None: none.
    """

    time: int
    ends: Mapping[int, int]
    largest: int | None


@dataclass(frozen=True, slots=True)
class Gap:
    """Batches `first` to `last` that nobody has kept, and the one after them; `before`: the one before, if any."""

    first: int
    last: int
    before: OffsetLogEntry | None
    after: OffsetLogEntry

    @property
    def count(self) -> int:
        """How many batches these are."""
        return self.last - self.first + 1


_NO_CONF: Final[Mapping[str, str]] = {}


def gaps_of(checkpoint: Checkpoint) -> list[Gap]:
    """The gaps of a checkpoint, ascending; what is before its first batch is one, too."""
    found: list[Gap] = []
    before: OffsetLogEntry | None = None
    for number, entry in checkpoint.offsets.items():
        first = 0 if before is None else before.batch + 1
        if number > first:
            found.append(Gap(first, number - 1, before, entry))
        before = entry
    return found


def with_batches(
    checkpoint: Checkpoint, gap: Gap, ticks: Sequence[Tick], source: str, topic: str, delay: int, interval: int
) -> Checkpoint:
    """The checkpoint with batches in the place of a gap.

    Args:
        ticks: What there was to read between the batches around the gap, ascending by time, where there was something.
        source, topic: What of the query reads the history.
        delay: That of `withWatermark`, ms.
        interval: That of the trigger, ms. Where the query has run fewer batches, a multiple of it is taken.
    """
    watermark = 0
    if gap.before is not None:
        commit = checkpoint.commits.get(gap.before.batch)
        watermark = gap.before.watermark if commit is None else commit.next_watermark
    made = _batches(ticks, gap, watermark, delay, interval)
    while len(made) > gap.count and len(ticks) > 1:
        interval *= 2
        ticks = _joined(ticks, interval)
        made = _batches(ticks, gap, watermark, delay, interval)
    made = made[-gap.count :]
    start = _ends(gap.before, source, topic)
    last = made[-1] if made else _Made(gap.after.timestamp, watermark, start)
    made += [last] * (gap.count - len(made))
    entries = {
        number: OffsetLogEntry(
            number,
            one.watermark,
            min(one.time, gap.after.timestamp),
            {source: KafkaOffsets({topic: {**start, **one.ends}})},
            _NO_CONF,
        )
        for number, one in enumerate(made, gap.first)
    }
    return replace(checkpoint, offsets=dict(sorted({**checkpoint.offsets, **entries}.items())))


@dataclass(frozen=True, slots=True)
class _Made:
    time: int
    watermark: int
    ends: Mapping[int, int]


def _batches(ticks: Sequence[Tick], gap: Gap, watermark: int, delay: int, interval: int) -> list[_Made]:
    made: list[_Made] = []
    for i, tick in enumerate(ticks):
        made.append(_Made(tick.time, watermark, tick.ends))
        moved = watermark if tick.largest is None else max(watermark, tick.largest - delay)
        moved = min(moved, max(watermark, gap.after.watermark))
        following = ticks[i + 1].time if i + 1 < len(ticks) else gap.after.timestamp
        if moved > watermark and following > tick.time + interval:
            made.append(_Made(tick.time + interval, moved, tick.ends))
        watermark = moved
    return made


def _joined(ticks: Sequence[Tick], interval: int) -> list[Tick]:
    """The ticks of a longer interval."""
    joined: dict[int, Tick] = {}
    for tick in ticks:
        time = -(-tick.time // interval) * interval
        known = joined.get(time)
        times = [t for t in (tick.largest, None if known is None else known.largest) if t is not None]
        joined[time] = Tick(time, tick.ends, max(times, default=None))
    return list(joined.values())


def _ends(entry: OffsetLogEntry | None, source: str, topic: str) -> Mapping[int, int]:
    offset = None if entry is None else entry.offsets.get(source)
    return offset.ends.get(topic, {}) if isinstance(offset, KafkaOffsets) else {}
