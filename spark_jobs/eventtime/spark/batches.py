"""The micro-batches of a query: which one has read a record, and which watermarks it ran with (Spark rules 1 to 8, 15).

A batch reads what lies between the ends of the batch before it and its own. The first batch that a checkpoint still has
begins where `sources/I/0` says, if it is batch 0; otherwise nobody knows where it begins, and what it read is unknown.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, overload

import numpy as np
import numpy.typing as npt

from spark_jobs.eventtime.spark.checkpoint import Checkpoint
from spark_jobs.eventtime.spark.logs import ABSENT, Column, Partition

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


KINDS: Final = tuple(BatchKind)


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


@dataclass(frozen=True, eq=False)
class BatchLog(Sequence[Batch]):
    """Batches ascending by number, as columns of one length; a `Batch` is made where one is asked for.

    `kinds` are places in `KINDS`.
    """

    numbers: Column
    kinds: Column
    timestamps: Column
    watermarks: Column
    watermarks_before: Column

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> BatchLog:
        """The log of these batches."""
        rows = [(b.number, KINDS.index(b.kind), b.timestamp, b.watermark, b.watermark_before) for b in batches]
        table = np.array(rows, dtype=np.int64).reshape(-1, 5)
        return cls(*(table[:, i] for i in range(5)))

    @overload
    def __getitem__(self, row: int) -> Batch: ...
    @overload
    def __getitem__(self, row: slice) -> BatchLog: ...
    def __getitem__(self, row: int | slice) -> Batch | BatchLog:
        if isinstance(row, slice):
            return self._at(row)
        kind = KINDS[int(self.kinds[row])]
        columns = (self.timestamps, self.watermarks, self.watermarks_before)
        return Batch(int(self.numbers[row]), kind, *(int(column[row]) for column in columns))

    def __len__(self) -> int:
        return len(self.numbers)

    def where(self, chosen: npt.NDArray[np.bool_]) -> BatchLog:
        """The batches at which `chosen` is true."""
        return self._at(chosen)

    def of_kind(self, *kinds: BatchKind) -> BatchLog:
        """The batches of these kinds."""
        return self.where(np.isin(self.kinds, [KINDS.index(kind) for kind in kinds]))

    def _at(self, chosen: npt.NDArray[np.bool_] | slice) -> BatchLog:
        columns = (self.numbers, self.kinds, self.timestamps, self.watermarks, self.watermarks_before)
        return BatchLog(*(column[chosen] for column in columns))


@dataclass(frozen=True, eq=False)
class OffsetRanges:
    """Which batch has read an offset of one partition: batch `numbers[i]` those from `starts[i]` up to `ends[i]`.

    All are ascending; empty ranges are left out.
    """

    starts: Column
    ends: Column
    numbers: Column

    @classmethod
    def of(cls, starts: Sequence[int], ends: Sequence[int], numbers: Sequence[int]) -> OffsetRanges:
        """The ranges of these numbers."""
        return cls(*(np.array(values, dtype=np.int64) for values in (starts, ends, numbers)))

    def batch_of(self, offset: int) -> int | None:
        """The number of the batch that has read this offset; None: no batch of the log has."""
        at = bisect_right(self.ends, offset)
        return int(self.numbers[at]) if at < len(self.ends) and offset >= self.starts[at] else None

    def end_at(self, batch: int) -> int:
        """The offset at which the batches up to this one, inclusive, end (exclusive); 0: they have read nothing."""
        read = int(np.searchsorted(self.numbers, batch, side="right"))
        return int(self.ends[read - 1]) if read else 0

    def first_beyond(self, offset: int) -> int | None:
        """The number of the first batch that has read something at or above this offset; None: none has."""
        at = int(np.searchsorted(self.ends, offset, side="right"))
        return int(self.numbers[at]) if at < len(self.ends) else None

    def up_to(self, batch: int) -> OffsetRanges:
        """What the batches up to this one, inclusive, have read."""
        read = int(np.searchsorted(self.numbers, batch, side="right"))
        return OffsetRanges(self.starts[:read], self.ends[:read], self.numbers[:read])


@dataclass(frozen=True, slots=True)
class Batches:
    """The batches of a checkpoint, ascending by number, and what each has read.

    `missing` are the numbers that the checkpoint does not have, in ranges: from 0 to its first batch, and between two.
    Where a batch is missing, what the one after it has read is not known.
    """

    batches: BatchLog
    ranges: Mapping[Partition, OffsetRanges]
    files: Mapping[str, Mapping[str, int]] = field(default_factory=dict[str, Mapping[str, int]])
    missing: tuple[range, ...] = ()

    @property
    def running(self) -> BatchLog:
        """The batches in which the query runs."""
        return self.batches.of_kind(BatchKind.COMMITTED, BatchKind.PENDING)

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
    log = checkpoint.offsets
    follows = np.diff(log.numbers, prepend=-1) == 1  # the batch before is there, too; true for batch 0
    kinds = _kinds(checkpoint, follows)
    before = np.concatenate(([INITIAL_WATERMARK], log.watermarks[:-1])) if len(log) else log.watermarks
    known = np.where(follows, before, log.watermarks)  # what nobody has kept did not move it, as far as is known
    batches = BatchLog(log.numbers, kinds, log.timestamps, log.watermarks, known)
    runs = np.isin(kinds, [KINDS.index(kind) for kind in KINDS if kind.runs])
    gaps = np.flatnonzero(~follows)
    return Batches(
        batches,
        _offset_ranges(checkpoint, follows, runs),
        _file_batches(checkpoint, follows, runs),
        tuple(range(int(log.numbers[at - 1]) + 1 if at else 0, int(log.numbers[at])) for at in gaps.tolist()),
    )


def _kinds(checkpoint: Checkpoint, follows: npt.NDArray[np.bool_]) -> Column:
    log = checkpoint.offsets
    kinds = np.full(len(log), KINDS.index(BatchKind.COMMITTED), dtype=np.int64)
    if len(log) and int(log.numbers[-1]) not in checkpoint.commits:
        kinds[-1] = KINDS.index(BatchKind.PENDING)
    shuffle = log.setting("spark.sql.shuffle.partitions")
    changed = (shuffle[1:] != shuffle[:-1]) & (shuffle[1:] != ABSENT) & (shuffle[:-1] != ABSENT) & follows[1:]
    for i in (np.flatnonzero(changed) + 1).tolist():
        # A repartition copies the offsets of the last batch that was committed; those between are never run.
        kinds[i] = KINDS.index(BatchKind.CONTROL)
        alike = (log.watermarks[:i] == log.watermarks[i]) & (log.timestamps[:i] == log.timestamps[i])
        offsets = log[int(log.numbers[i])].offsets
        for j in np.flatnonzero(alike)[::-1].tolist():
            if log[int(log.numbers[j])].offsets == offsets:
                kinds[j + 1 : i] = KINDS.index(BatchKind.SKIPPED)
                break
    return kinds


def _offset_ranges(
    checkpoint: Checkpoint, follows: npt.NDArray[np.bool_], runs: npt.NDArray[np.bool_]
) -> dict[Partition, OffsetRanges]:
    log = checkpoint.offsets
    life = np.cumsum(~follows)
    found: dict[Partition, OffsetRanges] = {}
    for place, ends in log.ends.items():
        rows = np.flatnonzero(runs & (ends != ABSENT))
        # A new partition begins at its first offset (Spark rule 2).
        first = place.end_in(checkpoint.first_offsets.get(place.source))
        starts, reached = np.empty(len(rows), dtype=np.int64), ends[rows]
        for gap in np.unique(life[rows]).tolist():
            own = np.flatnonzero(life[rows] == gap)
            # Where the batch before is not there, nobody knows where this one begins.
            begins = first if follows[rows[own[0]]] else int(reached[own[0]])
            most = np.maximum.accumulate(np.concatenate(([begins], reached[own])))
            starts[own], reached[own] = most[:-1], most[1:]
        read = ends[rows] > starts
        if len(rows):
            found[place] = OffsetRanges(starts[read], reached[read], log.numbers[rows][read])
    return found


def _file_batches(
    checkpoint: Checkpoint, follows: npt.NDArray[np.bool_], runs: npt.NDArray[np.bool_]
) -> dict[str, dict[str, int]]:
    """The batch that has read each file, by source and path: the first one whose offset is at or after its entry."""
    log = checkpoint.offsets
    found: dict[str, dict[str, int]] = {}
    for source, files in checkpoint.files.items():
        entries = np.where(runs, log.entries.get(source, ABSENT), ABSENT)
        moves = np.flatnonzero(np.diff(np.maximum.accumulate(entries), prepend=ABSENT))
        at = np.searchsorted(entries[moves], np.array([file.entry for file in files], dtype=np.int64))
        found[source] = {
            file.path: int(log.numbers[moves[i]])
            for file, i in zip(files, at.tolist(), strict=True)
            if i < len(moves) and follows[moves[i]]
        }
    return found
