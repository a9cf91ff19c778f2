"""The nights themselves, one after another, and what must be true behind them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import DAY, HOUR
from spark_jobs.lakehouse.corrections import CorrectionTable
from spark_jobs.lakehouse.delivery import DeliveryStatus
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.corrections.small_corrections import read
from tests.fortnight.job import START, LiveJob, Ride, rides
from tests.fortnight.world import HISTORY, NIGHTLY, OUTPUT, Struck, World, deck
from tests.kafka import Sent
from tests.runs.small_nights import assert_history_is_whole, tables_of

AHEAD = 2 * HOUR
"""So much of the next day has arrived when a night begins: it leaves that out."""
MAINTAINED = 3
"""Each third night is followed by maintenance."""
FLAT = 1.5
"""What files and memory of the last third of the nights are of those of the second third, at most."""


@dataclass(frozen=True, slots=True)
class Night:
    """One night: what was struck, what it took, and what it left."""

    number: int
    struck: Struck
    state: str
    cleared: int
    """How often a person had to clear its failed tasks."""
    seconds: float
    files: int
    memory: dict[str, float]
    """MiB, by service."""

    @property
    def stays(self) -> dict[str, float]:
        """What must not grow from night to night."""
        return {"files": self.files, **self.memory}


@dataclass(slots=True)
class Reader:
    """Somebody who applies what the output has, each so many nights."""

    each: int
    state: dict[str, str] = field(default_factory=dict[str, str])
    position: int = 0
    deliveries: Counter[str] = field(default_factory=Counter[str])

    def read(self, spark: SparkSession, servers: str) -> None:
        """Go on from where it was. A null value takes a row away."""
        for row in read(spark, servers, OUTPUT):
            if row["offset"] < self.position:
                continue
            self.position = row["offset"] + 1
            if row["delivery"]:
                self.deliveries[row["delivery"]] += 1
            if row["value"] is None:
                self.state.pop(row["key"], None)
            else:
                self.state[row["key"]] = row["value"]


@dataclass(slots=True)
class Nights:
    """What became of them. `faults`: what is not as it must be, a sentence each."""

    nights: list[Night] = field(default_factory=list[Night])
    faults: list[str] = field(default_factory=list[str])


def live(world: World, spark: SparkSession, count: int, seed: int, said: Callable[[Night], None]) -> Nights:
    """Let `count` days go by, each with its night; `said` is told each night."""
    result, job, readers = Nights(), LiveJob(seed), [Reader(1), Reader(MAINTAINED)]
    draw, log = random.Random(f"nights {seed}"), rides(seed, count)
    for number, struck in enumerate(deck(seed, count), 1):
        until = START + number * DAY
        is_last = number == count
        log = _arrive(world, spark, job, log, until if is_last else until + AHEAD)
        conf = {} if is_last else {"until": format_instant(until)}
        began = time.monotonic()
        state, cleared = world.run(f"reconcile__{NIGHTLY}", conf, struck, draw.uniform(2, 25))
        took = time.monotonic() - began
        if number % MAINTAINED == 0:
            kept, _ = world.run(f"maintain__{NIGHTLY}", {"keep_snapshots": "5 min"}, Struck.NOTHING, 0)
            state = state if kept == "success" else f"maintenance: {kept}"
        for reader in readers:
            if is_last or number % reader.each == 0:
                reader.read(spark, world.broker.servers)
        result.nights.append(Night(number, struck, state, cleared, took, world.files(), world.memory()))
        said(result.nights[-1])
    result.faults += _faults(world, spark, job, readers, result.nights)
    return result


def _arrive(world: World, spark: SparkSession, job: LiveJob, log: list[Ride], until: int) -> list[Ride]:
    """The records before a time reach the topic, and the job; what comes later."""
    now = [ride for ride in log if ride.arrival < until]
    world.send(spark, HISTORY, [Sent(ride.json, ride.partition, timestamp=ride.arrival) for ride in now])
    rows = [row for ride in now for row in job.take(ride)]
    world.send(spark, OUTPUT, [Sent(row.value, key=row.key) for row in rows])
    return log[len(now) :]


def _faults(
    world: World, spark: SparkSession, job: LiveJob, readers: list[Reader], nights: list[Night]
) -> Iterator[str]:
    yield from (f"night {night.number} ended as {night.state}" for night in nights if night.state != "success")
    nightly, full = world.nightly, world.full
    execute(spark, full, make_plan(spark, full), NoProgress())
    if tables_of(spark, nightly) != tables_of(spark, full):
        yield "the tables are not those of one full run"
    assert_history_is_whole(spark, nightly)
    tables = Tables.of(nightly)
    ended = {RunStatus.PUBLISHED, RunStatus.UNCHANGED, RunStatus.FAILED, RunStatus.ABANDONED}
    if left := {row["status"] for row in Ledger(spark, tables).runs().collect()} - ended:
        yield f"runs are left as {', '.join(sorted(left))}"
    deliveries = CorrectionTable(spark, tables.corrections, tuple(nightly.keys)).deliveries()
    if {delivery.status for delivery in deliveries} != {DeliveryStatus.DELIVERED}:
        yield "a delivery of corrections has not ended, or there is none"
    truth = job.truth()
    for reader in readers:
        name = f"the reader of each {reader.each} nights"
        if reader.deliveries != {delivery.id: delivery.rows for delivery in deliveries}:
            yield f"{name} has not had each correction once"
        wrong = {key for key in truth.keys() | reader.state if truth.get(key) != reader.state.get(key)}
        if wrong:
            some = ", ".join(f"{key}: {reader.state.get(key)}, right {truth.get(key)}" for key in sorted(wrong)[:3])
            yield f"{name} has {len(wrong)} of {len(truth)} rows wrong: {some}"
    yield from _growing(nights)


def _growing(nights: list[Night]) -> Iterator[str]:
    """What grows from night to night; nothing is said of fewer than nine."""
    if len(nights) < 9:
        return
    third = len(nights) // 3
    second, last = nights[third : 2 * third], nights[-third:]
    for name in nights[0].stays:
        before, after = (max(night.stays[name] for night in part) for part in (second, last))
        if before and after > FLAT * before:
            yield f"{name}: {before:g} grew to {after:g}"
