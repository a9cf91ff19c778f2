"""Carries out a walk on the real product, and compares what is published after each run with the truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.union import BLOCK
from spark_jobs.errors import EmptyRangeError, HistoryError, RewindowError
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.account import Account
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from tests.conformance.formats import TINY
from tests.runs.small_runs import T0
from tests.walk import plan as s
from tests.walk.delta import DeltaTable
from tests.walk.hive import HiveTable, HiveView
from tests.walk.iceberg import IcebergTable
from tests.walk.judge import Case
from tests.walk.known_runs import Refusal, Runs
from tests.walk.log import Log
from tests.walk.places import Files, Place
from tests.walk.published import Published, published
from tests.walk.query import Query
from tests.walk.stitched import Stitched
from tests.walk.topic import Topic
from tests.walk.union import Union

_PLACES: dict[s.Kind, type[Place]] = {
    s.Kind.FILES: Files,
    s.Kind.ICEBERG: IcebergTable,
    s.Kind.DELTA: DeltaTable,
    s.Kind.HIVE: HiveTable,
    s.Kind.VIEW: HiveView,
    s.Kind.TOPIC: Topic,
    s.Kind.QUERY: Query,
    s.Kind.UNION: Union,
    s.Kind.STITCHED: Stitched,
}
_ERRORS = {
    Refusal.ANOTHER_LOG: HistoryError,
    Refusal.GOES_BACK: HistoryError,
    Refusal.EMPTY: EmptyRangeError,
    Refusal.COUNTS_TWICE: HistoryError,
}
_names = itertools.count(1)

Check = Callable[[RunResult, Case], Iterable[str]]


def account_balances(result: RunResult, case: Case) -> Iterable[str]:
    """Whether the run's account says of each record what became of it."""
    account = Account.read(RunStore.configured().folder(result.run_id))
    if account is not None and (account.unaccounted_records or account.unaccounted_pairs):
        yield f"the account does not balance: {account}"


CHECKS: tuple[Check, ...] = (account_balances,)
"""What else has to hold after each run that published: each gives sentences on what is wrong."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What went wrong at the step number `at` of a walk. `note`: what the run said of itself."""

    walk: s.Walk
    at: int
    what: tuple[str, ...]
    note: str

    def shown(self) -> str:
        """The steps up to the fault as Python, and what was wrong."""
        more = f"\n  and {len(self.what) - 8} more" if len(self.what) > 8 else ""
        wrong = "\n  ".join(self.what[:8])
        done = replace(self.walk, steps=self.walk.steps[: self.at + 1])
        step = self.walk.steps[self.at]
        return f"after {step!r} ({self.note or 'no note'}):\n  {wrong}{more}\n{done.shown()}"


class Walker:
    """Carries out walks in one Spark; each has a pipeline and a history of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark.newSession(), folder
        self.time = 0
        """The clock of the last run (epoch ms)."""
        for name, value in TINY.items():
            self.spark.conf.set(name, value)

    def first_fault(self, walk: s.Walk) -> Fault | None:
        """Carry out the walk up to its first fault; None: it has none."""
        name = f"walk_{next(_names)}"
        place = _PLACES[walk.kind](self.spark, self.folder, name, walk)
        log, runs, pipeline = Log(), Runs(walk), place.pipeline(0)
        self.time = log.now
        was = Published()
        for at, step in enumerate(walk.steps):
            after = log.after(step)
            if isinstance(step, s.Redefine):
                pipeline = place.pipeline(after.redefined)
                runs.saw(step, after)
            elif not isinstance(step, s.RUNS):
                place.take(step, log, after)
                runs.saw(step, after)
            else:
                note, what, was = self._run(pipeline, step, log, runs, was)
                if what:
                    return Fault(walk, at, what, note)
            log = after
        return None

    def _run(
        self, pipeline: Pipeline, step: s.Step, log: Log, runs: Runs, was: Published
    ) -> tuple[str, tuple[str, ...], Published]:
        expected = runs.refusal(step, log, was)
        self.time = max(self.time + 1, log.now)  # a roll-back does not turn back the clock
        try:
            result = _carried_out(self.spark, pipeline, step, log, self.time)
        except RewindowError as refused:
            return self._refused(pipeline, refused, expected, was)
        if expected is not None:
            return result.note, (f"the run is to be refused: {expected.value}",), was
        now = published(self.spark, pipeline)
        case = runs.case(step, log, was)
        wrong = [*case.faults(now), *runs.wrong_costs(step, result)]
        wrong += [fault for check in CHECKS for fault in check(result, case)]
        runs.ran(step, log, was, now)
        return result.note, tuple(wrong), now

    def _refused(
        self, pipeline: Pipeline, refused: RewindowError, expected: Refusal | None, was: Published
    ) -> tuple[str, tuple[str, ...], Published]:
        said = f"{type(refused).__name__}: {refused}"
        if expected is None:
            return said, (f"refused, and nothing is wrong: {said}",), was
        wrong = []
        if not isinstance(refused, _ERRORS[expected]) or not any(word in str(refused) for word in expected.words):
            wrong.append(f"refused for another reason than `{expected.value}`: {said}")
        now = published(self.spark, pipeline)
        if now != was:
            wrong.append("a run that was refused has changed the tables")
        return said, tuple(wrong), now


def _carried_out(spark: SparkSession, pipeline: Pipeline, step: s.Step, log: Log, time: int) -> RunResult:
    clock = datetime.fromtimestamp(time / 1000, UTC)

    def now() -> datetime:
        return clock

    options: dict[str, Any]
    match step:
        case s.Night(until):
            end = None if until is None else log.time_of(until)
            return reconcile(spark, pipeline, NoProgress(), until=end, now=now)
        case s.Full(as_of, another_log):
            ends = None if as_of is None else Runs.ends_of(log, as_of)
            if ends is not None and pipeline.inputs:
                ends = {number * BLOCK: end for number, end in ends.items()}
            options = {"as_of": ends, "another_log": another_log}
        case s.Part(first, end):
            options = {"start": T0 + first * MINUTE, "end": T0 + end * MINUTE}
        case _:
            raise TypeError(f"{step!r} is no run")
    with planned_records(spark, pipeline, now=now, **options) as (plan, records):
        return execute(spark, pipeline, plan, NoProgress(), records=records, now=now)
