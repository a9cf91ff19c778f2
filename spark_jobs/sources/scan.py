"""What one Spark task finds in its part of a log: counts, bounds, and runs of records that are in order.

A task reads Arrow batches and returns a few rows; `inspection` combines the rows of all tasks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.positions import Bucket, Buckets, Known, Zone, largest, least, shift_for
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION, SEQUENCE
from spark_jobs.sources.records.decode import REASON

TIME, HASH = "time", "hash"
NO_NUMBER = QUARANTINED = -(1 << 63)
"""Stands for null in a column of numbers; in TIME: the record goes to quarantine."""

MISSING = QUARANTINED + 1
"""In TIME: a good record without event time. No real event time is as early."""

_MAX_RUNS = 64
"""The most runs that a task returns for one partition; a partition with more of them is sorted instead."""

WHOLE_LOG = -1
"""Stands for the partition where the sequence is checked: it orders all partitions together."""


class Kind(IntEnum):
    """What a row of a task's answer is about."""

    TOTALS = 0
    """The task's records; `first` and `last` are the bounds of their event times, or NO_NUMBER.

    `number` of them have no partition or no offset.
    """
    RANGE = 1
    """The bounds of one partition's offsets and arrivals, and its records."""
    RUN = 2
    """A run of records of one partition in which nothing goes back."""
    DISORDER = 3
    """The partition is not in order in this task, or has too many runs: it has to be sorted."""
    BUCKET = 4
    """The positions of one bucket in one zone, see `spark_jobs.positions`."""


FIELDS = (
    *("kind", "partition", "first", "last", "first_arrival", "last_arrival", "records", "quarantined", "missing"),
    *("zone", "shift", "number", "digest", "first_time", "last_time"),
)
OUTPUT = ", ".join(f"{name} BIGINT" for name in FIELDS)
SCHEMA = pa.schema([(name, pa.int64()) for name in FIELDS])


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a task's answer. `first` and `last` are offsets or sequences, both included, but see Kind.TOTALS."""

    kind: int
    partition: int = WHOLE_LOG
    first: int = 0
    last: int = 0
    first_arrival: int = 0
    last_arrival: int = 0
    records: int = 0
    quarantined: int = 0
    missing: int = 0
    zone: int = 0
    shift: int = 0
    number: int = 0
    digest: int = 0
    first_time: int = NO_NUMBER
    last_time: int = NO_NUMBER

    @property
    def bucket(self) -> Bucket:
        """The bucket of a row of the kind BUCKET."""
        bounds = (self.first_arrival, self.last_arrival, self.first_time, self.last_time)
        first_arrival, last_arrival, first, last = (None if at == NO_NUMBER else at for at in bounds)
        return Bucket(self.records, self.digest, first_arrival, last_arrival, first, last)


@dataclass(slots=True)
class _Log:
    """One partition as a task sees it: runs of records in which the offset grows and the arrival does not go back.

    A run ends at a hole in the offsets, because another task may have the records of the hole (it reads other files).
    Where there are too many holes, a run ends only at the largest ones.
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
        """Join runs over the smallest holes until there are at most _MAX_RUNS."""
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
        """The partition's rows of the task's answer."""
        if len(self.runs) > _MAX_RUNS:
            self._join()
        if self.disorder:
            yield Row(Kind.DISORDER, partition)
        for run in self.runs:
            yield Row(Kind.RUN, partition, *run)


def _largest_cuts(steps: np.ndarray) -> np.ndarray | None:
    """The indexes after which a run ends: where the offset goes back, and at the largest holes.

    `steps` are the differences from one offset to the next. None: there would be more than _MAX_RUNS runs because
    offsets go back.
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
    first_arrival: int | None
    last_arrival: int | None
    records: int

    def widened(self, other: Range) -> Range:
        return Range(
            min(self.first, other.first),
            max(self.last, other.last),
            least(self.first_arrival, other.first_arrival),
            largest(self.last_arrival, other.last_arrival),
            self.records + other.records,
        )


_MOST_IN_TASK = 512
"""The most buckets of a partition that a task keeps: more than are kept of all, so that edges meet."""
_LATEST = (1 << 63) - 1


@dataclass(slots=True)
class Positions:
    """The positions of one partition that a task has seen, by zone."""

    known: Known | None
    zones: dict[Zone, Buckets] = field(default_factory=dict)

    def add(self, offsets: np.ndarray, arrivals: np.ndarray | None, hashes: np.ndarray, times: np.ndarray) -> None:
        """The next records, in the order in which the task reads them."""
        shift = max((found.shift for found in self.zones.values()), default=0)
        shift += shift_for((int(offsets.min()) >> shift, int(offsets.max()) >> shift), _MOST_IN_TASK)
        numbers, zones = offsets >> shift, self._zones(offsets)
        ends = _changes(numbers, zones)
        if len(ends) > _MOST_IN_TASK:  # the offsets are in no order
            order = np.lexsort((zones, numbers))
            numbers, zones, hashes, times = numbers[order], zones[order], hashes[order], times[order]
            arrivals = None if arrivals is None else arrivals[order]
            ends = _changes(numbers, zones)
        starts = np.concatenate(([0], ends + 1))
        columns = (
            np.diff(np.append(starts, len(numbers))).tolist(),
            np.bitwise_xor.reduceat(hashes, starts).tolist(),
            *(_bounds(arrivals, starts) if arrivals is not None else ([None] * len(starts),) * 2),
            *_bounds(times, starts),
        )
        places = zip(zones[starts].tolist(), numbers[starts].tolist(), strict=True)
        found: dict[Zone, dict[int, Bucket]] = {}
        for (zone, number), values in zip(places, zip(*columns, strict=True), strict=True):
            of_zone = found.setdefault(Zone(zone), {})
            of_zone[number] = of_zone.get(number, Bucket()).joined(Bucket(*values))
        for zone, by_number in found.items():
            joined = self.zones.get(zone, Buckets.none()).joined(Buckets(shift, by_number))
            self.zones[zone] = joined.fitted(_MOST_IN_TASK)

    def add_unusable(self, offsets: np.ndarray, hashes: np.ndarray) -> None:
        """Records without an arrival: those count that were read before."""
        was_read = self._zones(offsets) == Zone.READ
        if was_read.any():
            unusable = Positions(Known(int(offsets.max()) + 1))
            none = np.full(int(was_read.sum()), NO_NUMBER, dtype=np.int64)
            unusable.add(offsets[was_read], None, hashes[was_read], none)
            known = self.zones.get(Zone.UNUSABLE, Buckets.none())
            self.zones[Zone.UNUSABLE] = known.joined(unusable.zones[Zone.READ]).fitted(_MOST_IN_TASK)

    def _zones(self, offsets: np.ndarray) -> np.ndarray:
        if self.known is None:
            return np.full(len(offsets), Zone.LATER, dtype=np.int8)
        zones = np.where(offsets >= self.known.end, Zone.LATER, Zone.READ).astype(np.int8)
        for start, end in self.known.empty:
            zones[(offsets >= start) & (offsets < min(end, self.known.end))] = Zone.MISSED
        return zones

    def rows(self, partition: int) -> Iterator[Row]:
        """The partition's rows of the task's answer."""
        for zone, found in self.zones.items():
            for number, bucket in found.by_number.items():
                bounds = (bucket.first_arrival, bucket.last_arrival, bucket.first_time, bucket.last_time)
                first_arrival, last_arrival, first, last = (NO_NUMBER if at is None else at for at in bounds)
                yield Row(
                    Kind.BUCKET,
                    partition,
                    first_arrival=first_arrival,
                    last_arrival=last_arrival,
                    records=bucket.count,
                    zone=zone,
                    shift=found.shift,
                    number=number,
                    digest=bucket.digest,
                    first_time=first,
                    last_time=last,
                )


def _changes(numbers: np.ndarray, zones: np.ndarray) -> np.ndarray:
    """The indexes after which the bucket or the zone is another one."""
    return np.flatnonzero((numbers[1:] != numbers[:-1]) | (zones[1:] != zones[:-1]))


def _bounds(times: np.ndarray, starts: np.ndarray) -> tuple[list[int | None], list[int | None]]:
    """The smallest and the largest time of each segment; None where a segment has none."""
    last = np.maximum.reduceat(times, starts)
    first = np.minimum.reduceat(np.where(times <= MISSING, _LATEST, times), starts)
    is_none = last <= MISSING

    def known(found: np.ndarray) -> list[int | None]:
        return [None if none else int(at) for at, none in zip(found, is_none, strict=True)]

    return known(first), known(last)


class _Scan:
    """One task's pass over its records."""

    def __init__(self, has_arrival: bool, has_sequence: bool, known: Mapping[int, Known]) -> None:
        self._has_arrival = has_arrival
        self._has_sequence = has_sequence
        self._known = known
        self._positions: dict[int, Positions] = {}
        self._logs: dict[int, _Log] = {}
        self._ranges: dict[int, Range] = {}
        self._records = self._quarantined = self._missing = self._without_place = 0
        self._event_times: list[int] = []

    def add(self, batch: pa.RecordBatch) -> None:
        columns = dict(zip(batch.schema.names, (column.to_numpy() for column in batch.columns), strict=True))
        self._count(columns[TIME])
        placing = [values for name, values in columns.items() if name not in (TIME, HASH)]
        nulls = [values == NO_NUMBER for values in placing if len(values) and values.min() == NO_NUMBER]
        if nulls:
            has_position = ~np.logical_or.reduce(nulls)
            self._add_unusable({name: values[~has_position] for name, values in columns.items()})
            columns = {name: values[has_position] for name, values in columns.items()}
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
            positions = self._positions.setdefault(partition, Positions(self._known.get(partition)))
            places = own_arrivals if self._has_arrival else None
            positions.add(own_offsets, places, columns[HASH][chosen], columns[TIME][chosen])

    def _add_unusable(self, columns: Mapping[str, np.ndarray]) -> None:
        """Records without a position. Those that lack no more than an arrival may have had one before."""
        partitions, offsets = columns[PARTITION], columns[OFFSET]
        placed = (partitions != NO_NUMBER) & (offsets != NO_NUMBER)
        self._without_place += int((~placed).sum())
        if not self._known or not placed.any():
            return
        chosen = {name: values[placed] for name, values in columns.items()}
        for partition, own in _grouped(chosen[PARTITION]):
            if (known := self._known.get(partition)) is not None:
                positions = self._positions.setdefault(partition, Positions(known))
                positions.add_unusable(chosen[OFFSET][own], chosen[HASH][own])

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
        """The task's answer."""
        first, last = self._event_times or (NO_NUMBER, NO_NUMBER)
        counts = {"records": self._records, "quarantined": self._quarantined, "missing": self._missing}
        yield Row(Kind.TOTALS, first=first, last=last, number=self._without_place, **counts)
        for partition, seen in self._ranges.items():
            first, last = seen.first_arrival or 0, seen.last_arrival or 0
            yield Row(Kind.RANGE, partition, seen.first, seen.last, first, last, seen.records)
        for partition, log in self._logs.items():
            yield from log.rows(partition)
        for partition, positions in self._positions.items():
            yield from positions.rows(partition)


def scanned(records: DataFrame, has_arrival: bool, has_sequence: bool) -> DataFrame:
    """The columns that a task reads: BIGINT, never null, and as few as possible, because each column costs time.

    They are PARTITION, OFFSET, ARRIVAL and SEQUENCE where the history has them, with NO_NUMBER for null, TIME: the
    event time in epoch ms, or QUARANTINED or MISSING, and HASH: the hash of the position.
    """
    time = F.when(F.col(REASON).isNotNull(), QUARANTINED).otherwise(F.coalesce(EVENT_TIME, F.lit(MISSING)))
    named = [PARTITION, OFFSET, *([ARRIVAL] if has_arrival else []), *([SEQUENCE] if has_sequence else [])]
    places = [F.coalesce(F.col(name).cast("long"), F.lit(NO_NUMBER)).alias(name) for name in named]
    return records.select(*places, time.cast("long").alias(TIME), position_hash().alias(HASH))


def position_hash() -> Column:
    """The hash of a record's position; of one without arrival that of its partition and offset."""
    return F.xxhash64(F.col(PARTITION).cast("int"), F.col(OFFSET).cast("long"), F.col(ARRIVAL).cast("long"))


def scan_task(
    has_arrival: bool, has_sequence: bool, known: Mapping[int, Known] | None = None
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow`: from the columns of `scanned` to rows with the columns of OUTPUT.

    `known`: what was read before of each partition.
    """

    def scan(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen = _Scan(has_arrival, has_sequence, known or {})
        for batch in batches:
            seen.add(batch)
        rows = list(seen.rows())
        columns = [pa.array([getattr(row, name) for row in rows], pa.int64()) for name in FIELDS]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)

    return scan


def _grouped(partitions: np.ndarray) -> Iterator[tuple[int, slice | np.ndarray]]:
    """Each partition with the indexes of its records, in their order."""
    if partitions[0] == partitions[-1] and (partitions == partitions[0]).all():
        yield int(partitions[0]), slice(None)
        return
    # NumPy sorts numbers of 16 bits by radix, in a tenth of the time.
    narrow = partitions.astype(np.int16) if partitions.min() >= 0 and partitions.max() < 1 << 15 else partitions
    order = np.argsort(narrow, kind="stable")
    ranked = partitions[order]
    for start, end in _between(np.flatnonzero(ranked[1:] != ranked[:-1]), len(ranked)):
        yield int(ranked[start]), order[start:end]


def _between(cuts: np.ndarray, count: int) -> Iterator[tuple[int, int]]:
    """Index ranges `[start, end)` that cover `count` elements; a range ends after each index in `cuts`."""
    return itertools.pairwise([0, *(cuts + 1).tolist(), count])
