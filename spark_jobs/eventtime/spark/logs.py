"""The offset log and the commit log of a checkpoint as columns: one row a batch.

An archive has the batches of months, and a run needs a few numbers of each. A document is made of a row where one is
asked for.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

E = TypeVar("E")
K = TypeVar("K")
Column = npt.NDArray[np.int64]
ABSENT: Final = -1
"""In a column: the batch has no such value."""


@dataclass(frozen=True, slots=True)
class KafkaOffsets:
    """The end offsets of a Kafka source, exclusive: by topic, then by partition."""

    ends: Mapping[str, Mapping[int, int]]

    def is_at_or_beyond(self, other: SourceOffset) -> bool:
        """Whether no partition that both have ends before the other's end."""
        assert isinstance(other, KafkaOffsets)
        return all(
            self.ends.get(topic, {}).get(number, end) >= end
            for topic, partitions in other.ends.items()
            for number, end in partitions.items()
        )


@dataclass(frozen=True, slots=True)
class FileOffset:
    """The offset of a file source: it has read all entries of its log up to this number, inclusive."""

    entry: int

    def is_at_or_beyond(self, other: SourceOffset) -> bool:
        """Whether it has read as many entries as the other."""
        assert isinstance(other, FileOffset)
        return self.entry >= other.entry


SourceOffset = KafkaOffsets | FileOffset


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
class OffsetLogEntry:
    """`offsets/N`: what batch N was planned to read, and the watermark that it runs with.

    `offsets` has one offset for each source, by its id: in version 1 the number of the line, from 0. None: the source
    had no data yet. `conf` holds the settings that Spark takes from the checkpoint at a restart. Times in epoch ms.
    """

    batch: int
    watermark: int
    timestamp: int
    offsets: Mapping[str, SourceOffset | None]
    conf: Mapping[str, str]

    @property
    def policy(self) -> str | None:
        """How the watermarks of several inputs are combined: `min` or `max`; None where the file does not say."""
        return self.conf.get("spark.sql.streaming.multipleWatermarkPolicy")


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """`commits/N`: batch N is done. `next_watermark` is the watermark of the batch after it (epoch ms)."""

    batch: int
    next_watermark: int


@dataclass(frozen=True, eq=False)
class _Log(Mapping[int, E]):
    """Entries by batch, ascending: `numbers` has the batches."""

    numbers: Column

    def _row(self, batch: int) -> int:
        """The row of a batch. Raises KeyError where it is not there."""
        row = int(np.searchsorted(self.numbers, batch))
        if row == len(self.numbers) or self.numbers[row] != batch:
            raise KeyError(batch)
        return row

    def __iter__(self) -> Iterator[int]:
        return (int(number) for number in self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


@dataclass(frozen=True, eq=False)
class OffsetLog(_Log[OffsetLogEntry]):
    """The entries of the offset log by batch, ascending. All columns are of one length; `ABSENT` where a value is not.

    `ends`: of each partition of Kafka sources. `entries`: of each file source. `there`: 1 where the source has a line.
    `conf`: which of `confs` the batch has; batches in a row share one.
    """

    watermarks: Column
    timestamps: Column
    conf: Column
    confs: tuple[Mapping[str, str], ...] = ()
    there: Mapping[str, Column] = field(default_factory=dict[str, Column])
    ends: Mapping[Partition, Column] = field(default_factory=dict[Partition, Column])
    entries: Mapping[str, Column] = field(default_factory=dict[str, Column])

    def __getitem__(self, batch: int) -> OffsetLogEntry:
        row = self._row(batch)
        return OffsetLogEntry(
            batch,
            int(self.watermarks[row]),
            int(self.timestamps[row]),
            {source: self._offset(source, row) for source, there in self.there.items() if there[row] != ABSENT},
            self.confs[int(self.conf[row])],
        )

    def _offset(self, source: str, row: int) -> SourceOffset | None:
        if source in self.entries and self.entries[source][row] != ABSENT:
            return FileOffset(int(self.entries[source][row]))
        ends: dict[str, dict[int, int]] = {}
        for place, column in self.ends.items():
            if place.source == source and column[row] != ABSENT:
                ends.setdefault(place.topic, {})[place.number] = int(column[row])
        return KafkaOffsets(ends) if ends else None

    def setting(self, name: str) -> Column:
        """A number for each value that the setting has, by batch; `ABSENT` where the entry does not say."""
        values = [conf.get(name) for conf in self.confs]
        distinct = list(dict.fromkeys(value for value in values if value is not None))
        codes = [ABSENT if value is None else distinct.index(value) for value in values]
        return np.array(codes or [ABSENT], dtype=np.int64)[self.conf]

    def below(self, number: int) -> OffsetLog:
        """The entries of the batches below this number."""
        to = int(np.searchsorted(self.numbers, number))
        return OffsetLog(
            self.numbers[:to],
            self.watermarks[:to],
            self.timestamps[:to],
            self.conf[:to],
            self.confs,
            {source: column[:to] for source, column in self.there.items()},
            {place: column[:to] for place, column in self.ends.items()},
            {source: column[:to] for source, column in self.entries.items()},
        )

    def then(self, other: OffsetLog) -> OffsetLog:
        """Both logs as one; of a batch that both have the other's entry counts."""
        both, sizes = np.concatenate, (len(self), len(other))
        numbers = both((self.numbers, other.numbers))
        rows = _last_of_each(numbers)
        return OffsetLog(
            numbers[rows],
            both((self.watermarks, other.watermarks))[rows],
            both((self.timestamps, other.timestamps))[rows],
            both((self.conf, other.conf + len(self.confs)))[rows],
            (*self.confs, *other.confs),
            _joined(self.there, other.there, sizes, rows),
            _joined(self.ends, other.ends, sizes, rows),
            _joined(self.entries, other.entries, sizes, rows),
        )


@dataclass(frozen=True, eq=False)
class CommitLog(_Log[CommitEntry]):
    """The entries of the commit log by batch, ascending, as columns."""

    next_watermarks: Column

    def __getitem__(self, batch: int) -> CommitEntry:
        return CommitEntry(batch, int(self.next_watermarks[self._row(batch)]))

    def below(self, number: int) -> CommitLog:
        """The entries of the batches below this number."""
        to = int(np.searchsorted(self.numbers, number))
        return CommitLog(self.numbers[:to], self.next_watermarks[:to])

    def then(self, other: CommitLog) -> CommitLog:
        """Both logs as one; of a batch that both have the other's entry counts."""
        numbers = np.concatenate((self.numbers, other.numbers))
        rows = _last_of_each(numbers)
        return CommitLog(numbers[rows], np.concatenate((self.next_watermarks, other.next_watermarks))[rows])


class CommitLogBuilder:
    """Makes a commit log of entries in any order; the last of one batch counts."""

    def __init__(self) -> None:
        self._numbers, self._watermarks = array("q"), array("q")

    def add(self, entry: CommitEntry) -> None:
        """Take one entry."""
        self._numbers.append(entry.batch)
        self._watermarks.append(entry.next_watermark)

    def log(self) -> CommitLog:
        """The log of the entries so far."""
        rows = _last_of_each(_column(self._numbers))
        return CommitLog(_column(self._numbers)[rows], _column(self._watermarks)[rows])


class OffsetLogBuilder:
    """Makes an offset log of entries in any order; the last of one batch counts."""

    def __init__(self) -> None:
        self._numbers, self._watermarks, self._timestamps, self._conf = (array("q") for _ in range(4))
        self._confs: dict[tuple[tuple[str, str], ...], int] = {}
        self._there: dict[str, _Sparse] = {}
        self._ends: dict[Partition, _Sparse] = {}
        self._entries: dict[str, _Sparse] = {}

    def add(self, entry: OffsetLogEntry) -> None:
        """Take one entry."""
        row = len(self._numbers)
        self._numbers.append(entry.batch)
        self._watermarks.append(entry.watermark)
        self._timestamps.append(entry.timestamp)
        self._conf.append(self._confs.setdefault(tuple(sorted(entry.conf.items())), len(self._confs)))
        for source, offset in entry.offsets.items():
            self._there.setdefault(source, _Sparse()).put(row, 1)
            if isinstance(offset, FileOffset):
                self._entries.setdefault(source, _Sparse()).put(row, offset.entry)
            elif offset is not None:
                for topic, partitions in offset.ends.items():
                    for number, end in partitions.items():
                        self._ends.setdefault(Partition(source, topic, number), _Sparse()).put(row, end)

    def log(self) -> OffsetLog:
        """The log of the entries so far."""
        count, rows = len(self._numbers), _last_of_each(_column(self._numbers))
        return OffsetLog(
            _column(self._numbers)[rows],
            _column(self._watermarks)[rows],
            _column(self._timestamps)[rows],
            _column(self._conf)[rows],
            tuple(dict(items) for items in self._confs),
            {source: values.column(count)[rows] for source, values in self._there.items()},
            {place: values.column(count)[rows] for place, values in self._ends.items()},
            {source: values.column(count)[rows] for source, values in self._entries.items()},
        )


class _Sparse:
    """A column that grows, and that not every row has a value of."""

    def __init__(self) -> None:
        self._rows, self._values = array("q"), array("q")

    def put(self, row: int, value: int) -> None:
        self._rows.append(row)
        self._values.append(value)

    def column(self, count: int) -> Column:
        found = np.full(count, ABSENT, dtype=np.int64)
        found[_column(self._rows)] = _column(self._values)
        return found


def _column(values: array[int]) -> Column:
    return np.frombuffer(values, dtype=np.int64) if values else np.empty(0, dtype=np.int64)


def _last_of_each(numbers: Column) -> Column:
    """The rows in the order of their numbers, of equal ones the last."""
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    return order[np.append(ascending[1:] != ascending[:-1], True)] if len(order) else order


def _joined(
    one: Mapping[K, Column], other: Mapping[K, Column], sizes: tuple[int, int], rows: Column
) -> dict[K, Column]:
    absent = [np.full(size, ABSENT, dtype=np.int64) for size in sizes]
    return {
        key: np.concatenate((one.get(key, absent[0]), other.get(key, absent[1])))[rows]
        for key in dict.fromkeys((*one, *other))
    }
