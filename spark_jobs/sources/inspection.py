"""What a history holds, and whether its log keeps its order: one narrow pass over the records.

The pass reads five numbers a record. Each task returns, for each partition, runs of records in which the offset grows
and the arrival does not go back; where the tasks' runs cannot simply be put one behind the other, that partition alone
is sorted by Spark. What comes to the driver grows with tasks and partitions, never with records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
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

_MOST_RUNS = 64
"""Runs that a task tells of one partition; with more of them the partition is sorted instead."""

_WHOLE_LOG = -1
"""Stands for the partition where the sequence is checked: it orders all partitions together."""

_TOTALS, _RANGE, _RUN, _DISORDER = range(4)
_FIELDS = ("kind", "partition", "first", "last", "first_arrival", "last_arrival", "records", "quarantined", "missing")
_OUTPUT = ", ".join(f"{name} BIGINT" for name in _FIELDS)
_OUTPUT_SCHEMA = pa.schema([(name, pa.int64()) for name in _FIELDS])


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
    columns = [PARTITION, OFFSET, ARRIVAL, EVENT_TIME, F.col(REASON).isNull().alias("good")]
    if position.sequence is not None:
        columns.append(SEQUENCE)
    with reading(opened.description):
        told = records.select(*columns).mapInArrow(_task(has_arrival, position.sequence is not None), _OUTPUT).toArrow()
        rows = [_Row(*values) for values in zip(*(told.column(name).to_pylist() for name in _FIELDS), strict=True)]
        suspects = _suspects(rows)
        for partition in sorted(suspects):
            _refuse_disorder(records, pipeline, opened, partition)
    return _inspection(rows, has_arrival)


@dataclass(frozen=True, slots=True)
class _Row:
    """One line of a task's answer. TOTALS: `first`, `last` are the event times. The others: offsets or sequences."""

    kind: int
    partition: int | None
    first: int | None
    last: int | None
    first_arrival: int | None
    last_arrival: int | None
    records: int
    quarantined: int
    missing: int


@dataclass(slots=True)
class _Log:
    """One partition as a task sees it: the finished runs, and the open one."""

    runs: list[tuple[int, int, int, int]] = field(default_factory=list)
    open_run: tuple[int, int, int, int] | None = None
    disorder: bool = False

    def add(self, offsets: np.ndarray, arrivals: np.ndarray) -> None:
        """The next records, in the order in which the task reads them."""
        if self.disorder or not len(offsets):
            return
        grows = offsets[1:] > offsets[:-1]
        starts = [0, *(np.flatnonzero(~grows) + 1).tolist()] if not grows.all() else [0]
        if len(starts) + len(self.runs) > _MOST_RUNS or bool((grows & (arrivals[1:] < arrivals[:-1])).any()):
            self._give_up()
            return
        for start, end in zip(starts, [*starts[1:], len(offsets)], strict=True):
            self._append(int(offsets[start]), int(offsets[end - 1]), int(arrivals[start]), int(arrivals[end - 1]))

    def _append(self, first: int, last: int, first_arrival: int, last_arrival: int) -> None:
        if self.open_run is not None and first > self.open_run[1]:
            if first_arrival < self.open_run[3]:
                self._give_up()
                return
            first, first_arrival = self.open_run[0], self.open_run[2]
        elif self.open_run is not None:
            self.runs.append(self.open_run)
        self.open_run = (first, last, first_arrival, last_arrival)

    def _give_up(self) -> None:
        self.disorder, self.runs, self.open_run = True, [], None

    def rows(self, partition: int) -> Iterator[_Row]:
        if self.disorder:
            yield _Row(_DISORDER, partition, None, None, None, None, 0, 0, 0)
        for run in [*self.runs, *([self.open_run] if self.open_run else [])]:
            yield _Row(_RUN, partition, *run, 0, 0, 0)


@dataclass(slots=True)
class _Range:
    """The bounds of what a task has seen of one partition."""

    first: int
    last: int
    first_arrival: int
    last_arrival: int
    records: int

    def widened(self, other: _Range) -> _Range:
        return _Range(
            min(self.first, other.first),
            max(self.last, other.last),
            min(self.first_arrival, other.first_arrival),
            max(self.last_arrival, other.last_arrival),
            self.records + other.records,
        )


class _Scan:
    """One task's pass over its records."""

    def __init__(self, has_arrival: bool, has_sequence: bool) -> None:
        self._has_arrival = has_arrival
        self._has_sequence = has_sequence
        self._logs: dict[int, _Log] = {}
        self._ranges: dict[int, _Range] = {}
        self._records = self._quarantined = self._missing = 0
        self._event_times: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        self._count(batch)
        needed = [PARTITION, OFFSET, *([ARRIVAL] if self._has_arrival else [])]
        table = pa.Table.from_batches([batch])
        placed = _without_nulls(table, [*needed, *([SEQUENCE] if self._has_sequence else [])])
        if not placed.num_rows:
            return
        partitions, offsets = _numbers(placed, PARTITION), _numbers(placed, OFFSET)
        arrivals = _numbers(placed, ARRIVAL) if self._has_arrival else np.zeros(len(offsets), dtype=np.int64)
        if self._has_sequence:
            self._log(_WHOLE_LOG).add(_numbers(placed, SEQUENCE), arrivals)
        for partition, chosen in _grouped(partitions):
            own_offsets, own_arrivals = offsets[chosen], arrivals[chosen]
            seen = _Range(
                int(own_offsets.min()), int(own_offsets.max()), int(own_arrivals.min()), int(own_arrivals.max()),
                len(own_offsets),
            )  # fmt: skip
            known = self._ranges.get(partition)
            self._ranges[partition] = known.widened(seen) if known else seen
            self._log(partition).add(own_offsets, own_arrivals)

    def _count(self, batch: pa.RecordBatch) -> None:
        import pyarrow.compute as pc

        good = batch.filter(batch.column("good"))
        self._records += batch.num_rows
        self._quarantined += batch.num_rows - good.num_rows
        self._missing += good.column(EVENT_TIME).null_count
        bounds = pc.min_max(good.column(EVENT_TIME)).as_py()
        if bounds["min"] is not None:
            times = [*self._event_times, bounds["min"], bounds["max"]]
            self._event_times = [min(times), max(times)]

    def _log(self, partition: int) -> _Log:
        return self._logs.setdefault(partition, _Log())

    def rows(self) -> Iterator[_Row]:
        first, last = self._event_times or (None, None)
        yield _Row(_TOTALS, None, first, last, None, None, self._records, self._quarantined, self._missing)
        for partition, seen in self._ranges.items():
            bounds = (seen.first, seen.last, seen.first_arrival, seen.last_arrival)
            yield _Row(_RANGE, partition, *bounds, seen.records, 0, 0)
        for partition, log in self._logs.items():
            yield from log.rows(partition)


def _task(has_arrival: bool, has_sequence: bool):
    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = _Scan(has_arrival, has_sequence)
        for batch in batches:
            seen.add(batch)
        rows = list(seen.rows())
        columns = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in _FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=_OUTPUT_SCHEMA)

    return scan


def _without_nulls(table: pa.Table, columns: list[str]) -> pa.Table:
    narrow = table.select(columns)
    return narrow.drop_null() if any(column.null_count for column in narrow.columns) else narrow


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    return table.column(name).to_numpy()


def _grouped(partitions: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Each partition with the places of its records, in their order."""
    if partitions[0] == partitions[-1] and (partitions == partitions[0]).all():
        yield int(partitions[0]), slice(None)
        return
    order = np.argsort(partitions, kind="stable")
    ranked = partitions[order]
    starts = [0, *(np.flatnonzero(ranked[1:] != ranked[:-1]) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(ranked)], strict=True):
        yield int(ranked[start]), order[start:end]


def _suspects(rows: Iterable[_Row]) -> set[int]:
    """Partitions whose runs do not simply follow one another: those must be looked at record by record."""
    suspects: set[int] = set()
    last: dict[int, _Row] = {}
    for row in sorted((row for row in rows if row.kind == _RUN), key=lambda row: (row.partition, row.first)):
        before = last.get(row.partition)
        if before is not None and (before.last >= row.first or before.last_arrival > row.first_arrival):
            suspects.add(row.partition)
        last[row.partition] = row
    return suspects | {row.partition for row in rows if row.kind == _DISORDER}


def _refuse_disorder(records: DataFrame, pipeline: Pipeline, opened: OpenHistory, partition: int) -> None:
    """Raises HistoryError for the first record of the partition, by offset, that breaks the order; none may."""
    whole = partition == _WHOLE_LOG
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


def _inspection(rows: list[_Row], has_arrival: bool) -> Inspection:
    ranges: dict[int, _Range] = {}
    for row in (row for row in rows if row.kind == _RANGE):
        seen = _Range(row.first, row.last, row.first_arrival, row.last_arrival, row.records)
        ranges[row.partition] = ranges[row.partition].widened(seen) if row.partition in ranges else seen
    totals = [row for row in rows if row.kind == _TOTALS]
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
