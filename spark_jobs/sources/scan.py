"""One task's pass over its part of a log, in Arrow batches: counts, bounds, and runs of records that are in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE
from spark_jobs.sources.decode import REASON

TIME = "time"
NOWHERE = QUARANTINED = -(1 << 63)
MISSING = QUARANTINED + 1
"""In TIME: a record that cannot be used, and a good one without event time. No good event time is as early."""

_MAX_RUNS = 64
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
    """One partition as a task sees it: runs of records in which the offset grows and the arrival does not go back.

    A run ends where offsets are left out, since another task may have them (it reads other files), unless there are too
    many such holes: then only the largest count.
    """

    runs: list[tuple[int, int, int, int]] = field(default_factory=list)
    disorder: bool = False

    def add(self, offsets: np.ndarray, arrivals: np.ndarray) -> None:
        """The next records, in the order in which the task reads them."""
        if self.disorder or not len(offsets):
            return
        steps = np.diff(offsets)
        goes_back = (steps > 0) & (arrivals[1:] < arrivals[:-1])
        if goes_back.any() or (cuts := _largest_cuts(steps)) is None:
            self._give_up()
            return
        for start, end in _between(cuts, len(offsets)):
            self._append(int(offsets[start]), int(offsets[end - 1]), int(arrivals[start]), int(arrivals[end - 1]))
            if self.disorder:
                return
        if len(self.runs) > 2 * _MAX_RUNS:
            self._join()

    def _append(self, first: int, last: int, first_arrival: int, last_arrival: int) -> None:
        if self.runs and first > self.runs[-1][1]:
            before = self.runs[-1]
            if first_arrival < before[3]:
                self._give_up()
                return
            if first == before[1] + 1:
                self.runs[-1] = (before[0], last, before[2], last_arrival)
                return
        self.runs.append((first, last, first_arrival, last_arrival))

    def _join(self) -> None:
        """Join runs over the smallest holes until there are no more than may be told."""
        steps = np.array([later[0] - run[1] for run, later in itertools.pairwise(self.runs)], dtype=np.int64)
        cuts = _largest_cuts(steps)
        if cuts is None:
            self._give_up()
            return
        self.runs = [
            (self.runs[start][0], self.runs[end - 1][1], self.runs[start][2], self.runs[end - 1][3])
            for start, end in _between(cuts, len(self.runs))
        ]

    def _give_up(self) -> None:
        self.disorder, self.runs = True, []

    def rows(self, partition: int) -> Iterator[Row]:
        if len(self.runs) > _MAX_RUNS:
            self._join()
        if self.disorder:
            yield Row(DISORDER, partition, None, None, None, None, 0, 0, 0)
        for run in self.runs:
            yield Row(RUN, partition, *run, 0, 0, 0)


def _largest_cuts(steps: np.ndarray) -> np.ndarray | None:
    """Where runs end, by the steps from one offset to the next: where one goes back, and in the largest holes.

    None: it goes back more often than there may be runs.
    """
    cuts = np.flatnonzero(steps != 1)
    if len(cuts) < _MAX_RUNS:
        return cuts
    goes_back = steps[cuts] <= 0
    if goes_back.sum() >= _MAX_RUNS:
        return None
    sizes = np.where(goes_back, np.iinfo(np.int64).max, steps[cuts])
    return np.sort(cuts[np.argpartition(sizes, len(cuts) - _MAX_RUNS + 1)[len(cuts) - _MAX_RUNS + 1 :]])


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
        columns = dict(zip(batch.schema.names, (column.to_numpy() for column in batch.columns), strict=True))
        self._count(columns.pop(TIME))
        nowhere = [values == NOWHERE for values in columns.values() if len(values) and values.min() == NOWHERE]
        if nowhere:
            placed = ~np.logical_or.reduce(nowhere)
            columns = {name: values[placed] for name, values in columns.items()}
        partitions, offsets = columns[PARTITION], columns[OFFSET]
        if not len(partitions):
            return
        arrivals = columns[ARRIVAL] if self._has_arrival else np.zeros(len(offsets), dtype=np.int64)
        if self._has_sequence:
            self._log(WHOLE_LOG).add(columns[SEQUENCE], arrivals)
        for partition, chosen in _grouped(partitions):
            own_offsets, own_arrivals = offsets[chosen], arrivals[chosen]
            seen = Range(
                int(own_offsets.min()),
                int(own_offsets.max()),
                int(own_arrivals.min()),
                int(own_arrivals.max()),
                len(own_offsets),
            )
            known = self._ranges.get(partition)
            self._ranges[partition] = known.widened(seen) if known else seen
            self._log(partition).add(own_offsets, own_arrivals)

    def _count(self, times: np.ndarray) -> None:
        self._records += len(times)
        if len(times) and times.min() <= MISSING:
            self._quarantined += int((times == QUARANTINED).sum())
            self._missing += int((times == MISSING).sum())
            times = times[times > MISSING]
        if len(times):
            seen = [*self._event_times, int(times.min()), int(times.max())]
            self._event_times = [min(seen), max(seen)]

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


def scanned(records: DataFrame, has_arrival: bool, has_sequence: bool) -> DataFrame:
    """What a task looks at: BIGINT, never null, and no more columns than needed: each costs as much as the looking.

    PARTITION, OFFSET, and where there are any ARRIVAL and SEQUENCE, with NOWHERE for null; TIME, the event time, or why
    there is none.
    """
    time = F.when(F.col(REASON).isNotNull(), QUARANTINED).otherwise(F.coalesce(EVENT_TIME, F.lit(MISSING)))
    named = [PARTITION, OFFSET, *([ARRIVAL] if has_arrival else []), *([SEQUENCE] if has_sequence else [])]
    places = [F.coalesce(F.col(name).cast("long"), F.lit(NOWHERE)).alias(name) for name in named]
    return records.select(*places, time.cast("long").alias(TIME))


def scan_task(has_arrival: bool, has_sequence: bool) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: the columns of `scanned` to rows as in OUTPUT."""

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = _Scan(has_arrival, has_sequence)
        for batch in batches:
            seen.add(batch)
        rows = list(seen.rows())
        columns = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    return scan


def _grouped(partitions: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Each partition with the places of its records, in their order."""
    if partitions[0] == partitions[-1] and (partitions == partitions[0]).all():
        yield int(partitions[0]), slice(None)
        return
    # Numbers of 16 bits are sorted by radix, in a tenth of the time.
    narrow = partitions.astype(np.int16) if partitions.min() >= 0 and partitions.max() < 1 << 15 else partitions
    order = np.argsort(narrow, kind="stable")
    ranked = partitions[order]
    for start, end in _between(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked)):
        yield int(ranked[start]), order[start:end]


def _between(cuts: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """The parts `[start, end)` of so many places; one ends with each place that `cuts` names."""
    return itertools.pairwise([0, *(cuts + 1).tolist(), count])
