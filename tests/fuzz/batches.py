"""Looks for a record that is a fault, among thousands that one Spark job reads.

A record must have one outcome: it is read, or there is a reason why it cannot be. The outcome must not depend on the
records around it: good ones lie among the damaged ones, and each record is there twice, among different neighbours.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from tests.fuzz.limits import Fault, Limit, try_input
from tests.fuzz.mutations import TOKENS, shown_bytes
from tests.fuzz.search import Finding, Tally

BATCH = 5_000
_GOOD_ONE_IN = 5
_TRIES, _SHRINKING = 60, 90.0
"""Spark jobs, and seconds, for making a finding smaller."""
_SMALL_TOKENS = tuple(token for token in TOKENS if len(token) < 1_000)

Outcomes = Mapping[int, Sequence[str]]
"""What became of records, by their numbers: of one that was read twice, both."""
Rewrite = Callable[[random.Random, bytes], bytes]
"""Replaces a value of a record, so that the record is still of its format."""


@dataclass(frozen=True, slots=True)
class BatchKind:
    """A kind of record.

    `samples`: good records. `outcomes`: what becomes of records, by their place in the sequence. `may_drop`: a damaged
    record may be left out (a delete, for instance).
    """

    name: str
    samples: Sequence[bytes]
    outcomes: Callable[[SparkSession, Sequence[bytes]], Outcomes]
    rewrite: Rewrite
    may_drop: bool = False
    limit: Limit = field(default_factory=lambda: Limit(seconds=60, megabytes=8192))

    def search(self, spark: SparkSession, first_seed: int, least: int, until: float, size: int = BATCH) -> Tally:
        """Try records until `least` are tried and the time (of `time.monotonic`) is over, or one is a fault."""
        check = _Check(spark, self)
        tried = 0
        for number in range(first_seed, first_seed + 1_000_000):
            if tried >= least and time.monotonic() >= until:
                break
            records = self.made(number, size)
            problem = check.problem_of(records)
            tried += len(records)
            if problem is not None:
                small, problem = check.smallest(records, problem)
                shown = ", ".join(map(shown_bytes, small))
                return Tally(tried, Finding(self.name, number, shown, problem))
        return Tally(tried)

    def made(self, number: int, size: int) -> list[bytes]:
        """The records of a seed: nearly good ones, and among them good ones."""
        chance = random.Random(f"{self.name} {number}")
        return [
            chance.choice(self.samples) if index % _GOOD_ONE_IN == 0 else self._damaged(chance) for index in range(size)
        ]

    def _damaged(self, chance: random.Random) -> bytes:
        record = chance.choice(self.samples)
        for _ in range(chance.choice((1, 1, 2, 3))):
            record = self.rewrite(chance, record) if chance.random() < 0.5 else _with_damage(chance, record)
        return record


def _with_damage(chance: random.Random, record: bytes) -> bytes:
    start = chance.randint(0, len(record))
    end = min(len(record), start + chance.randint(0, 20))
    token = chance.choice(TOKENS if chance.random() < 0.02 else _SMALL_TOKENS)
    match chance.choice(("insert", "replace", "cut", "repeat", "remove", "random")):
        case "insert":
            return record[:start] + token + record[start:]
        case "replace":
            return record[:start] + token + record[end:]
        case "cut":
            return record[:start]
        case "repeat":
            return record[:end] + record[start:end] + record[end:]
        case "random":
            return record[:start] + chance.randbytes(chance.randint(1, 6)) + record[end:]
    return record[:start] + record[end:]


class _Check:
    """What is wrong with a batch of records."""

    def __init__(self, spark: SparkSession, kind: BatchKind) -> None:
        self._spark, self._kind = spark, kind
        alone = self._outcomes(kind.samples)
        self._good = {sample: alone[index][0] for index, sample in enumerate(kind.samples)}

    def problem_of(self, records: Sequence[bytes]) -> str | None:
        """The first fault; None: there is none."""
        whole = [*records, *reversed(records)]
        try:
            found = self._outcomes(whole)
        except Fault as fault:
            return str(fault)
        for index, record in enumerate(records):
            problem = self._problem(record, [found.get(index, ()), found.get(len(whole) - 1 - index, ())])
            if problem is not None:
                return problem
        return None

    def _problem(self, record: bytes, found: Sequence[Sequence[str]]) -> str | None:
        good = self._good.get(record)
        if any(len(outcomes) > 1 for outcomes in found):
            return "a record is there more than once"
        if good is not None and any(list(outcomes) != [good] for outcomes in found):
            return f"a good record beside a bad one: {found}, and alone {good}"
        if good is None and not self._kind.may_drop and not all(found):
            return "a record is lost"
        if list(found[0]) != list(found[1]):
            return f"the outcome depends on the neighbours: {found}"
        return None

    def _outcomes(self, records: Sequence[bytes]) -> Outcomes:
        found: list[Outcomes] = []
        with _cancelled_after(self._spark, self._kind.limit.seconds):
            try_input(lambda: found.append(self._kind.outcomes(self._spark, records)), self._kind.limit)
        return found[0]

    def smallest(self, records: Sequence[bytes], problem: str) -> tuple[list[bytes], str]:
        """Few records that are a fault, each as short as the tries allow, and what it is."""
        tries = iter(range(_TRIES))
        until = time.monotonic() + _SHRINKING
        chosen = list(records)

        def is_fault(candidate: Sequence[bytes]) -> bool:
            nonlocal problem
            if next(tries, None) is None or time.monotonic() > until:
                return False
            # A good record beside it, which may be the one that suffers.
            found = self.problem_of([*candidate, self._kind.samples[0]])
            problem = found or problem
            return found is not None

        chosen = _fewer(chosen, is_fault)
        for index in range(len(chosen)):
            if len(chosen) <= 3:
                chosen[index] = _shorter(chosen, index, is_fault)
        return chosen[:3], problem


def _fewer(records: list[bytes], is_fault: Callable[[Sequence[bytes]], bool]) -> list[bytes]:
    """The records without those that the fault does not need, by halves and smaller parts."""
    step = len(records) // 2
    while step:
        for start in range(0, len(records), step):
            part = records[start : start + step]
            if len(part) < len(records) and is_fault(part):
                records, step = part, len(part)
                break
        step //= 2
    return records


def _shorter(records: list[bytes], index: int, is_fault: Callable[[Sequence[bytes]], bool]) -> bytes:
    record = records[index]
    step = len(record) // 2
    while step:
        start = 0
        while start < len(record):
            candidate = record[:start] + record[start + step :]
            if is_fault([*records[:index], candidate, *records[index + 1 :]]):
                record = candidate
            else:
                start += step
        step //= 2
    return record


@contextmanager
def _cancelled_after(spark: SparkSession, seconds: float) -> Iterator[None]:
    """A Spark job that takes longer fails."""
    timer = threading.Timer(seconds * 9, spark.sparkContext.cancelAllJobs)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def by_number(pairs: Sequence[tuple[int, str]]) -> Outcomes:
    """The outcomes by number."""
    found: dict[int, list[str]] = defaultdict(list)
    for number, outcome in pairs:
        found[number].append(outcome)
    return found
