"""Duplicates as Flink drops them: `spark_jobs.eventtime.deduplication`, set by set.

The arrival of a record stands for the processing time at which the live job saw it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION, PositionColumns, record_position
from spark_jobs.replay.deduplication import (
    ENTRY,
    PLACE,
    TAKEN,
    Closes,
    Deduplication,
    first_in_each_hold,
    place_of,
)

_AT, _AFTER = "rw_at", "rw_after"
_NEXT = "rw_next"
_POSITION = "struct<arrival:bigint,major:bigint,minor:bigint>"


@dataclass(frozen=True, slots=True)
class FirstByProcessingTime(Deduplication):
    """`within`: how long an id is remembered (ms); None: for ever. `renews`: a duplicate renews that."""

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
