"""The micro-batches of a live query as arrays: what each has read, when, and with which watermarks.

A batch's *time* stands for its records' arrival: the moment at which it was planned, and later than that of the batch
before it. So positions, closes and timelines are those of every other engine, with the batch's time as the arrival.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.batches import INITIAL_WATERMARK, Batch, BatchLog, OffsetRanges
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, NEVER, OFFSET, PARTITION, long_arrays
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.range_lookup import joined_to_ranges

_MOST_NUMBER = 1 << 17
"""Of partitions: an array has a place for each number below. Inputs of a union have 10,000 numbers each."""
LATE_WATERMARK = "rw_late_watermark"
"""The watermark by which a record's batch finds late records (in the unit of the event times)."""


@dataclass(frozen=True)
class BatchCuts:
    """Which offsets of each partition the batches begin with; each partition is read in one range without a hole.

    Late watermarks ascend with the batches, so that the batches before one are those that take a window's records.

    `rows[i]` are the batches that have read something of `partitions[i]`, `starts[i]` their first offsets, `ends[i]`
    where the last of them ends (exclusive).
    """

    partitions: np.ndarray
    rows: Sequence[np.ndarray]
    starts: Sequence[np.ndarray]
    ends: np.ndarray

    def read(self, records: DataFrame) -> DataFrame:
        """The records that some batch has read."""
        first = np.array([starts[0] for starts in self.starts], dtype=np.int64)
        by_slot = long_arrays(records, {"first": first, "end": self.ends})
        below = F.col(OFFSET) < F.get(by_slot["end"], self._slot(records))
        return records.where(below & (F.col(OFFSET) >= F.get(by_slot["first"], self._slot(records))))

    def before(self, batches: np.ndarray, index: Column, records: DataFrame) -> Column:
        """Whether a batch before `batches[index]` has read the record."""
        offsets = [
            np.append(starts, MAX_TIMESTAMP)[np.searchsorted(rows, batches)]
            for rows, starts in zip(self.rows, self.starts, strict=True)
        ]
        cut = long_arrays(records, {"cut": np.concatenate(offsets)})["cut"]
        return F.col(OFFSET) < F.get(cut, self._slot(records) * F.lit(len(batches)) + index)

    def _slot(self, records: DataFrame) -> Column:
        """The place of the record's partition in the arrays."""
        count = len(self.partitions)
        if self.partitions[-1] == count - 1:
            return F.col(PARTITION)
        places = np.full(int(self.partitions[-1]) + 1, -1, dtype=np.int64)
        places[self.partitions] = np.arange(count)
        return F.get(long_arrays(records, {"slot": places})["slot"], F.col(PARTITION)).cast("int")


@dataclass(frozen=True)
class MicroBatches:
    """The batches that a query has run, ascending, as int64 arrays of one length.

    `late` and `watermark` are in the unit of the event times: late records are found by the first, windows come out by
    the second. `times` are epoch ms, each later than the one before. `pending`: the watermark of the batch after them
    that was planned and not committed; None: there is none. `estimated`: between which times (epoch ms) the batches are
    not the query's own, but by append times, one every `interval` (ms).
    """

    numbers: np.ndarray
    times: np.ndarray
    late: np.ndarray
    watermark: np.ndarray
    partition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    batch: np.ndarray
    pending: int | None = None
    estimated: tuple[TimeRange, ...] = ()
    interval: int = 0

    @classmethod
    def of(
        cls,
        batches: BatchLog,
        allow_multiple: bool | np.ndarray,
        ranges: Mapping[int, OffsetRanges],
        ticks_per_ms: int = 1,
        pending: Batch | None = None,
        estimated: tuple[TimeRange, ...] = (),
        interval: int = 0,
    ) -> MicroBatches:
        """From batches with their `allowMultiple`, and what they have read of each partition."""
        late = np.where(allow_multiple, batches.watermarks_before, batches.watermarks)
        read = [(np.full(len(one.ends), number), one.starts, one.ends, one.numbers) for number, one in ranges.items()]
        empty = np.empty(0, dtype=np.int64)
        return cls(
            batches.numbers,
            _ascending(batches.timestamps),
            late * ticks_per_ms,
            batches.watermarks * ticks_per_ms,
            *(np.concatenate(columns) for columns in zip(*read, strict=True)) if read else (empty,) * 4,
            pending=None if pending is None else pending.watermark * ticks_per_ms,
            estimated=estimated,
            interval=interval,
        )

    @cached_property
    def _row_of(self) -> np.ndarray:
        """The row of each range's batch."""
        return np.searchsorted(self.numbers, self.batch)

    def placed(self, records: DataFrame) -> DataFrame:
        """The records that some batch has read, with the batch's time as their arrival, and its late watermark."""
        payload = {"rw_batch_time": self.times[self._row_of], LATE_WATERMARK: self.late[self._row_of]}
        joined = joined_to_ranges(
            records.withColumn(PARTITION, F.col(PARTITION)),
            F.col(OFFSET),
            self.start,
            self.end,
            payload,
            group=F.col(PARTITION),
            groups=self.partition,
        )
        return joined.withColumn(ARRIVAL, F.col("rw_batch_time")).drop("rw_batch_time")

    @cached_property
    def cuts(self) -> BatchCuts | None:
        """By which offset the batches are told apart; None: by none, since they have read with holes."""
        row, order = self._row_of, np.lexsort((self.end, self.partition))
        partitions, first = np.unique(self.partition[order], return_index=True)
        starts, ends = self.start[order], self.end[order]
        follows = starts[1:] == ends[:-1]
        follows[first[1:] - 1] = True
        ascends = not np.any(np.diff(self.late) < 0)
        if not (len(partitions) and follows.all() and ascends) or partitions[-1] >= _MOST_NUMBER:
            return None
        bounds = [*first.tolist(), len(order)]
        own = [slice(a, b) for a, b in itertools.pairwise(bounds)]
        return BatchCuts(
            partitions, [row[order][one] for one in own], [starts[one] for one in own], ends[np.array(bounds[1:]) - 1]
        )

    def timeline(self) -> InMemoryTimeline:
        """C(x) for every x: the batch with which the windows come out whose last timestamp is x.

        A batch comes before its own close: its records can still enter what it lets out. Windows that end at or before
        the initial watermark are closed before the first batch (Spark rule 8).
        """
        before = np.concatenate(([INITIAL_WATERMARK], self.watermark[:-1]))
        moves = np.flatnonzero(self.watermark > before)
        at_first = int(self.times[0]) - 1 if len(self.times) else 0
        x_from = np.concatenate(([MIN_TIMESTAMP], before[moves], [self.last_watermark])).astype(np.int64)
        positions = np.full((len(x_from), 3), NEVER, dtype=np.int64)
        positions[0] = (at_first, -1, -1)
        positions[1:-1, 0] = self.times[moves]
        return InMemoryTimeline(*_distinct(x_from, positions))

    @property
    def last_number(self) -> int | None:
        """The number of the last batch; None: there is none."""
        return int(self.numbers[-1]) if len(self.numbers) else None

    @cached_property
    def digest(self) -> str:
        """What tells these batches from others: what each has read, when, and with which watermarks."""
        order = np.lexsort((self.start, self.partition))
        ranges = (column[order] for column in (self.partition, self.start, self.end, self.batch))
        columns = (self.numbers, self.times, self.late, self.watermark, *ranges)
        return sha256(b"".join(np.ascontiguousarray(c, dtype="<i8").tobytes() for c in columns)).hexdigest()[:16]

    def time_from(self, number: int) -> int:
        """The time of the first batch with this number or a higher one; `NEVER`: there is none yet."""
        at = int(np.searchsorted(self.numbers, number))
        return int(self.times[at]) if at < len(self.times) else NEVER

    @property
    def last_watermark(self) -> int:
        """The watermark of the last batch; the initial one where there is no batch."""
        return int(self.watermark[-1]) if len(self.watermark) else INITIAL_WATERMARK


def _ascending(times: np.ndarray) -> np.ndarray:
    """The times, each at least 1 ms after the one before: a clock can stand still, or be set back."""
    order = np.arange(len(times))
    return np.maximum.accumulate(times - order) + order


def _distinct(x_from: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last of several steps at one x."""
    last = np.append(x_from[1:] != x_from[:-1], True)
    return x_from[last], positions[last]
