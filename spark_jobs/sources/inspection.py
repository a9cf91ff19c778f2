"""Count the records of a history and check the order of its log, in one pass over the records.

The pass reads four numbers of each record, and the hash of its position. Each task returns, for each partition, the
positions by bucket, and runs of records in which the offset grows and the arrival does not go back. Where the runs of
all tasks do not follow one another, Spark sorts that partition. What comes to the driver grows with tasks and
partitions, never with records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import Row as SparkRow
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.union import of_union
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.pins import OffsetRange, PartitionRange, PinnedTopic
from spark_jobs.positions import Bucket, Buckets, Found, Known, Zone, most_buckets, shift_for
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE, end_offset
from spark_jobs.sources.clocks import NO_CLOCKS, Clocks, judged, log_of
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import canonical, counts_latest_arrival, cut_at
from spark_jobs.sources.records.decode import REASON
from spark_jobs.sources.scan import (
    FIELDS,
    NO_NUMBER,
    OUTPUT,
    SCHEMA,
    WHOLE_LOG,
    Kind,
    Range,
    Row,
    position_hash,
    scan_task,
    scanned,
)
from spark_jobs.sources.spool import is_small
from spark_jobs.spark.failures import reading


@dataclass(frozen=True, slots=True)
class Inspection:
    """The counts of a history.

    Attributes:
        partitions: Offsets and arrivals of each partition, by its number.
        records: All canonical records, with the quarantined ones.
        quarantined: Records that go to quarantine.
        missing_event_times: Good records without event time (`event_time.missing: fail`).
        event_times: The range of the good records' event times; None where there is none.
        history_records: The records of the whole history, where only new ones were counted; None where nobody knows.
        positions: The positions of the records that have one, by partition and by zone beside what was read before.
        clocks: Arrivals that are ahead: the history has to be opened again without them, and counted anew.
        without_place: Of the records, those that have no partition or no offset.
    """

    partitions: tuple[PartitionRange, ...]
    records: int
    quarantined: int
    missing_event_times: int
    event_times: TimeRange | None
    history_records: int | None = None
    positions: Found = field(default_factory=dict)
    clocks: Clocks = NO_CLOCKS
    without_place: int = 0


def inspect_history(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    *,
    as_of: Mapping[int, int] | None = None,
    records: DataFrame | None = None,
    until: int | None = None,
    since: Mapping[int, int] | None = None,
    known: Mapping[int, Known] | None = None,
) -> Inspection:
    """Count the records of a history and check the order of its log.

    Without partition, offset and arrival no order is checked.

    Args:
        as_of: End offsets by partition: only records below them count.
        since: End offsets by partition from which on `records` are; None: from the first record on.
        records: The canonical records where the caller has them already, with nothing above `as_of`.
        until: `records` are those that arrived before this instant: a topic was not read up to its pinned end.
        known: What was read before of each partition.

    Raises:
        HistoryError: An offset is there twice, or an arrival goes back while the offset (or the sequence) grows.
        SourceError: A file is damaged.
    """
    if records is None:
        records = canonical(opened, pipeline)
        records = cut_at(records, as_of or {}) if opened.topic is None else records
    look = partial(_clocks, records, pipeline, opened, since, as_of)
    if opened.topic is not None and opened.has_unique_offsets:
        with reading(opened.description):
            read = opened.topic if until is None else None
            return _inspect_topic(records, pipeline, opened, read, look, known or {})
    position = pipeline.history.position
    has_arrival = position.arrival is not None
    has_sequence = position.sequence is not None
    with reading(opened.description):
        chosen = scanned(records, has_arrival, has_sequence)
        scan = scan_task(has_arrival, has_sequence, known)
        if is_small(opened):  # a Python worker would take longer to start than the scan takes
            batches = chosen.toArrow().to_batches()
            answer = pa.Table.from_batches([found for batch in batches for found in scan([batch])], schema=SCHEMA)
        else:
            answer = chosen.mapInArrow(scan, OUTPUT).toArrow()
        rows = [Row(*values) for values in zip(*(answer.column(name).to_pylist() for name in FIELDS), strict=True)]
        ranges = _ranges(rows)
        suspects = _suspects(rows)
        bounds = ((p, seen.first_arrival, seen.last_arrival) for p, seen in ranges.items() if has_arrival)
        arrivals = {p: (first, last) for p, first, last in bounds if first is not None and last is not None}
        clocks = look(arrivals, ranges if WHOLE_LOG in suspects else suspects)
        for partition in sorted(suspects if not clocks else ()):
            _refuse_disorder(records, pipeline, opened, partition)
    pinned = () if until is not None else _pinned_ranges(opened, as_of)
    if pipeline.records_what_it_read and not pinned:  # a run ends where such a reading does
        pinned = tuple(OffsetRange(partition, 0, end) for partition, end in (as_of or {}).items())
    return replace(_inspection(rows, ranges, has_arrival, pinned), clocks=clocks)


def _clocks(
    records: DataFrame,
    pipeline: Pipeline,
    opened: OpenHistory,
    since: Mapping[int, int] | None,
    as_of: Mapping[int, int] | None,
    arrivals: Mapping[int, tuple[int, int]],
    disordered: Iterable[int],
) -> Clocks:
    """What the log says of clocks, given the first and last arrival of each partition, and where arrivals go back.

    A running maximum hides what goes back: then the log itself is looked at.
    """
    limit = opened.arrivals_before
    ahead = [p for p, (_, last) in arrivals.items() if limit is not None and last >= limit]
    if counts_latest_arrival(pipeline):
        log = log_of(opened, pipeline, since, as_of)
        return judged(log, pipeline, opened, disordered=arrivals, ahead=ahead)
    if not (disordered or ahead) or not arrivals:
        return NO_CLOCKS
    return judged(records, pipeline, opened, disordered={*disordered, *ahead}, ahead=ahead)


def _pinned_ranges(opened: OpenHistory, as_of: Mapping[int, int] | None) -> tuple[OffsetRange, ...]:
    """The offsets to read of the topic, or of those of a union up to `as_of`, under the union's partition numbers."""
    if opened.topic is not None:
        return opened.topic.ranges
    known = [of_union({r.partition: r for r in _pinned_ranges(one, None)}, i) for i, one in enumerate(opened.inputs)]
    ranges = [replace(r, partition=partition) for one in known for partition, r in one.items()]
    if as_of is None:
        return tuple(ranges)
    ends = {r.partition: max(r.start, min(r.end, as_of.get(r.partition, r.start))) for r in ranges}
    return tuple(replace(r, end=ends[r.partition]) for r in ranges)


def _inspect_topic(
    records: DataFrame,
    pipeline: Pipeline,
    opened: OpenHistory,
    topic: PinnedTopic | None,
    look: Callable[[Mapping[int, tuple[int, int]], Iterable[int]], Clocks],
    known: Mapping[int, Known],
) -> Inspection:
    """Inspect a topic alone in one aggregation: no offset can be in a topic twice.

    The arrival never goes back exactly if all offsets of each arrival are above those of earlier arrivals. A broker
    gives a whole batch one time, so there are far fewer arrivals than records.
    """
    good, time = F.col(REASON).isNull(), F.col(EVENT_TIME)
    good_time, is_placed = F.when(good, time), F.col(ARRIVAL).isNotNull()
    shift = _shift_of(opened)
    by_arrival = records.groupBy(
        PARTITION, ARRIVAL, F.shiftright(OFFSET, shift).alias("number"), _zone(known).alias("zone")
    ).agg(
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.max(F.when(is_placed, F.col(OFFSET))).alias("last_placed"),
        F.count("*").alias("records"),
        F.count_if(is_placed | _is_unusable(known)).alias("placed"),
        F.count_if(~good).alias("quarantined"),
        F.count_if(good & time.isNull()).alias("missing"),
        F.min(good_time).alias("first_time"),
        F.max(good_time).alias("last_time"),
        F.bit_xor(F.when(is_placed, position_hash())).alias("digest"),
    )
    before = Window.partitionBy(PARTITION).orderBy(ARRIVAL, "first").rowsBetween(Window.unboundedPreceding, -1)
    goes_back = F.coalesce(F.max("last_placed").over(before) > F.col("first"), F.lit(False))
    rows = (
        by_arrival.withColumn("goes_back", goes_back)
        .groupBy(PARTITION, "zone", "number")
        .agg(
            F.min("first").alias("first"),
            F.max("last" if topic is not None else "last_placed").alias("last"),
            F.min(ARRIVAL).alias("first_arrival"),
            F.max(ARRIVAL).alias("last_arrival"),
            *(F.sum(name).alias(name) for name in ("records", "placed", "quarantined", "missing")),
            F.min("first_time").alias("first_time"),
            F.max("last_time").alias("last_time"),
            F.bit_xor("digest").alias("digest"),
            F.bool_or("goes_back").alias("goes_back"),
        )
        .collect()
    )
    disordered = sorted({row[PARTITION] for row in rows if row["goes_back"]})
    seen: dict[int, Range] = {}
    arrivals: dict[int, tuple[int, int]] = {}
    for row in rows:
        partition, bounds = row[PARTITION], (row["first_arrival"], row["last_arrival"])
        if row["last"] is not None:
            one = Range(row["first"], row["last"], *bounds, row["records"])
            seen[partition] = seen[partition].widened(one) if partition in seen else one
        if None not in bounds:
            first, last = arrivals.get(partition, bounds)
            arrivals[partition] = (min(first, bounds[0]), max(last, bounds[1]))
    clocks = look(arrivals, disordered)
    for partition in disordered if not clocks else ():
        _refuse_disorder(records, pipeline, opened, partition)
    times = [(row["first_time"], row["last_time"]) for row in rows if row["first_time"] is not None]
    return Inspection(
        partitions=_partition_ranges(seen, True, topic.ranges if topic is not None else ()),
        records=sum(row["records"] for row in rows),
        quarantined=sum(row["quarantined"] for row in rows),
        missing_event_times=sum(row["missing"] for row in rows),
        event_times=TimeRange(min(f for f, _ in times), max(last for _, last in times) + 1) if times else None,
        positions=_found((row[PARTITION], row["zone"], shift, row["number"], _bucket_of(row)) for row in rows),
        clocks=clocks,
    )


def _shift_of(opened: OpenHistory) -> int:
    """The shift of the buckets of a topic: that of its longest partition."""
    ranges = () if opened.topic is None else opened.topic.ranges
    spans = ((r.start, max(r.start, r.end - 1)) for r in ranges)
    return max((shift_for(span, most_buckets(len(ranges))) for span in spans), default=0)


def _zone(known: Mapping[int, Known]) -> Column:
    """The zone of a record of a topic, where nothing can come late below an end offset."""
    ends = {partition: one.end for partition, one in known.items()}
    is_read = F.coalesce(F.col(OFFSET) < end_offset(ends), F.lit(False)) if ends else F.lit(False)
    read = F.when(F.col(ARRIVAL).isNull(), F.lit(int(Zone.UNUSABLE))).otherwise(F.lit(int(Zone.READ)))
    return F.when(is_read, read).otherwise(F.lit(int(Zone.LATER)))


def _is_unusable(known: Mapping[int, Known]) -> Column:
    """Whether a record was read before, and has no arrival that can be used."""
    return F.col(ARRIVAL).isNull() & (_zone(known) == F.lit(int(Zone.UNUSABLE)))


def _bucket_of(row: SparkRow) -> Bucket:
    arrivals, times = (row["first_arrival"], row["last_arrival"]), (row["first_time"], row["last_time"])
    return Bucket(row["placed"], row["digest"] or 0, *arrivals, *times)


def _found(buckets: Iterable[tuple[int, int, int, int, Bucket]]) -> Found:
    """The positions from buckets with their partition, zone, shift and number."""
    found: dict[int, dict[Zone, dict[int, dict[int, Bucket]]]] = {}
    for partition, zone, shift, number, bucket in buckets:
        if bucket.count:
            numbers = found.setdefault(partition, {}).setdefault(Zone(zone), {}).setdefault(shift, {})
            numbers[number] = numbers[number].joined(bucket) if number in numbers else bucket
    most = most_buckets(len(found))
    return {
        p: {zone: Buckets.of(Buckets(*one) for one in shifts.items()).fitted(most) for zone, shifts in zones.items()}
        for p, zones in sorted(found.items())
    }


def _suspects(rows: Iterable[Row]) -> set[int]:
    """Partitions whose runs do not follow one another, so that their records have to be sorted."""
    suspects: set[int] = set()
    last: dict[int, Row] = {}
    for row in sorted((row for row in rows if row.kind == Kind.RUN), key=lambda row: (row.partition, row.first)):
        before = last.get(row.partition)
        if before is not None and (before.last >= row.first or before.last_arrival > row.first_arrival):
            suspects.add(row.partition)
        last[row.partition] = row
    return suspects | {row.partition for row in rows if row.kind == Kind.DISORDER}


def _refuse_disorder(records: DataFrame, pipeline: Pipeline, opened: OpenHistory, partition: int) -> None:
    """Sort the partition; raise HistoryError for its first record, by offset, that is out of order, if there is one."""
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
        F.lag(by).over(order).alias("offset"),
        F.lag(ARRIVAL).over(order).alias("arrival"),
        F.col(by).alias("next_offset"),
        F.col(ARRIVAL).alias("next_arrival"),
    )
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
            "Remove the duplicates (perhaps a file was loaded twice), or correct history.position.",
        )
    at, then = format_instant(pair["arrival"]), format_instant(pair["next_arrival"])
    hint = "Correct the arrivals" if opened.topic is not None else "Correct the arrivals or history.position"
    place_of = "history.going_back" if opened.topic is not None else "history.position.going_back"
    hint += "." if whole else f", or write `{place_of}: running_maximum`, which counts the latest arrival so far."
    raise HistoryError(
        f"the arrival goes back: {name} {pair['offset']} arrived at {at}, {name} {pair['next_offset']} at {then}",
        f"{place}{opened.description}",
        hint,
    )


def _ranges(rows: list[Row]) -> dict[int, Range]:
    ranges: dict[int, Range] = {}
    for row in (row for row in rows if row.kind == Kind.RANGE):
        seen = Range(row.first, row.last, row.first_arrival, row.last_arrival, row.records)
        ranges[row.partition] = ranges[row.partition].widened(seen) if row.partition in ranges else seen
    return ranges


def _inspection(
    rows: list[Row], ranges: Mapping[int, Range], has_arrival: bool, pinned: Sequence[OffsetRange]
) -> Inspection:
    totals = [row for row in rows if row.kind == Kind.TOTALS]
    times = [(row.first, row.last) for row in totals if row.first != NO_NUMBER]
    return Inspection(
        partitions=_partition_ranges(ranges, has_arrival, pinned),
        records=sum(row.records for row in totals),
        quarantined=sum(row.quarantined for row in totals),
        missing_event_times=sum(row.missing for row in totals),
        event_times=TimeRange(min(f for f, _ in times), max(last for _, last in times) + 1) if times else None,
        positions=_found(
            (row.partition, row.zone, row.shift, row.number, row.bucket) for row in rows if row.kind == Kind.BUCKET
        ),
        without_place=sum(row.number for row in totals),
    )


def _partition_ranges(
    ranges: Mapping[int, Range], has_arrival: bool, topic: Iterable[OffsetRange]
) -> tuple[PartitionRange, ...]:
    """The ranges by partition. A topic's pinned ends count, and its partitions without a record are there too."""
    ends = {pinned.partition: pinned for pinned in topic}
    found = []
    for partition in sorted(ranges.keys() | ends.keys()):
        pinned, seen = ends.get(partition), ranges.get(partition)
        if seen is None:
            if pinned is not None:
                found.append(PartitionRange(partition, pinned.start, pinned.end, None, None, 0))
            continue
        end = seen.last + 1 if pinned is None else pinned.end
        arrivals = (seen.first_arrival, seen.last_arrival) if has_arrival else (None, None)
        found.append(PartitionRange(partition, seen.first, end, *arrivals, seen.records))
    return tuple(found)
