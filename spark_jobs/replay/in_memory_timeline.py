"""A timeline that fits the driver's memory, as sorted arrays: numpy does in milliseconds what would be a Spark job."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class InMemoryTimeline:
    """`x_from`, ascending int64 of shape (n,), and C from there on: int64 of shape (n, 3)."""

    x_from: np.ndarray
    positions: np.ndarray

    @classmethod
    def of_table(cls, table: pa.Table) -> InMemoryTimeline:
        """Timeline rows in any order."""
        x_from = table.column("x_from").to_numpy()
        positions = _stacked(table, _PARTS)
        distinct, rank = _ranked(positions)
        return _running_maximum(x_from, rank, distinct)

    def at(self, x: np.ndarray) -> np.ndarray:
        """C of each of `x`: shape (len(x), 3). No `x` lies below the first step."""
        return self.positions[np.searchsorted(self.x_from, x, side="right") - 1]

    @property
    def never_from(self) -> int:
        """The first x that has not closed; every whole timeline ends with one."""
        return int(self.x_from[self.positions[:, 0] == NEVER][0])

    def to_bytes(self) -> bytes:
        """Compressed, for a later run; `from_bytes` reads it."""
        sink = pa.BufferOutputStream()
        table = self._table()
        with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(table)
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> InMemoryTimeline:
        """What `to_bytes` wrote."""
        return cls.of_table(pa.ipc.open_file(pa.py_buffer(data)).read_all())

    def below(self, first: int) -> InMemoryTimeline:
        """The steps below `first` alone."""
        mine = self.x_from < first
        return InMemoryTimeline(self.x_from[mine], self.positions[mine])

    def followed_by(self, later: InMemoryTimeline, first: int) -> InMemoryTimeline:
        """These steps below `first`, and the `later` ones from there on."""
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
                return spark.createDataFrame(self._table())
            finally:
                spark.conf.set(_LOCAL_THRESHOLD, before or "")

    def _table(self) -> pa.Table:
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
