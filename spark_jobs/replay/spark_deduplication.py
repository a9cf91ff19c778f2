"""Duplicates as Structured Streaming drops them (Spark rules 33 to 37)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.microbatch.deduplication import DeduplicationKind
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION
from spark_jobs.replay.deduplication import ENTRY, Closes, Deduplication, first_in_each_hold
from spark_jobs.replay.microbatches import LATE_WATERMARK, MicroBatches
from spark_jobs.replay.range_lookup import joined_to_ranges


@dataclass(frozen=True)
class SparkDeduplication(Deduplication):
    """`delays`: from each batch time on, how long an id is held.

    `delays` has (batch time, delay) ascending, in the unit of the event times; an id keeps the delay it came with.
    """

    kind: DeduplicationKind
    by: tuple[str, ...]
    delays: tuple[tuple[int, int], ...]
    batches: MicroBatches

    def ids(self) -> list[Column]:
        ids = [F.expr(text) for text in self.by]
        return [*ids, F.col(EVENT_TIME)] if self.kind is DeduplicationKind.ID_AND_TIME else ids

    def entries(self, records: DataFrame, closes: Closes | None) -> DataFrame:
        """Late is a record with `ts <= W`. An id goes at the end of the batch whose watermark has reached its expiry.

        An id with its event time needs no expiry: what comes after it is late.
        """
        goes = F.lit(NEVER)
        if self.kind is DeduplicationKind.WITHIN_WATERMARK:
            expiry = F.coalesce(F.col(EVENT_TIME), F.lit(0)) + self._delay()
            records, goes = _with_close(records, expiry, self.batches), F.col("rw_goes")
        late = F.coalesce(F.col(EVENT_TIME) <= F.col(LATE_WATERMARK), F.lit(False))
        entry = F.struct(
            F.col(ARRIVAL).alias("time"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            late.alias("late"),
            goes.alias("goes"),
        )
        return records.withColumn(ENTRY, entry)

    def taken(self, entries: Column) -> Column:
        return first_in_each_hold(entries)

    def _delay(self) -> Column:
        delay = F.lit(self.delays[0][1])
        for time, value in self.delays[1:]:
            delay = F.when(F.col(ARRIVAL) >= F.lit(time), F.lit(value)).otherwise(delay)
        return delay


def _with_close(records: DataFrame, expiry: Column, batches: MicroBatches) -> DataFrame:
    """Add `rw_goes`: the time of the first batch whose watermark is at or above `expiry`; `NEVER`: no batch yet."""
    timeline = batches.timeline()
    low, high = int(timeline.x_from[1]) if len(timeline.x_from) > 1 else 0, int(timeline.x_from[-1])
    edges = np.concatenate(([low - 1], timeline.x_from[1:], [high + 1]))
    clamped = F.greatest(F.lit(low - 1), F.least(F.lit(high), expiry - F.lit(1)))
    return joined_to_ranges(records, clamped, edges[:-1], edges[1:], {"rw_goes": timeline.positions[:, 0]})
