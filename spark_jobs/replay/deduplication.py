"""Duplicates in front of the window, as Structured Streaming drops them, set by set (Spark rules 33 to 37)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.microbatch.deduplication import DeduplicationKind
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION
from spark_jobs.replay.microbatches import LATE_WATERMARK, MicroBatches
from spark_jobs.replay.range_lookup import joined_to_ranges

KEPT = "rw_kept"
"""Whether a record got past the deduplication: false where it was late there."""


@dataclass(frozen=True, slots=True)
class SparkDeduplication:
    """`by`: SQL expressions of what duplicates share. `delays`: from each batch time on, how long an id is held.

    `delays` has (batch time, delay) ascending, in the unit of the event times; an id keeps the delay it came with.
    """

    kind: DeduplicationKind
    by: tuple[str, ...]
    delays: tuple[tuple[int, int], ...]

    def marked(self, records: DataFrame, batches: MicroBatches) -> DataFrame:
        """The records without duplicates, with `rw_kept`.

        A record that was late for the deduplication (`ts <= W`) stays, unkept, where no other has its id before it: it
        belongs to the complete values.
        """
        late = F.coalesce(F.col(EVENT_TIME) <= F.col(LATE_WATERMARK), F.lit(False))
        with_time = self.kind is DeduplicationKind.ID_AND_TIME
        ids = [F.expr(text) for text in self.by] + ([F.col(EVENT_TIME)] if with_time else [])
        by_id = Window.partitionBy("rw_id").orderBy(ARRIVAL, PARTITION, OFFSET)
        numbered = records.withColumns({"rw_id": F.struct(*ids), "rw_late_id": late}).withColumn(
            "rw_nth", F.row_number().over(by_id)
        )
        if self.kind is DeduplicationKind.WITHIN_WATERMARK:
            taken = self._first_in_each_hold(numbered, batches)
        else:
            in_time = Window.partitionBy("rw_id", "rw_late_id").orderBy(ARRIVAL, PARTITION, OFFSET)
            taken = numbered.withColumn(KEPT, ~F.col("rw_late_id") & (F.row_number().over(in_time) == 1))
        stays = F.col(KEPT) | (F.col("rw_late_id") & (F.col("rw_nth") == 1))
        return taken.where(stays).drop("rw_id", "rw_late_id", "rw_nth")

    def _first_in_each_hold(self, numbered: DataFrame, batches: MicroBatches) -> DataFrame:
        """Add `rw_kept`: whether the record comes when no earlier one holds its id.

        An id goes at the end of the batch whose watermark has reached its expiry. Records of one id are few: they are
        folded in order, in the JVM.
        """
        expiry = F.coalesce(F.col(EVENT_TIME), F.lit(0)) + self._delay()
        held = _with_close(numbered, expiry, batches)
        entry = F.struct(
            F.col(ARRIVAL).alias("time"),
            F.col(PARTITION).alias("partition"),
            F.col(OFFSET).alias("offset"),
            F.col("rw_goes").alias("goes"),
        )
        repeated = Window.partitionBy("rw_id")
        counted = held.withColumn("rw_of", F.count_if(~F.col("rw_late_id")).over(repeated))
        entries = F.array_sort(
            F.collect_list(F.when(~F.col("rw_late_id") & (F.col("rw_of") > 1), entry)).over(repeated)
        )
        counted = counted.withColumn("rw_entries", entries)
        start = F.struct(
            F.lit(-(2**63)).cast("bigint").alias("goes"),
            F.array().cast("array<struct<partition:int,offset:bigint>>").alias("taken"),
        )

        def fold(state: Column, one: Column) -> Column:
            free = one["time"] > state["goes"]
            place = F.struct(one["partition"].cast("int").alias("partition"), one["offset"].alias("offset"))
            return F.struct(
                F.when(free, one["goes"]).otherwise(state["goes"]).alias("goes"),
                F.when(free, F.concat(state["taken"], F.array(place))).otherwise(state["taken"]).alias("taken"),
            )

        taken = F.aggregate("rw_entries", start, fold)["taken"]
        me = F.struct(F.col(PARTITION).cast("int").alias("partition"), F.col(OFFSET).alias("offset"))
        kept = ~F.col("rw_late_id") & ((F.col("rw_of") == 1) | F.array_contains(taken, me))
        return counted.withColumn(KEPT, kept).drop("rw_goes", "rw_of", "rw_entries")

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
    closes = np.where(timeline.positions[:, 0] == NEVER, NEVER, timeline.positions[:, 0])
    return joined_to_ranges(records, clamped, edges[:-1], edges[1:], {"rw_goes": closes})
