"""A timeline that fits the driver's memory, as sorted arrays: numpy does in milliseconds what would be a Spark job."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER

SCHEMA = "x_from BIGINT, arrival BIGINT, major BIGINT, minor BIGINT"
"""The rows of a timeline; see `spark_jobs.replay.timeline`."""

MAX_IN_MEMORY = 1_000_000
"""The most rows of a timeline that come to the driver at once; larger ones stay in Spark."""

_LOCAL_THRESHOLD = "spark.sql.execution.arrow.localRelationThreshold"
_THRESHOLD_IS_SET = threading.Lock()

_PARTS = ("arrival", "major", "minor")
_PARTITION, _TOGETHER, _SUBTASKS, _FLUSHES = "partition", -1, -2, -1_000_000


@dataclass(frozen=True, slots=True)
class InMemoryTimeline:
    """`x_from`, ascending int64 of shape (n,), and C from there on: int64 of shape (n, 3).

    `by_partition`: the same of each partition, where each has its own time; together the slowest one counts.
    `by_subtask`: the same of each source subtask, where its own watermark decides too; `flushes`: at which positions
    it hands on what it holds, as such a timeline from 0 on.
    """

    x_from: np.ndarray
    positions: np.ndarray
    by_partition: Mapping[int, InMemoryTimeline] = field(default_factory=dict[int, "InMemoryTimeline"])
    by_subtask: Mapping[int, InMemoryTimeline] = field(default_factory=dict[int, "InMemoryTimeline"])
    flushes: Mapping[int, InMemoryTimeline] = field(default_factory=dict[int, "InMemoryTimeline"])

    @classmethod
    def of_table(cls, table: pa.Table) -> InMemoryTimeline:
        """Timeline rows in any order."""
        x_from = table.column("x_from").to_numpy()
        positions = _stacked(table, _PARTS)
        distinct, rank = _ranked(positions)
        return _running_maximum(x_from, rank, distinct)

    @classmethod
    def of_partitions(cls, by_partition: Mapping[int, InMemoryTimeline]) -> InMemoryTimeline:
        """The timeline of partitions that each have their own time."""
        if not by_partition:
            return nothing_closed()
        x_from = np.unique(np.concatenate([own.x_from for own in by_partition.values()]))
        closes = np.concatenate([own.at(x_from) for own in by_partition.values()])
        positions, rank = _ranked(closes)
        slowest = rank.reshape(len(by_partition), len(x_from)).max(axis=0)
        together = _running_maximum(x_from, slowest, positions)
        return cls(together.x_from, together.positions, dict(by_partition))

    def at(self, x: np.ndarray) -> np.ndarray:
        """C of each of `x`: shape (len(x), 3). No `x` lies below the first step."""
        return self.positions[np.searchsorted(self.x_from, x, side="right") - 1]

    def last_until(self, until: np.ndarray) -> np.ndarray:
        """The last of the positions, which ascend, at or before each of `until` (n, 3); where none is, the lowest."""
        count = len(self.positions)
        _, rank = _ranked(np.concatenate([self.positions, until]))
        found = np.searchsorted(rank[:count], rank[count:]) - 1
        return np.where(found[:, None] < 0, MIN_TIMESTAMP, self.positions[found])

    @property
    def never_from(self) -> int:
        """The first x that has not closed; every whole timeline ends with one."""
        return int(self.x_from[self.positions[:, 0] == NEVER][0])

    def to_bytes(self) -> bytes:
        """Compressed, for a later run; `from_bytes` reads it."""
        sink = pa.BufferOutputStream()
        table = pa.concat_tables(
            timeline.as_table().append_column(_PARTITION, pa.array([number] * len(timeline.x_from), pa.int32()))
            for number, timeline in (
                (_TOGETHER, self),
                *self.by_partition.items(),
                *((_SUBTASKS - subtask, own) for subtask, own in self.by_subtask.items()),
                *((_FLUSHES - subtask, own) for subtask, own in self.flushes.items()),
            )
        )
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> InMemoryTimeline:
        """What `to_bytes` wrote."""
        table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
        own = table.column(_PARTITION).to_numpy()
        parts = {int(number): cls.of_table(table.filter(pa.array(own == number))) for number in np.unique(own)}
        together = parts.pop(_TOGETHER)
        return cls(
            together.x_from,
            together.positions,
            {number: own for number, own in parts.items() if number >= 0},
            {_SUBTASKS - number: own for number, own in parts.items() if _FLUSHES < number <= _SUBTASKS},
            {_FLUSHES - number: own for number, own in parts.items() if number <= _FLUSHES},
        )

    def below(self, first: int) -> InMemoryTimeline:
        """The steps below `first` alone."""
        mine = self.x_from < first
        return InMemoryTimeline(self.x_from[mine], self.positions[mine])

    def followed_by(self, later: InMemoryTimeline) -> InMemoryTimeline:
        """These steps as far as something has closed, and the `later` ones from there on."""
        if later.by_partition:
            known = self.by_partition
            return self.of_partitions(
                {p: known[p].followed_by(own) if p in known else own for p, own in later.by_partition.items()}
            )
        first = self.never_from
        mine, theirs = self.below(first), later.x_from > first
        at_first = later.at(np.array([first], dtype=np.int64))
        return InMemoryTimeline(
            np.concatenate((mine.x_from, [first], later.x_from[theirs])),
            np.concatenate((mine.positions, at_first, later.positions[theirs])),
        )

    def frame(self, spark: SparkSession) -> DataFrame:
        """The timeline's rows in Spark: a relation over an RDD, so that the values are not part of the plan."""
        with _THRESHOLD_IS_SET:  # the setting belongs to the session, so to all threads
            before = spark.conf.get(_LOCAL_THRESHOLD)
            spark.conf.set(_LOCAL_THRESHOLD, "0")
            try:
                return spark.createDataFrame(self.as_table())
            finally:
                spark.conf.set(_LOCAL_THRESHOLD, before or "")

    def as_table(self) -> pa.Table:
        """The steps together: `x_from, arrival, major, minor`."""
        return pa.table({"x_from": self.x_from, **{part: self.positions[:, i] for i, part in enumerate(_PARTS)}})


def inverted(firsts: pa.Table, generators: Sequence[Sequence[int]], never_from: int) -> InMemoryTimeline:
    """The steps of `firsts` (`partition, reached, close_arrival, close_major, close_minor`), any order.

    Per generator a suffix minimum over the thresholds, then the maximum over the generators. The watermark has not
    reached `never_from` and all above.
    """
    partition, reached = firsts.column("partition").to_numpy(), firsts.column("reached").to_numpy()
    positions, rank = _ranked(_stacked(firsts, [f"close_{part}" for part in _PARTS]))
    starts, ranks = [], []
    for group in generators:
        own = np.flatnonzero(np.isin(partition, group))
        own = own[np.argsort(reached[own], kind="stable")]
        thresholds, at = np.unique(reached[own], return_index=True)
        earliest = np.minimum.accumulate(rank[own][::-1])[::-1][at]
        starts.append(np.concatenate(([MIN_TIMESTAMP], thresholds[:-1] + 1))[: len(thresholds)])
        ranks.append(earliest)
    x_from = np.concatenate(starts) if starts else np.empty(0, dtype=np.int64)
    ranks = np.concatenate(ranks) if ranks else np.empty(0, dtype=np.int64)
    comes = x_from < never_from
    positions = np.concatenate((positions, np.full((1, 3), NEVER, dtype=np.int64)))
    x_from = np.concatenate((x_from[comes], [never_from])).astype(np.int64)
    return _running_maximum(x_from, np.concatenate((ranks[comes], [len(positions) - 1])), positions)


def nothing_closed() -> InMemoryTimeline:
    """The timeline of a partition without records."""
    never = np.full((1, len(_PARTS)), NEVER, dtype=np.int64)
    return InMemoryTimeline(np.array([MIN_TIMESTAMP], dtype=np.int64), never)


def _stacked(table: pa.Table, columns: Sequence[str]) -> np.ndarray:
    return np.stack([table.column(column).to_numpy() for column in columns], axis=1)


def _ranked(positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The positions sorted, and the place of each among them."""
    order = np.lexsort((positions[:, 2], positions[:, 1], positions[:, 0]))
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return positions[order], rank


def _running_maximum(x_from: np.ndarray, rank: np.ndarray, positions: np.ndarray) -> InMemoryTimeline:
    """The steps at which the largest position so far becomes another one; the rest say nothing new."""
    order = np.argsort(x_from, kind="stable")
    x_from, positions = x_from[order], positions[np.maximum.accumulate(rank[order])]
    is_last = np.ones(len(x_from), dtype=bool)
    is_last[:-1] = x_from[1:] != x_from[:-1]
    x_from, positions = x_from[is_last], positions[is_last]
    is_new = np.ones(len(x_from), dtype=bool)
    is_new[1:] = (positions[1:] != positions[:-1]).any(axis=1)
    return InMemoryTimeline(x_from[is_new], positions[is_new])
