"""Whatever happens to a history's files, a night ends as a full run would, or it refuses or keeps values and says so.

A Hypothesis state machine over real files, nights and full runs. Its actors let files arrive, late, twice, written
again with other values, removed, put back, and merged into one. After each run the published windows are compared with
what the files hold now: a window all of whose records are there has their count and sum; one that lacks records has
what it had; a refused run has changed nothing.

`REWINDOW_HISTORY_LIVES=300 .venv/bin/python -m pytest tests/faults/test_history_lives.py` takes so many steps.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from pyspark.sql import SparkSession

from spark_jobs.conformance.formats import TINY
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.errors import HistoryError
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.windows import HISTORY_GONE
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.job import RunResult
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress
from tests.runs.small_runs import MINUTE, T0, definition_text, write
from tests.sampling import IN_FULL, sample

STEPS = int(os.environ.get("REWINDOW_HISTORY_LIVES", sample(24, 300)))
STEPS_OF_ONE = 30
WINDOWS = 4

Record = dict[str, Any]
Place = tuple[int, int]
"""Partition and offset."""
Cell = tuple[str, int]
"""A key and a window's start (epoch ms)."""

times = st.lists(st.integers(0, WINDOWS * 60 - 1), min_size=1, max_size=6)
numbers = st.integers(0, 100)


class HistoryLives(RuleBasedStateMachine):
    """The files of one pipeline, and what was published of them."""

    spark: ClassVar[SparkSession]
    folder: ClassVar[Path]
    count: ClassVar[Any]
    taken: ClassVar[int]

    def __init__(self) -> None:
        super().__init__()
        self.name = f"history_lives_{next(self.count)}"
        self.data = self.folder / self.name
        self.pipeline = self._load()
        self.files: dict[str, list[Record]] = {}
        self.held: dict[str, list[Record]] = {}
        self.removed: dict[str, list[Record]] = {}
        self.ends = [0, 0]
        self.written = 0
        self.seen: dict[Cell, set[Place]] = {}
        """The records that the published windows were made of, and those that came for them later."""
        self.has_new_loss = self.has_new_late = False
        self.steps: list[str] = []

    def _load(self) -> Pipeline:
        text = definition_text(self.name, self.data, threshold="50 %")
        return load_pipeline(self.folder / f"{self.name}.yaml", text=text.replace("run_tests", "history_lives"))

    # Actors at the files.

    def _did(self, what: str) -> None:
        type(self).taken += 1
        self.steps.append(what)

    def _new(self, seconds: list[int]) -> list[Record]:
        records = []
        for n in seconds:
            partition = n % 2
            arrival = T0 + WINDOWS * MINUTE + (self.ends[0] + self.ends[1]) * 1000
            key = "ab"[n % 3 == 0]
            records.append(
                {"p": partition, "o": self.ends[partition], "a": arrival, "k": key, "t": T0 + n * 1000, "v": n}
            )
            self.ends[partition] += 1
        return records

    def _put(self, name: str, records: list[Record]) -> None:
        self.files[name] = records
        write(self.data, records, name)
        self.written += 1  # no two files of one name and size have one time, as on a disk whose clock is coarse
        os.utime(self.data / name, (self.written, self.written))

    def _take(self, name: str) -> list[Record]:
        (self.data / name).unlink()
        return self.files.pop(name)

    @initialize(seconds=times)
    def begin(self, seconds: list[int]) -> None:
        self._put("file-0.json", self._new([*seconds, 0, 61]))

    @rule(seconds=times)
    def arrive(self, seconds: list[int]) -> None:
        self._did(f"arrive {seconds}")
        self._put(f"file-{next(self.count)}.json", self._new(seconds))

    @rule(seconds=times)
    def hold_back(self, seconds: list[int]) -> None:
        self._did(f"hold back {seconds}")
        self.held[f"late-{next(self.count)}.json"] = self._new(seconds)

    # A window that lost records and gets as many late ones at once has the count that it had: counts do not tell that.
    @precondition(lambda self: self.held and not self.has_new_loss and not self._lacking())
    @rule(number=numbers)
    def deliver(self, number: int) -> None:
        name = sorted(self.held)[number % len(self.held)]
        self._did(f"deliver {name}")
        self._put(name, self.held.pop(name))
        self.has_new_late = True

    @precondition(lambda self: self.files)
    @rule(number=numbers)
    def load_twice(self, number: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self._did(f"load {name} twice")
        self._put(f"again-{next(self.count)}.json", [dict(r) for r in self.files[name]])

    @precondition(lambda self: self._is_twice())
    @rule()
    def remove_what_is_twice(self) -> None:
        self._did("remove what is twice")
        for name in [name for name in self.files if name.startswith("again-")]:
            others = {(r["p"], r["o"]) for other, rs in self.files.items() if other != name for r in rs}
            if all((r["p"], r["o"]) in others for r in self.files[name]):
                self._take(name)

    @precondition(lambda self: self.files)
    @rule(number=numbers, by=st.integers(1, 9))
    def write_again(self, number: int, by: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self._did(f"write {name} again")
        self._put(name, [r | {"v": r["v"] + by} for r in self.files[name]])

    @precondition(lambda self: len(self.files) > 1 and not self.has_new_late)
    @rule(number=numbers)
    def remove(self, number: int) -> None:
        name = sorted(self.files)[number % len(self.files)]
        self._did(f"remove {name}")
        self.removed[name] = self._take(name)
        self.has_new_loss = True

    @precondition(lambda self: self.removed)
    @rule()
    def put_back(self) -> None:
        self._did(f"put back {sorted(self.removed)}")
        for name in sorted(self.removed):
            self._put(name, self.removed.pop(name))

    @precondition(lambda self: len(self.files) > 1 and not self._is_twice() and not self.removed)
    @rule()
    def merge(self) -> None:
        """As a compaction job does."""
        self._did(f"merge {sorted(self.files)}")
        records = [r for name in sorted(self.files) for r in self._take(name)]
        self._put(f"merged-{next(self.count)}.json", records)

    # Runs.

    @rule()
    def night(self) -> None:
        self._run("night", lambda: reconcile(self.spark, self.pipeline, NoProgress()))

    @rule()
    def full_run(self) -> None:
        self._run(
            "full run", lambda: execute(self.spark, self.pipeline, make_plan(self.spark, self.pipeline), NoProgress())
        )

    def _run(self, what: str, run: Any) -> None:
        before = self._published()
        try:
            result: RunResult = run()
        except HistoryError as refused:
            self._did(f"{what} refused: {refused}"[:300])
            assert self._is_twice() or ("another one" in str(refused) and self._is_replaced()), self.story
            assert self._published() == before, self.story
            return
        self._did(f"{what}: {result.note}"[:300])
        self.has_new_loss = self.has_new_late = False
        assert not self._is_twice(), self.story
        self._compare(before, self._published(), result.note)

    def _compare(self, before: dict[Cell, tuple], after: dict[Cell, tuple], note: str) -> None:
        there = self._there()
        for cell, places in there.items():
            self.seen.setdefault(cell, set()).update(places)
        for cell, seen in self.seen.items():
            records = [there[cell][place] for place in sorted(seen & there.get(cell, {}).keys())]
            if len(records) == len(seen):
                value = (len(records), sum(r["v"] for r in records))
                assert after[cell][:2] == value and after[cell][2] != HISTORY_GONE, (cell, self.story)
                assert after[cell][3] == len(records), (cell, self.story)
            elif cell in before:
                assert after[cell][:2] == before[cell][:2], (cell, self.story)
                if after[cell][2] == HISTORY_GONE != before[cell][2]:
                    assert "keep" in note and HISTORY_GONE in note, self.story
        assert after.keys() == self.seen.keys(), self.story

    # What is there.

    def _there(self) -> dict[Cell, dict[Place, Record]]:
        found: dict[Cell, dict[Place, Record]] = {}
        for r in itertools.chain.from_iterable(self.files.values()):
            start = T0 + (r["t"] - T0) // MINUTE * MINUTE
            found.setdefault((r["k"], start), {})[r["p"], r["o"]] = r
        return found

    def _lacking(self) -> bool:
        there = self._there()
        return any(places - there.get(cell, {}).keys() for cell, places in self.seen.items())

    def _is_twice(self) -> bool:
        places = [(r["p"], r["o"]) for r in itertools.chain.from_iterable(self.files.values())]
        return len(places) != len(set(places))

    def _is_replaced(self) -> bool:
        return bool(self.removed)

    def _published(self) -> dict[Cell, tuple]:
        table = Tables.of(self.pipeline).windows
        if not self.spark.catalog.tableExists(table):
            return {}
        rows = self.spark.table(table).collect()
        return {
            (r["k"], round(r["window_start"].timestamp() * 1000)): (
                r["n__complete"],
                r["total__complete"],
                r["state"],
                r["records_on_time"] + r["records_late"] + r["records_dropped"],
            )
            for r in rows
        }

    @property
    def story(self) -> str:
        """What has happened, for whoever reads why a test failed."""
        files = json.dumps({n: [[r["p"], r["o"], r["t"] - T0] for r in rs] for n, rs in self.files.items()})
        return "\n".join(["", *self.steps, files])


@pytest.mark.timeout(sample(1800, 8 * 3600))
def test_whatever_happens_to_files_a_night_is_right_or_says_why_not(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    for name, value in TINY.items():
        session.conf.set(name, value)
    HistoryLives.spark, HistoryLives.folder, HistoryLives.count = session, tmp_path, itertools.count(1)
    HistoryLives.taken = 0
    for number in itertools.count(random.randrange(2**32) if IN_FULL else 0):
        print(f"seed {number}, after {HistoryLives.taken} steps")
        chosen = settings(
            max_examples=2,
            stateful_step_count=STEPS_OF_ONE,
            deadline=None,
            database=None,
            phases=(Phase.generate,),
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=[*HealthCheck],  # pyright: ignore[reportArgumentType]
        )
        run_state_machine_as_test(seed(number)(HistoryLives), settings=chosen)
        if HistoryLives.taken >= STEPS:
            break
