"""Duplicates in front of the windows, set by set.

One pass over ids and positions finds the records that the live job's deduplication does not let through: few, where
duplicates are few. They are kept as places in the log, and everything else is read without them. The records of one id
are folded in the order of the log, in the JVM.

As Flink drops them: `tests/sequential/flink.py`, set by set. The arrival of a record stands for the
processing time at which the live job saw it. As Structured Streaming drops them: Spark rules 33 to 37.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    MICROS,
    NEVER,
    OFFSET,
    PARTITION,
    PositionColumns,
    admitted,
    event_time_rounded_up,
    record_position,
)
from spark_jobs.replay.range_lookup import joined_to_ranges
from spark_jobs.replay.spark.microbatches import LATE_WATERMARK, MicroBatches

ID = "rw_id"
"""What duplicates share."""
ENTRY = "rw_entry"
"""What is known of a record for the decision, see `Deduplication.entries`."""
KEPT = "rw_kept"
"""Whether a record gets past the deduplication: false where it was late there, and belongs to complete values alone."""
_COUNTS = "rw_counts"
_ENTRIES = "rw_entries"
PLACE = "struct<partition:int,offset:bigint>"
TAKEN = f"array<{PLACE}>"

Closes = Callable[[DataFrame, str, str], DataFrame]
"""Adds to the rows of a frame C of a column (epoch ms), in columns of a prefix: `{prefix}_arrival/_major/_minor`."""


class DeduplicationKind(StrEnum):
    """Which of Spark's operators drops duplicates, and for how long it remembers an id.

    `within_watermark`: `dropDuplicatesWithinWatermark`, until the watermark has passed event time + delay.
    `id_and_time`: `dropDuplicates` with the event time among its columns, until the watermark has passed it. `id`:
    `dropDuplicates` without it, for ever.
    """

    WITHIN_WATERMARK = "within_watermark"
    ID_AND_TIME = "id_and_time"
    ID = "id"


class Deduplication(ABC):
    """What one live job does about duplicates. `by`: SQL expressions of what they share; null is a value, too."""

    needs_closes: ClassVar[bool] = False
    drops_late: ClassVar[bool] = True
    """Whether it drops late records without a look at their ids."""
    is_in_log_order: ClassVar[bool] = False
    """Whether what is read later never comes before what was read."""
    by: tuple[str, ...]

    @abstractmethod
    def entries(self, records: DataFrame, closes: Closes | None) -> DataFrame:
        """The records with `rw_entry`, and what the entry needs.

        The entry is a struct that begins with the record's place in the order of the live job, and has at least
        `partition`, `offset` and `late`: whether the deduplication dropped it without a look at its id. `closes`: where
        `needs_closes`, and exact to the millisecond.
        """

    @abstractmethod
    def taken(self, entries: Column) -> Column:
        """The places (`partition`, `offset`) of the records that get through, of one id's entries in order."""

    def ids(self, records: DataFrame) -> list[Column]:
        """The parts of an id."""
        return [F.expr(text) for text in self.by]

    def set_aside(self, records: DataFrame, after_watermark: str | None, closes: Closes | None) -> DataFrame:
        """The places of the records that do not get through: `rw_partition`, `rw_offset`, `rw_counts`.

        `rw_counts`: late, and the first of an id of which no record gets through. It belongs to the complete values.
        Records that the filter `after_watermark` (SQL) rejects come to no deduplication.
        """
        entries = self.entries(admitted(records, after_watermark), closes)
        thin = entries.select(F.struct(*self.ids(entries)).alias(ID), ENTRY)
        by_id = thin.groupBy(ID).agg(F.array_sort(F.collect_list(ENTRY)).alias(_ENTRIES))
        doubtful = by_id.where((F.size(_ENTRIES) > 1) | F.col(_ENTRIES)[0]["late"])
        folded = doubtful.withColumn("rw_taken", self.taken(F.col(_ENTRIES)))
        others = F.filter(_ENTRIES, lambda one: ~F.array_contains("rw_taken", place_of(one)))
        first = F.when(F.size("rw_taken") == 0, place_of(F.col(_ENTRIES)[0]))
        aside = folded.select(F.explode(others).alias(ENTRY), first.alias("rw_first"))
        counts = F.coalesce(place_of(F.col(ENTRY)) == F.col("rw_first"), F.lit(False))
        return aside.select(
            F.col(ENTRY)["partition"].alias(PARTITION), F.col(ENTRY)["offset"].alias(OFFSET), counts.alias(_COUNTS)
        )


def without(records: DataFrame, aside: DataFrame) -> DataFrame:
    """The records without duplicates, with `rw_kept`. `aside`: the places that `set_aside` found."""
    joined = records.join(aside, [PARTITION, OFFSET], "left").where(F.coalesce(_COUNTS, F.lit(True)))
    return joined.withColumn(KEPT, F.col(_COUNTS).isNull()).drop(_COUNTS)


def duplicates_in(aside: DataFrame) -> int:
    """How many records were dropped as duplicates."""
    return aside.where(~F.col(_COUNTS)).count()


def is_kept(records: DataFrame) -> Column:
    """Whether a record gets past the deduplication; true where the live job has none."""
    return F.col(KEPT) if KEPT in records.columns else F.lit(True)


def place_of(entry: Column) -> Column:
    """Where the record of an entry lies in the log."""
    return F.struct(entry["partition"].cast("int").alias("partition"), entry["offset"].alias("offset"))


def first_in_each_hold(entries: Column, *, renews: bool = False) -> Column:
    """The places of those entries that come when no earlier one holds their id.

    An entry that is not late has `time`, and holds the id until `goes`, included, of one unit with `time`. `renews`:
    a record whose id is held holds it on.
    """
    start = F.struct(F.lit(MIN_TIMESTAMP).cast("bigint").alias("goes"), F.array().cast(TAKEN).alias("taken"))

    def fold(state: Column, one: Column) -> Column:
        free = ~one["late"] & (one["time"] > state["goes"])
        holds = ~one["late"] if renews else free
        return F.struct(
            F.when(holds, one["goes"]).otherwise(state["goes"]).alias("goes"),
            F.when(free, F.concat(state["taken"], F.array(place_of(one)))).otherwise(state["taken"]).alias("taken"),
        )

    return F.aggregate(entries, start, fold)["taken"]


_AT, _AFTER = "rw_at", "rw_after"
_NEXT = "rw_next"
_POSITION = "struct<arrival:bigint,major:bigint,minor:bigint>"


@dataclass(frozen=True, slots=True)
class FirstByProcessingTime(Deduplication):
    """`within`: how long an id is remembered (ms); None: for ever. `renews`: a duplicate renews that."""

    drops_late: ClassVar[bool] = False
    by: tuple[str, ...]
    within: int | None = None
    renews: bool = False

    def entries(self, records: DataFrame, closes: Closes | None) -> DataFrame:
        arrival = F.col(ARRIVAL)
        goes = F.lit(NEVER) if self.within is None else arrival + F.lit(self.within - 1)
        return records.withColumn(
            ENTRY,
            F.struct(
                *record_position(records).aliased("at"),
                F.col(PARTITION).alias("partition"),
                F.col(OFFSET).alias("offset"),
                F.lit(False).alias("late"),
                arrival.alias("time"),
                goes.alias("goes"),
            ),
        )

    def taken(self, entries: Column) -> Column:
        return first_in_each_hold(entries, renews=self.renews)


@dataclass(frozen=True, slots=True)
class FirstByRowTime(Deduplication):
    """The smallest row time of an id. `within`: how long an id that was given is remembered (ms); None: for ever."""

    needs_closes: ClassVar[bool] = True
    by: tuple[str, ...]
    within: int | None = None

    def entries(self, records: DataFrame, closes: Closes | None) -> DataFrame:
        """Late is a record after the watermark has passed its time: `C(ts + 1) < r`.

        Its timer fires when the watermark reaches the time, or, where it is there already, when it next goes on.
        """
        if closes is None:
            raise ValueError("row time is compared with the watermark")
        timed = records.where(F.col(EVENT_TIME).isNotNull()).withColumn(_NEXT, F.col(EVENT_TIME) + F.lit(1))
        placed = closes(closes(timed, EVENT_TIME, _AT), _NEXT, _AFTER)
        at, after, own = PositionColumns.named(_AT), PositionColumns.named(_AFTER), record_position(placed)
        fires = F.when(own.not_after(at), at.as_struct()).otherwise(after.as_struct())
        return placed.withColumn(
            ENTRY,
            F.struct(
                own.as_struct().alias("at"),
                F.col(PARTITION).alias("partition"),
                F.col(OFFSET).alias("offset"),
                (~own.not_after(after)).alias("late"),
                F.col(EVENT_TIME).alias("ts"),
                fires.alias("fires"),
            ),
        )

    def taken(self, entries: Column) -> Column:
        nothing = F.lit(None).cast(f"struct<ts:bigint,place:{PLACE},fires:{_POSITION}>")
        start = F.struct(
            nothing.alias("waiting"), F.lit(MIN_TIMESTAMP).alias("given"), F.array().cast(TAKEN).alias("taken")
        )

        def fold(state: Column, one: Column) -> Column:
            waiting = state["waiting"]
            fired = waiting.isNotNull() & (waiting["fires"] < one["at"])
            given = F.when(fired, waiting["fires"]["arrival"]).otherwise(state["given"])
            held = given != F.lit(MIN_TIMESTAMP)
            if self.within is not None:
                held = held & (one["at"]["arrival"] - F.lit(self.within) < given)
            mine = F.struct(one["ts"].alias("ts"), place_of(one).alias("place"), one["fires"].alias("fires"))
            still = F.when(~fired, waiting)
            sooner = ~one["late"] & ~held & (still.isNull() | (one["ts"] < still["ts"]))
            return F.struct(
                F.when(sooner, mine).otherwise(still).alias("waiting"),
                given.alias("given"),
                F.when(fired, F.concat(state["taken"], F.array(waiting["place"])))
                .otherwise(state["taken"])
                .alias("taken"),
            )

        def finish(state: Column) -> Column:
            waiting = state["waiting"]
            with_it = F.concat(state["taken"], F.array(waiting["place"]))
            return F.when(waiting.isNotNull(), with_it).otherwise(state["taken"])

        return F.aggregate(entries, start, fold, finish)


@dataclass(frozen=True)
class SparkDeduplication(Deduplication):
    """`delays`: from each batch time on, how long an id is held.

    `delays` has (batch time, delay) ascending, in the unit of the event times; an id keeps the delay it came with.
    """

    is_in_log_order: ClassVar[bool] = True
    kind: DeduplicationKind
    by: tuple[str, ...]
    delays: tuple[tuple[int, int], ...]
    batches: MicroBatches

    def ids(self, records: DataFrame) -> list[Column]:
        ids = [F.expr(text) for text in self.by]
        times = [F.col(name) for name in (EVENT_TIME, MICROS) if name in records.columns]
        return [*ids, *times] if self.kind is DeduplicationKind.ID_AND_TIME else ids

    def entries(self, records: DataFrame, closes: Closes | None) -> DataFrame:
        """Late is a record with `ts <= W`. An id goes at the end of the batch whose watermark has reached its expiry.

        An id with its event time needs no expiry: what comes after it is late. Event times have microseconds, and the
        watermark is a whole millisecond.
        """
        goes, time = F.lit(NEVER), event_time_rounded_up(records)
        if self.kind is DeduplicationKind.WITHIN_WATERMARK:
            expiry = F.coalesce(time, F.lit(0)) + self._delay()
            records, goes = _with_close(records, expiry, self.batches), F.col("rw_goes")
        late = F.coalesce(time <= F.col(LATE_WATERMARK), F.lit(False))
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
