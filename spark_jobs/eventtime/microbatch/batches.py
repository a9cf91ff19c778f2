"""The micro-batches of a query: which one has read a record, and which watermarks it ran with (Spark rules 1 to 8, 15).

A batch reads what lies between the ends of the batch before it and its own. The first batch that a checkpoint still has
begins where `sources/I/0` says, if it is batch 0; otherwise nobody knows where it begins, and what it read is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from spark_jobs.eventtime.microbatch.checkpoint import (
    Checkpoint,
    FileOffset,
    KafkaOffsets,
    OffsetLogEntry,
    SourceOffset,
)

INITIAL_WATERMARK: Final = 0
"""The watermark before batch 0, and the least that there is (Spark rule 8)."""


class BatchKind(StrEnum):
    """What a batch of the log is.

    `committed`: its rows are out. `pending`: planned, and its commit is not there; the next start runs it again, and
    whether its rows are out already is not known (Spark rule 5). `control`: it repartitions the state and runs no
    query. `skipped`: it was planned and never will be run; later batches read its records.
    """

    COMMITTED = "committed"
    PENDING = "pending"
    CONTROL = "control"
    SKIPPED = "skipped"

    @property
    def runs(self) -> bool:
        """Whether the query runs in it, so that it reads records and gives rows."""
        return self in (BatchKind.COMMITTED, BatchKind.PENDING)


@dataclass(frozen=True, slots=True)
class Batch:
    """One micro-batch. Times in epoch ms.

    `watermark` is what windows come out by; `watermark_before` is the one of the batch before it in the log, by which
    late records are found (Spark rule 15).
    """

    number: int
    kind: BatchKind
    timestamp: int
    watermark: int
    watermark_before: int

    def late_watermark(self, *, allow_multiple: bool) -> int:
        """The watermark that late records are found by: without `allowMultiple` the batch's own (Spark rule 16)."""
        return self.watermark_before if allow_multiple else self.watermark


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic that one source reads."""

    source: str
    topic: str
    number: int

    def end_in(self, offset: SourceOffset | None) -> int:
        """The offset at which the partition ends (exclusive) in an offset of its source; 0 where it is not there."""
        return offset.ends.get(self.topic, {}).get(self.number, 0) if isinstance(offset, KafkaOffsets) else 0


@dataclass(frozen=True, slots=True)
class OffsetRanges:
    """Which batch has read an offset of one partition: batch `numbers[i]` those from `starts[i]` up to `ends[i]`.

    All are ascending; empty ranges are left out.
    """

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    numbers: tuple[int, ...]

    def batch_of(self, offset: int) -> int | None:
        """The number of the batch that has read this offset; None: no batch of the log has."""
        at = bisect_right(self.ends, offset)
        return self.numbers[at] if at < len(self.ends) and offset >= self.starts[at] else None


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a checkpoint, ascending by number, and what each has read.

    `missing` are numbers between the first and the last that the checkpoint does not have. `complete_from_start` says
    whether batch 0 is there; otherwise what its first batch has read is not known.
    """

    batches: tuple[Batch, ...]
    ranges: Mapping[Partition, OffsetRanges]
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    missing: tuple[int, ...] = ()
    complete_from_start: bool = True

    @property
    def running(self) -> tuple[Batch, ...]:
        """The batches in which the query runs."""
        return tuple(batch for batch in self.batches if batch.kind.runs)

    @property
    def pending(self) -> Batch | None:
        """The batch that was planned and not committed: at most the last one."""
        last = self.batches[-1] if self.batches else None
        return last if last is not None and last.kind is BatchKind.PENDING else None

    def batch_of_offset(self, source: str, topic: str | None, partition: int, offset: int) -> int | None:
        """The batch that has read this record of a Kafka source; `topic` None: the only one of the source."""
        for place in (p for p in self.ranges if p.source == source and p.number == partition):
            if topic is None or place.topic == topic:
                return self.ranges[place].batch_of(offset)
        return None


def batches_of(checkpoint: Checkpoint) -> Batches:
    """The batches of a checkpoint."""
    entries = list(checkpoint.offsets.values())
    kinds = _kinds(checkpoint, entries)
    before = INITIAL_WATERMARK
    batches: list[Batch] = []
    for entry, kind in zip(entries, kinds, strict=True):
        known = entry.batch == 0 or (batches and batches[-1].number == entry.batch - 1)
        previous = checkpoint.offsets.get(entry.batch - 1)
        before = previous.watermark if previous is not None else (INITIAL_WATERMARK if known else entry.watermark)
        batches.append(Batch(entry.batch, kind, entry.timestamp, entry.watermark, before))
    numbers = [entry.batch for entry in entries]
    return Batches(
        tuple(batches),
        _offset_ranges(checkpoint, entries, kinds),
        _file_batches(checkpoint, entries, kinds),
        tuple(sorted(set(range(numbers[0], numbers[-1] + 1)) - set(numbers))) if numbers else (),
        complete_from_start=bool(numbers) and numbers[0] == 0,
    )


def _kinds(checkpoint: Checkpoint, entries: list[OffsetLogEntry]) -> list[BatchKind]:
    kinds = [
        BatchKind.COMMITTED if entry.batch in checkpoint.commits or i + 1 < len(entries) else BatchKind.PENDING
        for i, entry in enumerate(entries)
    ]
    for i in range(1, len(entries)):
        entry, previous = entries[i], entries[i - 1]
        if entry.batch != previous.batch + 1 or entry.shuffle_partitions == previous.shuffle_partitions:
            continue
        if entry.shuffle_partitions is None or previous.shuffle_partitions is None:
            continue
        # A repartition copies the offsets of the last batch that was committed; those between are never run.
        kinds[i] = BatchKind.CONTROL
        for j in range(i - 1, -1, -1):
            same = (entries[j].watermark, entries[j].timestamp) == (entry.watermark, entry.timestamp)
            if same and entries[j].offsets == entry.offsets:
                for skipped in range(j + 1, i):
                    kinds[skipped] = BatchKind.SKIPPED
                break
    return kinds


def _offset_ranges(
    checkpoint: Checkpoint, entries: list[OffsetLogEntry], kinds: list[BatchKind]
) -> dict[Partition, OffsetRanges]:
    read: dict[Partition, list[tuple[int, int, int]]] = {}
    reached: dict[Partition, int] = {}
    last = -1
    for entry, kind in zip(entries, kinds, strict=True):
        follows = entry.batch == last + 1
        last = entry.batch
        if not follows:
            reached.clear()
        if not kind.runs:
            continue
        for place, end in _ends(entry):
            # Where the batch before is not there, nobody knows where this one begins.
            # A new partition begins at its first offset (Spark rule 2).
            unknown = place.end_in(checkpoint.first_offsets.get(place.source)) if follows else end
            start = reached.get(place, unknown)
            ranges = read.setdefault(place, [])
            if end > start:
                ranges.append((start, end, entry.batch))
            reached[place] = max(start, end)
    return {
        place: OffsetRanges(
            tuple(start for start, _, _ in ranges),
            tuple(end for _, end, _ in ranges),
            tuple(number for _, _, number in ranges),
        )
        for place, ranges in read.items()
    }


def _ends(entry: OffsetLogEntry) -> Iterator[tuple[Partition, int]]:
    for source, offset in entry.offsets.items():
        if isinstance(offset, KafkaOffsets):
            for topic, ends in offset.ends.items():
                for number, end in ends.items():
                    yield Partition(source, topic, number), end


def _file_batches(
    checkpoint: Checkpoint, entries: list[OffsetLogEntry], kinds: list[BatchKind]
) -> dict[str, dict[str, int]]:
    """The batch that has read each file, by source and path: the first one whose offset is at or after its entry."""
    found: dict[str, dict[str, int]] = {}
    for source, files in checkpoint.files.items():
        of_source = found.setdefault(source, {})
        reached = last = -1
        batch_of_entry: dict[int, int] = {}
        for entry, kind in zip(entries, kinds, strict=True):
            offset = entry.offsets.get(source)
            follows, last = entry.batch == last + 1, entry.batch
            if not kind.runs or not isinstance(offset, FileOffset) or offset.entry <= reached:
                continue
            if follows:
                batch_of_entry.update(dict.fromkeys(range(reached + 1, offset.entry + 1), entry.batch))
            reached = offset.entry
        for file in files:
            if file.entry in batch_of_entry:
                of_source[file.path] = batch_of_entry[file.entry]
    return found
