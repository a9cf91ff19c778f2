"""The micro-batches of a live query as arrays: what each has read, when, and with which watermarks.

A batch's *time* stands for its records' arrival: the moment at which it was planned, and later than that of the batch
before it. So positions, closes and timelines are those of every other engine, with the batch's time as the arrival.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.microbatch.batches import INITIAL_WATERMARK, Batch, BatchLog, OffsetRanges
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, NEVER, OFFSET, PARTITION
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.range_lookup import joined_to_ranges

LATE_WATERMARK = "rw_late_watermark"
"""The watermark by which a record's batch finds late records (in the unit of the event times)."""


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

    def time_from(self, number: int) -> int:
        """The time of the first batch with this number or a higher one; `NEVER`: there is none yet."""
        at = int(np.searchsorted(self.numbers, number))
        return int(self.times[at]) if at < len(self.times) else NEVER

    @property
    def last_watermark(self) -> int:
        """The watermark of the last batch; the initial one where there is no batch."""
        return int(self.watermark[-1]) if len(self.watermark) else INITIAL_WATERMARK

    def numbers_by_time(self) -> Mapping[int, int]:
        """The number of the batch that has a time."""
        return dict(zip(self.times.tolist(), self.numbers.tolist(), strict=True))


def _ascending(times: np.ndarray) -> np.ndarray:
    """The times, each at least 1 ms after the one before: a clock can stand still, or be set back."""
    order = np.arange(len(times))
    return np.maximum.accumulate(times - order) + order


def _distinct(x_from: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The last of several steps at one x."""
    last = np.append(x_from[1:] != x_from[:-1], True)
    return x_from[last], positions[last]
