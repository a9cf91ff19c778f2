"""One task's pass over its part of a log, in Arrow batches: counts, bounds, and runs of records that are in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE

GOOD = "good"
_MOST_RUNS = 64
"""Runs that a task tells of one partition; with more of them the partition is sorted instead."""

WHOLE_LOG = -1
"""Stands for the partition where the sequence is checked: it orders all partitions together."""

TOTALS, RANGE, RUN, DISORDER = range(4)
FIELDS = ("kind", "partition", "first", "last", "first_arrival", "last_arrival", "records", "quarantined", "missing")
OUTPUT = ", ".join(f"{name} BIGINT" for name in FIELDS)
_SCHEMA = pa.schema([(name, pa.int64()) for name in FIELDS])


@dataclass(frozen=True, slots=True)
class Row:
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

    def rows(self, partition: int) -> Iterator[Row]:
        if self.disorder:
            yield Row(DISORDER, partition, None, None, None, None, 0, 0, 0)
        for run in [*self.runs, *([self.open_run] if self.open_run else [])]:
            yield Row(RUN, partition, *run, 0, 0, 0)


@dataclass(slots=True)
class Range:
    """The bounds of what a task has seen of one partition."""

    first: int
    last: int
    first_arrival: int
    last_arrival: int
    records: int

    def widened(self, other: Range) -> Range:
        return Range(
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
        self._ranges: dict[int, Range] = {}
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
            self._log(WHOLE_LOG).add(_numbers(placed, SEQUENCE), arrivals)
        for partition, chosen in _grouped(partitions):
            own_offsets, own_arrivals = offsets[chosen], arrivals[chosen]
            seen = Range(
                int(own_offsets.min()), int(own_offsets.max()), int(own_arrivals.min()), int(own_arrivals.max()),
                len(own_offsets),
            )  # fmt: skip
            known = self._ranges.get(partition)
            self._ranges[partition] = known.widened(seen) if known else seen
            self._log(partition).add(own_offsets, own_arrivals)

    def _count(self, batch: pa.RecordBatch) -> None:
        good = batch.filter(batch.column(GOOD))
        self._records += batch.num_rows
        self._quarantined += batch.num_rows - good.num_rows
        self._missing += good.column(EVENT_TIME).null_count
        bounds = pc.min_max(good.column(EVENT_TIME)).as_py()
        if bounds["min"] is not None:
            times = [*self._event_times, bounds["min"], bounds["max"]]
            self._event_times = [min(times), max(times)]

    def _log(self, partition: int) -> _Log:
        return self._logs.setdefault(partition, _Log())

    def rows(self) -> Iterator[Row]:
        first, last = self._event_times or (None, None)
        yield Row(TOTALS, None, first, last, None, None, self._records, self._quarantined, self._missing)
        for partition, seen in self._ranges.items():
            bounds = (seen.first, seen.last, seen.first_arrival, seen.last_arrival)
            yield Row(RANGE, partition, *bounds, seen.records, 0, 0)
        for partition, log in self._logs.items():
            yield from log.rows(partition)


def scan_task(has_arrival: bool, has_sequence: bool) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: columns PARTITION, OFFSET, ARRIVAL, EVENT_TIME, GOOD (and SEQUENCE) to rows as in OUTPUT."""

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = _Scan(has_arrival, has_sequence)
        for batch in batches:
            seen.add(batch)
        rows = list(seen.rows())
        columns = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

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
