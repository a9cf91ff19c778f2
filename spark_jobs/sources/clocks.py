"""Arrivals of a wrong clock, told by the log alone, so that no result depends on when it was computed.

A record whose arrival lies after that of a record behind it in its partition, by more than `quarantine.ahead`, is ahead
of the log: it goes to quarantine in every run. Of one that is ahead of the clock with nothing behind it nobody knows
whether it is wrong: it is not read, and the end offset of its partition lies before it, until it has come to pass or is
followed. Smaller steps back are `going_back`'s.

An arrival is ahead only where arrivals go back, which the inspection sees anyway. Only then are the partitions sorted.
What is found are bounds: over a stretch of offsets in which the earliest arrival behind each record grows by at most
`ahead`, one arrival separates the records that are ahead from the others. So a year's log has some hundred at most.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK, of_input
from spark_jobs.errors import HistoryError
from spark_jobs.pins import ClockBound, OffsetRange, PartitionRange, Pins, ends_of
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION
from spark_jobs.sources.history import open_history
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import arrived_since, counts_latest_arrival, cut_at, logged

_BUCKET = 4096
"""Offsets that are looked at together before a partition is sorted."""
_MOST_BOUNDS = 2000
"""More bounds than that would be no clock's error."""
_BEHIND, _IS_AHEAD, _STRETCH = "rw_behind", "rw_is_ahead", "rw_stretch"


@dataclass(frozen=True, slots=True)
class Clocks:
    """What a log says of the clocks that its arrivals come from.

    Attributes:
        bounds: The arrivals that are ahead of records behind them.
        ends: The end offset of each partition whose last records are ahead of the clock.
    """

    bounds: tuple[ClockBound, ...] = ()
    ends: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.bounds or self.ends)


NO_CLOCKS = Clocks()
"""No arrival is ahead."""


def log_of(
    opened: OpenHistory, pipeline: Pipeline, since: Mapping[int, int] | None, as_of: Mapping[int, int] | None
) -> DataFrame:
    """Positions as the log has them, before a running maximum and any filter, between these end offsets.

    Columns PARTITION, OFFSET and ARRIVAL, of records that have all three.
    """
    parts = [logged(part, one) for part, one in zip(opened.inputs, pipeline.inputs, strict=True)]
    numbered = [
        part.withColumn(PARTITION, (F.col(PARTITION) + F.lit(number * BLOCK)).cast("int"))
        for number, part in enumerate(parts)
    ]
    log = functools.reduce(DataFrame.unionByName, numbered) if numbered else logged(opened, pipeline)
    log = cut_at(log, as_of or {})
    return log if since is None else arrived_since(log, since)


def judged(
    log: DataFrame, pipeline: Pipeline, opened: OpenHistory, *, disordered: Iterable[int], ahead: Iterable[int]
) -> Clocks:
    """Find the arrivals that are ahead.

    Args:
        log: The records, with PARTITION, OFFSET and ARRIVAL.
        disordered: The partitions in which arrivals may go back.
        ahead: The partitions that have arrivals ahead of the clock.

    Raises HistoryError where arrivals go to and fro all the time.
    """
    placed = log.select(PARTITION, OFFSET, ARRIVAL).dropna()
    ends = _ends_before(placed.where(F.col(PARTITION).isin(list(ahead))), opened.arrivals_before)
    below = functools.reduce(lambda rest, end: rest.where(_is_below(*end)), ends.items(), placed)
    suspects = _falling(below.where(F.col(PARTITION).isin(list(disordered))), pipeline.quarantine.ahead)
    if not suspects:
        return Clocks(ends=ends)
    return Clocks(_bounds(below.where(F.col(PARTITION).isin(suspects)), pipeline.quarantine.ahead, opened), ends)


def opened_again(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    clocks: Clocks,
    *,
    arrivals_before: int | None = None,
) -> OpenHistory:
    """The opened history without what is ahead: records in quarantine, topics that end before the last ones.

    `arrivals_before`: as in `open_history`; None: the end offsets are known now.
    """
    return open_history(spark, pipeline, pins_without(opened.pins, clocks), arrivals_before=arrivals_before)


def end_offsets_before(records: DataFrame, until: int) -> dict[int, int]:
    """Behind the last record of each partition that has arrived before `until` (epoch ms).

    A record without a partition or an offset has no part in it.
    """
    placed = records.dropna(subset=[PARTITION, OFFSET])
    arrived = placed.where(F.col(ARRIVAL) < F.lit(until)).groupBy(PARTITION).agg(F.max(OFFSET) + 1)
    return {row[0]: row[1] for row in arrived.collect()}


def first_arrivals(
    pipeline: Pipeline, opened: OpenHistory, seen: Iterable[PartitionRange], since: Mapping[int, int]
) -> dict[int, int]:
    """The earliest arrival in each partition from the end offsets `since` on, as the log has it."""
    if not counts_latest_arrival(pipeline):
        return {p.partition: p.first_arrival for p in seen if p.records and p.first_arrival is not None}
    log = log_of(opened, pipeline, since, ends_of(seen))
    return {row[0]: row[1] for row in log.groupBy(PARTITION).agg(F.min(ARRIVAL)).collect()}


def ends_within(ends: Mapping[int, int], clocks: Clocks) -> dict[int, int]:
    """End offsets by partition that leave out the records that are ahead of the clock."""
    return {partition: min(end, clocks.ends.get(partition, end)) for partition, end in ends.items()}


def clocks_of(pins: Pins) -> tuple[ClockBound, ...]:
    """The bounds of a history; those of a union's inputs under the union's numbers."""
    of_inputs = (
        replace(bound, partition=number * BLOCK + bound.partition)
        for number, one in enumerate(pins.inputs)
        for bound in one.clocks
    )
    return (*pins.clocks, *of_inputs)


def pins_without(pins: Pins, clocks: Clocks) -> Pins:
    """The pins of a history that leave out what is ahead."""
    if pins.inputs:
        parts = (_of_input(clocks, number) for number in range(len(pins.inputs)))
        return replace(
            pins, inputs=tuple(pins_without(one, part) for one, part in zip(pins.inputs, parts, strict=True))
        )
    topic = pins.topic
    if topic is not None:
        topic = replace(topic, ranges=tuple(_shortened(r, clocks.ends.get(r.partition, r.end)) for r in topic.ranges))
    return replace(pins, topic=topic, clocks=tuple(sorted({*pins.clocks, *clocks.bounds})))


def _of_input(clocks: Clocks, number: int) -> Clocks:
    first = number * BLOCK
    own = (b for b in clocks.bounds if first <= b.partition < first + BLOCK)
    bounds = tuple(replace(bound, partition=bound.partition - first) for bound in own)
    return Clocks(bounds, of_input(clocks.ends, number))


def _shortened(offsets: OffsetRange, end: int) -> OffsetRange:
    """Of a stitched history the end can lie in the table: then the table is read up to there."""
    return replace(offsets, start=min(offsets.start, end), end=min(offsets.end, end))


def _ends_before(log: DataFrame, limit: int | None) -> dict[int, int]:
    """Behind the last record of each partition that is not ahead of the clock; before the first where all are."""
    if limit is None:
        return {}
    last = F.max(F.when(F.col(ARRIVAL) < F.lit(limit), F.col(OFFSET))) + 1
    rows = log.groupBy(PARTITION).agg(F.coalesce(last, F.min(OFFSET)), F.max(OFFSET)).collect()
    return {row[0]: row[1] for row in rows if row[1] <= row[2]}


def _is_below(partition: int, end: int) -> Column:
    return (F.col(PARTITION) != F.lit(partition)) | (F.col(OFFSET) < F.lit(end))


def _falling(log: DataFrame, ahead: int) -> list[int]:
    """The partitions in which an arrival may be ahead of one behind it, from few rows and without a sort of the log."""
    bucket = F.floor(F.col(OFFSET) / F.lit(_BUCKET)).alias("bucket")
    bounds = log.groupBy(PARTITION, bucket).agg(F.min(ARRIVAL).alias("low"), F.max(ARRIVAL).alias("high"))
    from_here = Window.partitionBy(PARTITION).orderBy(F.desc("bucket")).rowsBetween(Window.unboundedPreceding, 0)
    fallen = bounds.withColumn("least", F.min("low").over(from_here)).where(F.col("high") - F.col("least") > ahead)
    return sorted(row[0] for row in fallen.select(PARTITION).distinct().collect())


def _bounds(log: DataFrame, ahead: int, opened: OpenHistory) -> tuple[ClockBound, ...]:
    """One bound for each stretch that has a record ahead; where small steps back blur it, stretches are shorter."""
    behind = Window.partitionBy(PARTITION).orderBy(F.desc(OFFSET)).rowsBetween(Window.unboundedPreceding, -1)
    seen = log.withColumn(_BEHIND, F.min(ARRIVAL).over(behind))
    seen = seen.withColumn(_IS_AHEAD, F.col(ARRIVAL) - F.col(_BEHIND) > F.lit(ahead))
    rows = _stretches(seen, ahead)
    if any(row["latest"] is not None and row["latest"] >= row["wrong"] for row in rows):
        rows = _stretches(seen, 1)
    if len(rows) > _MOST_BOUNDS:
        raise HistoryError(
            f"arrivals are ahead of records behind them in more than {_MOST_BOUNDS} places",
            f"partition {rows[0][PARTITION]}, {opened.description}",
            "Correct the arrivals, or bound them: arrival_earliest, arrival_latest.",
        )
    return tuple(
        ClockBound(
            row[PARTITION], row["start"], row["end"], row["wrong"] - 1 if row["latest"] is None else row["latest"]
        )
        for row in rows
    )


def _stretches(seen: DataFrame, width: int) -> list[Row]:
    """Neighbours whose earliest arrival behind them lies in one cell of `width`, where one of them is ahead.

    `latest` is the last arrival of those that are not ahead, `wrong` the first of those that are.
    """
    stretch = F.floor(F.col(_BEHIND) / F.lit(width)).alias(_STRETCH)
    found = seen.groupBy(PARTITION, stretch).agg(
        F.min(OFFSET).alias("start"),
        (F.max(OFFSET) + 1).alias("end"),
        F.max(F.when(~F.col(_IS_AHEAD), F.col(ARRIVAL))).alias("latest"),
        F.min(F.when(F.col(_IS_AHEAD), F.col(ARRIVAL))).alias("wrong"),
    )
    return found.where("wrong IS NOT NULL").orderBy(PARTITION, "start").limit(_MOST_BOUNDS + 1).collect()
