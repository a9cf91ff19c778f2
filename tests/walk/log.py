"""The walk's own record of what it writes: which records there are after each step. Nothing of the product is asked."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from tests.runs.small_runs import T0
from tests.walk import plan as s

Place = tuple[int, int]
"""Partition and offset."""
AHEAD = 24 * HOUR
"""From so far ahead of the clock on an arrival is wrong (ms), as definitions have it that do not say."""


PAUSE = 25_000
"""How long nothing arrives after every 40 records (ms): sessions end there."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record; times in epoch ms. `id`: what duplicates share."""

    number: int
    partition: int | None
    offset: int | None
    arrival: int
    key: str
    time: int
    value: int | None
    id: int

    @property
    def place(self) -> Place | None:
        """None: it has no position."""
        return None if self.partition is None or self.offset is None else (self.partition, self.offset)

    def row(self) -> dict[str, Any]:
        """The columns of a history."""
        return {
            "p": self.partition,
            "o": self.offset,
            "a": self.arrival,
            "k": self.key,
            "t": self.time,
            "v": self.value,
            "i": self.id,
        }


@dataclass(frozen=True, slots=True)
class Log:
    """What is there. `held` has offsets and is not there yet, `removed` was there.

    `next`: the next record's number. `ends`: the next offsets. `life`: how many logs were there before this one.
    `waited`: hours that went by beside the seconds of the records. `regions`: what keys belong to. `factor`: of what
    values are read as. `batches`: of a query, the number below which each of its batches has read all records.
    `before`: the log before each change of a table, for a roll-back. `archived`: of a topic, the number below which all
    records are in a table. `redefined`: how often the definition has changed.
    """

    records: Mapping[int, Record] = field(default_factory=dict[int, Record])
    held: tuple[Record, ...] = ()
    removed: tuple[Record, ...] = ()
    next: int = 0
    ends: tuple[int, int] = (0, 0)
    life: int = 0
    waited: int = 0
    regions: Mapping[str, str] = field(default_factory=lambda: {"a": "north", "b": "south"})
    factor: int = 1
    batches: tuple[int, ...] = ()
    before: tuple[Log, ...] = ()
    archived: int = 0
    redefined: int = 0

    @property
    def now(self) -> int:
        """The clock: a minute after the last record."""
        return self.time_of(self.next) + MINUTE

    def time_of(self, number: int) -> int:
        """When a record of this number arrives, if nothing is wrong with it: one a second, and pauses between."""
        return T0 + self.life * DAY + self.waited * HOUR + number * 1000 + number // 40 * PAUSE

    def after(self, step: s.Step) -> Log:
        """The log after a step; a run changes nothing."""
        match step:
            case s.Arrive() | s.FastForward():
                made, log = self._made(step if isinstance(step, s.Arrive) else s.Arrive(step.count))
                return log._with(made)._since(self)
            case s.Hold(count):
                made, log = self._made(s.Arrive(count))
                return replace(log, held=(*self.held, *made))
            case s.Deliver():
                return replace(self._with(self.held), held=())._since(self)
            case s.Correct(first, last, what):
                return self._with(_corrected(r, what) for r in self.between(first, last))._since(self)
            case s.Remove(first, last):
                return self._without(self.between(first, last))._since(self)
            case s.Cut(before, only):
                gone = [r for r in self.between(0, before - 1) if only in (None, r.partition)]
                return self._without(gone)._since(self)
            case s.PutBack():
                return replace(self._with(self.removed), removed=())._since(self)
            case s.AnotherLog(count):
                empty = replace(self, records={}, held=(), removed=(), next=0, ends=(0, 0), before=())
                empty = replace(empty, life=self.life + 1)
                made, log = empty._made(s.Arrive(count))
                return log._with(replace(r, key="z") for r in made)._since(self)
            case s.RollBack(changes):
                then = self.before[-min(changes, len(self.before))] if self.before else self
                return replace(then, waited=self.waited, regions=self.regions, redefined=self.redefined)
            case s.NewColumn():
                # Older snapshots are read by today's names: no roll-back goes behind a new column.
                return replace(self._with(replace(r, value=None) for r in self.records.values()), before=())
            case s.Reload(how):
                return replace(self, before=()) if how is s.How.REPLACE else self._since(self)
            case s.Move(key, region):
                return replace(self, regions={**self.regions, key: region})
            case s.Batches(count, size):
                begin = self.batches[-1] if self.batches else 0
                ends = range(begin + size, min(self.next, begin + count * size) + 1, size)
                return replace(self, batches=(*self.batches, *ends))
            case s.Restore(batch):
                return replace(self, batches=self.batches[: batch + 1])
            case s.Archive():
                return replace(self, archived=self.next)
            case s.Redefine():
                return replace(self, redefined=self.redefined + 1)
            case s.AlterView(factor):
                return replace(self, factor=factor)
            case s.Wait(hours):
                return replace(self, waited=self.waited + hours)
            case s.Expire():
                return replace(self, before=())
            case _:
                return self

    def of_partition(self, number: int) -> Log:
        """The records of a partition alone, under the number 0. Those without one are in the first."""
        own = {
            n: replace(r, partition=None if r.place is None else 0)
            for n, r in self.records.items()
            if (r.partition or 0) == number
        }
        return replace(self, records=own)

    def between(self, first: int, last: int) -> list[Record]:
        """The records that are there, from number to number."""
        return [r for n, r in self.records.items() if first <= n <= last]

    def _made(self, step: s.Arrive) -> tuple[list[Record], Log]:
        made, ends, number = [], list(self.ends), self.next
        for _ in range(step.count):
            partition = number % 2 if step.only is None else step.only
            arrival = self.time_of(number)
            late = 2 * MINUTE if number % 25 == 24 else 0
            made.append(
                Record(
                    number,
                    None if step.unplaced else partition,
                    None if step.unplaced else ends[partition],
                    arrival + step.ahead * HOUR - step.back * 1000,
                    "ab"[number % 3 == 0],
                    arrival - late - step.behind * 1000,
                    number + step.add,
                    number - step.repeats,
                )
            )
            ends[partition] += not step.unplaced
            number += 1
        return made, replace(self, next=number, ends=(ends[0], ends[1]))

    def _with(self, records: Iterable[Record]) -> Log:
        return replace(self, records={**self.records, **{r.number: r for r in records}})

    def _without(self, records: Iterable[Record]) -> Log:
        gone = {r.number: r for r in records}
        there = {n: r for n, r in self.records.items() if n not in gone}
        return replace(self, records=there, removed=(*self.removed, *gone.values()))

    def _since(self, before: Log) -> Log:
        return replace(self, before=(*before.before, replace(before, before=())))


def _corrected(record: Record, what: s.Field) -> Record:
    match what:
        case s.Field.VALUE:
            return replace(record, value=(record.value or 0) + 1000)
        case s.Field.KEY:
            return replace(record, key="c")
        case s.Field.TIME:
            return replace(record, time=record.time - 90_000)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a run reads: good records in the order of the log, what goes to quarantine, and the end offsets."""

    records: tuple[Record, ...]
    quarantined: tuple[Record, ...]
    ends: Mapping[int, int]


def read(
    log: Log,
    *,
    until: int | None = None,
    as_of: int | None = None,
    at_least: Mapping[int, int] | None = None,
    running_maximum: bool = False,
) -> Reading:
    """What is to be read of the log, up to the arrival of the record `until` or below the record `as_of`.

    `at_least`: end offsets up to which it is read all the same, since a run before has read so far.
    """
    good, bad, ends = [], [r for r in log.records.values() if r.place is None], {}
    limit = None if until is None else log.time_of(until)
    for partition in (0, 1):
        placed = sorted((r for r in log.records.values() if r.partition == partition), key=lambda r: r.offset or 0)
        while placed and placed[-1].arrival >= log.now + AHEAD:  # it is not read before it has come to pass
            placed.pop()
        wrong, known = _too_far_ahead(placed), (at_least or {}).get(partition, 0)
        if limit is not None:
            placed = _up_to(
                placed, lambda r, w=wrong, k=known: r.offset < k or (r.number not in w and r.arrival < limit)
            )
        if as_of is not None:
            placed = _up_to(placed, lambda r: r.number < as_of)
        bad += [r for r in placed if r.number in wrong]
        good += _in_order([_times(r, log.factor) for r in placed if r.number not in wrong], running_maximum)
        if placed:
            ends[partition] = (placed[-1].offset or 0) + 1
    ordered = sorted(good, key=lambda one: one[0])
    return Reading(tuple(record for _, record in ordered), tuple(bad), ends)


def _times(record: Record, factor: int) -> Record:
    return record if record.value is None else replace(record, value=record.value * factor)


def _up_to(placed: list[Record], belongs: Any) -> list[Record]:
    last = max((i for i, r in enumerate(placed) if belongs(r)), default=-1)
    return placed[: last + 1]


def _too_far_ahead(placed: list[Record]) -> set[int]:
    """The numbers of records whose arrival exceeds that of a record behind them by more than `AHEAD`."""
    found, lowest = set[int](), None
    for record in reversed(placed):
        if lowest is not None and record.arrival - lowest > AHEAD:
            found.add(record.number)
        else:
            lowest = record.arrival if lowest is None else min(lowest, record.arrival)
    return found


def _in_order(placed: list[Record], running_maximum: bool) -> list[tuple[tuple[int, int, int], Record]]:
    found, highest = [], 0
    for record in placed:
        highest = max(highest, record.arrival) if running_maximum else record.arrival
        found.append(((highest, record.partition or 0, record.offset or 0), replace(record, arrival=highest)))
    return found


def quarantined(log: Log) -> set[int]:
    """The numbers of the records whose arrival is wrong, by what is there."""
    found = set[int]()
    for partition in (0, 1):
        placed = [r for r in log.records.values() if r.partition == partition]
        found |= _too_far_ahead(sorted(placed, key=lambda r: r.offset or 0))
    return found


def goes_back(log: Log) -> bool:
    """Whether an arrival lies before that of the record before it, by less than what is taken for a wrong clock."""
    for partition in (0, 1):
        placed = sorted((r for r in log.records.values() if r.partition == partition), key=lambda r: r.offset or 0)
        wrong = _too_far_ahead(placed)
        arrivals = [r.arrival for r in placed if r.number not in wrong]
        if any(one > other for one, other in itertools.pairwise(arrivals)):
            return True
    return False
