"""Duplicates in front of the windows, set by set.

One pass over ids and positions finds the records that the live job's deduplication does not let through: few, where
duplicates are few. They are kept as places in the log, and everything else is read without them. The records of one id
are folded in the order of the log, in the JVM.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import OFFSET, PARTITION, admitted

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


class Deduplication(ABC):
    """What one live job does about duplicates. `by`: SQL expressions of what they share; null is a value, too."""

    needs_closes: ClassVar[bool] = False
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

    def ids(self) -> list[Column]:
        """The parts of an id."""
        return [F.expr(text) for text in self.by]

    def set_aside(self, records: DataFrame, after_watermark: str | None, closes: Closes | None) -> DataFrame:
        """The places of the records that do not get through: `rw_partition`, `rw_offset`, `rw_counts`.

        `rw_counts`: late, and the first of an id of which no record gets through. It belongs to the complete values.
        Records that the filter `after_watermark` (SQL) rejects come to no deduplication.
        """
        entries = self.entries(admitted(records, after_watermark), closes)
        thin = entries.select(F.struct(*self.ids()).alias(ID), ENTRY)
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
