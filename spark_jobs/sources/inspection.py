"""What a history holds, and whether its log keeps its order: one narrow pass over the records.

The pass reads five numbers a record. Each task returns, for each partition, runs of records in which the offset grows
and the arrival does not go back; where the tasks' runs cannot simply be put one behind the other, that partition alone
is sorted by Spark. What comes to the driver grows with tasks and partitions, never with records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import HistoryError
from spark_jobs.replay.assign import Span
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE
from spark_jobs.sources.decode import REASON
from spark_jobs.sources.failures import reading
from spark_jobs.sources.history import OpenHistory
from spark_jobs.sources.records import canonical, cut_at
from spark_jobs.sources.scan import DISORDER, FIELDS, GOOD, OUTPUT, RANGE, RUN, TOTALS, WHOLE_LOG, Range, Row, scan_task


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The records of one partition: offsets `[first_offset, end_offset)`, arrivals in epoch ms, both included.

    Offsets may have holes. The arrivals are None where the definition names no arrival.
    """

    partition: int
    first_offset: int
    end_offset: int
    first_arrival: int | None
    last_arrival: int | None
    records: int


@dataclass(frozen=True, slots=True)
class Inspection:
    """What was counted. `records` are all canonical records, the `quarantined` among them.

    `missing_event_times` are good records without event time (`event_time.missing: fail`); `event_times` spans those of
    the good records, None if there is none.
    """

    partitions: tuple[PartitionRange, ...]
    records: int
    quarantined: int
    missing_event_times: int
    event_times: Span | None


def inspect_history(
    spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, *, as_of: Mapping[int, int] | None = None
) -> Inspection:
    """Count the records of a history, below the end offsets `as_of` if given, and check the order of its log.

    Raises HistoryError where an offset is there twice, or an arrival goes back while the offset (or the sequence)
    grows; SourceError where a file turns out damaged. Without partition, offset and arrival no order is checked.
    """
    records = cut_at(canonical(opened.frame, pipeline), as_of or {})
    position = pipeline.history.position
    has_arrival = position.arrival is not None
    columns = [PARTITION, OFFSET, ARRIVAL, EVENT_TIME, F.col(REASON).isNull().alias(GOOD)]
    if position.sequence is not None:
        columns.append(SEQUENCE)
    with reading(opened.description):
        told = (
            records.select(*columns).mapInArrow(scan_task(has_arrival, position.sequence is not None), OUTPUT).toArrow()
        )
        rows = [Row(*values) for values in zip(*(told.column(name).to_pylist() for name in FIELDS), strict=True)]
        suspects = _suspects(rows)
        for partition in sorted(suspects):
            _refuse_disorder(records, pipeline, opened, partition)
    return _inspection(rows, has_arrival)


def _suspects(rows: Iterable[Row]) -> set[int]:
    """Partitions whose runs do not simply follow one another: those must be looked at record by record."""
    suspects: set[int] = set()
    last: dict[int, Row] = {}
    for row in sorted((row for row in rows if row.kind == RUN), key=lambda row: (row.partition, row.first)):
        before = last.get(row.partition)
        if before is not None and (before.last >= row.first or before.last_arrival > row.first_arrival):
            suspects.add(row.partition)
        last[row.partition] = row
    return suspects | {row.partition for row in rows if row.kind == DISORDER}


def _refuse_disorder(records: DataFrame, pipeline: Pipeline, opened: OpenHistory, partition: int) -> None:
    """Raises HistoryError for the first record of the partition, by offset, that breaks the order; none may."""
    whole = partition == WHOLE_LOG
    by = SEQUENCE if whole else OFFSET
    has_arrival = pipeline.history.position.arrival is not None
    log = records.where(F.col(PARTITION).isNotNull() & F.col(OFFSET).isNotNull() & F.col(by).isNotNull())
    if has_arrival:
        log = log.where(F.col(ARRIVAL).isNotNull())
    if not whole:
        log = log.where(F.col(PARTITION) == partition)
    order = Window.partitionBy(F.lit(0)).orderBy(by, ARRIVAL)
    pairs = log.select(
        F.lag(by).over(order).alias("offset"), F.lag(ARRIVAL).over(order).alias("arrival"),
        F.col(by).alias("next_offset"), F.col(ARRIVAL).alias("next_arrival"),
    )  # fmt: skip
    broken = (F.col("offset") == F.col("next_offset")) | (F.col("arrival") > F.col("next_arrival"))
    found = pairs.where(broken).orderBy("next_offset", "next_arrival").limit(1).collect()
    if not found:
        return
    pair = found[0]
    name = "sequence" if whole else "offset"
    place = "" if whole else f"partition {partition}, "
    if pair["offset"] == pair["next_offset"]:
        raise HistoryError(
            f"{name} {pair['offset']} is there twice",
            f"{place}{opened.description}",
            "Remove the duplicates (a file that was loaded twice?), or correct history.position.",
        )
    at, then = format_instant(pair["arrival"]), format_instant(pair["next_arrival"])
    mend = "Correct the arrivals or history.position"
    mend += "." if whole else ", or set `going_back: running_maximum` there, which counts the latest arrival so far."
    raise HistoryError(
        f"the arrival goes back: {name} {pair['offset']} arrived at {at}, {name} {pair['next_offset']} at {then}",
        f"{place}{opened.description}",
        mend,
    )


def _inspection(rows: list[Row], has_arrival: bool) -> Inspection:
    ranges: dict[int, Range] = {}
    for row in (row for row in rows if row.kind == RANGE):
        seen = Range(row.first, row.last, row.first_arrival, row.last_arrival, row.records)
        ranges[row.partition] = ranges[row.partition].widened(seen) if row.partition in ranges else seen
    totals = [row for row in rows if row.kind == TOTALS]
    times = [(row.first, row.last) for row in totals if row.first is not None]
    return Inspection(
        partitions=tuple(
            PartitionRange(
                partition,
                seen.first,
                seen.last + 1,
                seen.first_arrival if has_arrival else None,
                seen.last_arrival if has_arrival else None,
                seen.records,
            )
            for partition, seen in sorted(ranges.items())
        ),
        records=sum(row.records for row in totals),
        quarantined=sum(row.quarantined for row in totals),
        missing_event_times=sum(row.missing for row in totals),
        event_times=Span(min(f for f, _ in times), max(last for _, last in times) + 1) if times else None,
    )
