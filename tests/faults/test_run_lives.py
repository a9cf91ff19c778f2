"""Anybody does anything to runs, processes are killed at any write, two work at a time: the tables follow a model.

A Hypothesis state machine on real Iceberg tables. Its actors begin runs over ranges and nights, verify, approve,
publish, override a closed gate, reject, discard and repeat them, mark tasks as done, change the definition and take the
change back, on hosts with clocks that differ, expire snapshots, recover and maintain. A stranger who knows nothing of
Rewindow drops, rolls back, deletes, adds, renames, compacts: the next run corrects that, or refuses.

What a run stages comes from the model (`lives`), because what the engine computes has tests of its own; all that
follows is the product: staging, verification, publication, ledger, recovery, maintenance.

After every step a reader that knows Iceberg alone compares the tables with the model.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    initialize,
    invariant,
    precondition,
    rule,
)
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.life.documents import Answer, Approval, status_of
from spark_jobs.runs.life.processes import STAGES_PROCESS
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.progress import NoProgress
from tests.faults.lives import ModelRun
from tests.faults.lives_stages import WINDOWS, Events, Lives, now
from tests.runs.small_runs import MINUTE, T0, definition_text, record, write
from tests.sampling import sample

STEPS = int(os.environ.get("REWINDOW_LIVES", sample(40, 300)))
"""Steps taken in all, at least; `REWINDOW_LIVES=2000 pytest tests/faults/test_run_lives.py` chooses another number."""
STEPS_OF_ONE = 100
"""Steps of one pipeline, at most: Hypothesis draws the number."""
MAX_BOUNDARY = 30
"""A stage has fewer boundaries; a number beyond its last one stops nothing."""
REST = 60
"""Steps between two maintenances, which take as long as ten other steps."""

cells = st.tuples(st.sampled_from(("a", "b")), st.integers(0, WINDOWS - 1))
kills = st.one_of(st.none(), st.integers(1, MAX_BOUNDARY))
numbers = st.integers(0, 50)
arriving = st.lists(st.tuples(cells, st.booleans()), max_size=3)
ranges = st.sampled_from([(0, WINDOWS), (0, WINDOWS), (0, 1), (1, 3)])
gates = st.sampled_from([False, False, False, True])
clocks = st.sampled_from([timedelta(0), timedelta(0), timedelta(days=1), timedelta(days=-1)])
new_runs = {
    "events": arriving, "bounds": ranges, "night": st.booleans(), "gate_blocks": gates,
    "needs_approval": st.booleans(), "kill": kills, "clock": clocks,
}  # fmt: skip
"""What a run begins with."""


class RunLives(Lives):
    """Actors at the runs of one pipeline."""

    def _chosen(self, number: int) -> ModelRun:
        """One of the last runs: mostly one that is open, now and then any."""
        is_open, any_will_do = [name for name in self.runs if self._is_open(name)], number % 5 < 3
        if not is_open and not any_will_do:
            self.model.version += 1
            self.execute([], (0, WINDOWS), night=False, gate_blocks=False, needs_approval=True, kill=None)
            return self.runs[next(reversed(self.runs))]
        names = list(self.runs) if any_will_do else is_open
        return self.runs[names[-1 - number // 5 % min(3, len(names))]]

    # Actors.

    @initialize(events=arriving)
    def begin_with(self, events: Events) -> None:
        self.execute([(("a", 0), False), *events], (0, WINDOWS), False, False, False, None)

    @rule()
    def change_the_definition(self) -> None:
        self.model.version += 1

    @rule(**new_runs)
    def begin(
        self,
        events: Events,
        bounds: tuple[int, int],
        night: bool,
        gate_blocks: bool,
        needs_approval: bool,
        kill: int | None,
        clock: timedelta,
    ) -> None:
        """The stages up to `verify` of a run in Airflow, after some records have arrived."""
        options = {"gate_blocks": gate_blocks, "needs_approval": needs_approval, "clock": clock}
        run = self._new_run(events, bounds, night=night, **options)
        may_refuse = self._is_refused(run)
        ended = self._carry_out(f"begin {run}", lambda: self._stage(run), kill)
        assert ended != "refused" or may_refuse or self._is_refused(run), self.story
        assert ended != "done" or not may_refuse or self.may_be_settled, self.story

    def _is_refused(self, run: ModelRun) -> bool:
        """Whether a run is refused because somebody else has changed the tables: it covers a part of them."""
        return self.model.is_strange and (run.low, run.high) != (0, WINDOWS)

    @rule(**new_runs)
    def execute(
        self,
        events: Events,
        bounds: tuple[int, int],
        night: bool,
        gate_blocks: bool,
        needs_approval: bool,
        kill: int | None,
        clock: timedelta = timedelta(0),
    ) -> None:
        """A whole run in one process, as on the command line, after some records have arrived."""
        options = {"gate_blocks": gate_blocks, "needs_approval": needs_approval, "clock": clock}
        run = self._new_run(events, bounds, night=night, **options)
        may_refuse, run.repairs = self._is_refused(run), self.model.is_strange
        changes, _ = self.model.effect_of(run)
        whole = partial(self._stage, run, in_stages=False, goes_on=True)
        ended = self._carry_out(f"execute {run}", whole, kill and 2 * kill)
        assert ended != "refused" or may_refuse or self._is_refused(run), self.story
        assert ended != "done" or not may_refuse or self.may_be_settled, self.story
        if ended == "done":
            waits = "gate_failed" if gate_blocks else "awaiting_approval" if needs_approval and changes else ""
            # What a repair changes in the history of revisions alone, nobody has to approve.
            assert self._status(run) in ({waits or "published"} | ({"published"} if run.repairs else set())), self.story

    @rule(number=numbers, kill=kills)
    def verify(self, number: int, kill: int | None) -> None:
        """Also `clear` of the task `verify`, and one whose replay was marked as done."""
        run = self._chosen(number)
        self._carry_out(f"verify {run}", lambda: self._verify(run), kill)

    @rule(number=numbers, kill=kills)
    def publish(self, number: int, kill: int | None) -> None:
        """The task `publish`: without an approval, or with `verify` marked as done, it is refused."""
        self._published(self._chosen(number), "", kill)

    @rule(number=numbers, kill=kills)
    def approve(self, number: int, kill: int | None) -> None:
        run = self._chosen(number)
        folder = self.store.folder(run.run_id)
        Approval(decision=Answer.APPROVED, by="ann", attempt=run.attempt).write(folder)
        self._published(run, "", kill)

    @rule(number=numbers, kill=kills)
    def override(self, number: int, kill: int | None) -> None:
        self._published(self._chosen(number), "it is right", kill)

    def _published(self, run: ModelRun, reason: str, kill: int | None) -> None:
        status, rivals = self._status(run), self.model.rivals_of(run)
        is_strange = self.model.is_strange and not (run.repairs and run.has_seen == self.model.strange)
        later = self.model.published[run.began :]
        publishing = [r for r in self.runs.values() if self._status(r) == "publishing"]
        may_have_rivals = self.has_expired and any(r is not run and r.overlaps(run) for r in (*later, *publishing))
        approval = Approval.read(self.store.folder(run.run_id))
        is_approved = approval is not None and approval.attempt == run.attempt
        waits = bool(status) and RunStatus(status).waits
        allowed = waits and (bool(reason) or status == "staged" or (status == "awaiting_approval" and is_approved))
        had_effect = self.model.has_effect(run)
        ended = self._carry_out(f"publish {run} ({status}) {reason}", lambda: self._publish(run, reason), kill)
        if ended == "killed":
            return
        if status != "published" and allowed and run.has_seen != self.model.strange and ended == "refused":
            return  # somebody else has changed the tables since it began, or another run has corrected them
        if ended == "refused" and "have expired" in self.steps[-1]:
            return  # nobody knows what was done since it began
        assert status == "published" or not is_strange or ended != "done" or self.may_be_settled, self.story
        if status == "published" or (allowed and not rivals and not may_have_rivals and not is_strange):
            assert ended == "done", self.story
            assert self._status(run) == "published", self.story
            assert status == "published" or run.repairs or (run in self.model.commits) == had_effect, self.story
        elif status in ("", "discarded", "rejected", "abandoned") or (waits and (not allowed or rivals)):
            assert ended == "refused", self.story

    @rule(number=numbers, other=numbers, at=st.integers(1, MAX_BOUNDARY), first=st.sampled_from(["publish", "verify"]),
          second=st.sampled_from(["publish", "discard", "verify", "recover", "expire"]))  # fmt: skip
    def two_processes(self, number: int, other: int, at: int, first: str, second: str) -> None:
        """In the middle of what one process does, another one does something to the same run or another."""
        run, rival = self._chosen(number), self._chosen(other)
        firsts = {"publish": lambda: self._publish(run, "it is right"), "verify": lambda: self._verify(run)}
        seconds: dict[str, Callable[[], Any]] = {
            "publish": lambda: self._publish(rival, "me too"),
            "discard": lambda: self._discard(rival),
            "verify": lambda: self._verify(rival),
            "recover": lambda: recover(self.spark, self.tables, now()),
            "expire": self._expire,
        }
        self._carry_out(f"{first} {run}, meanwhile {second} {rival}", firsts[first], at, seconds[second])

    @rule(number=numbers, kill=kills, status=st.sampled_from([RunStatus.DISCARDED, RunStatus.REJECTED]))
    def discard(self, number: int, kill: int | None, status: RunStatus) -> None:
        run = self._chosen(number)
        self._carry_out(f"{status.value} {run} ({self._status(run)})", lambda: self._discard(run, status), kill)

    @precondition(lambda self: any(run not in self.model.published for run in self.runs.values()))
    @rule(number=numbers, kill=kills)
    def clear(self, number: int, kill: int | None) -> None:
        """All tasks of a run are cleared: it begins again, with what is there now."""
        run = self._chosen(number)
        if run in self.model.commits or self._status(run) in ("published", "publishing"):
            return
        again = self.model.run(run.run_id, run.low, run.high, night=not run.replaces)
        again.gate_blocks, again.needs_approval = run.gate_blocks, run.needs_approval
        before = self.reader.runs.get(run.run_id, {}).get("attempt")
        self.runs[run.run_id] = again
        ended = self._carry_out(f"clear {run}", lambda: self._stage(again), kill)
        if self.reader.runs.get(run.run_id, {}).get("attempt") == before:
            self.runs[run.run_id] = run  # killed before it began
        elif before is not None and ended == "killed":
            self.left_behind.add(self._staging(run.run_id, before))

    @rule(days=st.sampled_from([0, 0, 8]), kill=kills)
    def recover(self, days: int, kill: int | None) -> None:
        at = now() + timedelta(days=days)
        ended = self._carry_out(f"recover after {days} d", lambda: recover(self.spark, self.tables, at), kill)
        if ended == "done":
            self._all_is_clear(days > 0)

    def _all_is_clear(self, nobody_waits: bool) -> None:
        rows = self.reader.runs
        for run in self.model.commits:
            if run.run_id in rows:
                assert rows[run.run_id]["status"] == "published", (run, self.story)
        for row in rows.values():
            assert row["status"] != "publishing", (row["run_id"], self.story)
            assert row["status"] != "running" or row["process"] == STAGES_PROCESS, (row["run_id"], self.story)
            said = status_of(self.store.folder(row["run_id"]))
            if said is not None and not self._is_open(row["run_id"]):
                same = RunStatus.PUBLISHED if said is RunStatus.UNCHANGED else said
                assert same == row["status"], ("the document follows the ledger", row["run_id"], said, self.story)
        if nobody_waits:
            assert self.reader.staging <= self.left_behind, self.story

    @rule()
    def take_the_change_of_the_definition_back(self) -> None:
        self.model.version = max(0, self.model.version - 1)

    # A stranger.

    @precondition(lambda self: self.head is not None)
    @rule(what=st.sampled_from(["delete", "delete", "copy", "add", "update"]), key=st.sampled_from(["a", "b"]))
    def write(self, what: str, key: str) -> None:
        """Somebody deletes, doubles, adds or changes rows."""
        name, main = self.tables.windows, self.model.main
        mine = {cell: rows for cell, rows in main.items() if cell[0] == key and rows}
        if not mine and what != "add":
            return
        columns = {c: f"`{c}`" for c in self.spark.table(name).columns}
        if what == "delete":
            self._strange(f"delete {key}", lambda: self.spark.sql(f"DELETE FROM {name} WHERE k = '{key}'"))
            main |= {cell: [] for cell in mine}
        elif what == "copy":
            self._strange(
                f"copy {key}", lambda: self.spark.sql(f"INSERT INTO {name} SELECT * FROM {name} WHERE k = '{key}'")
            )
            main |= {cell: [*rows, *rows] for cell, rows in mine.items()}
        elif what == "update":
            update = f"UPDATE {name} SET n = n + 1 WHERE k = '{key}'"
            self._strange(f"update {key}", lambda: self.spark.sql(update))
            for cell, rows in mine.items():
                main[cell] = [((None if v[0] is None else v[0] + 1, *v[1:]), run, n) for v, run, n in rows]
        else:
            far = (T0 + 7 * WINDOWS * MINUTE) // 1000
            values = {"k": "'far'", "window_start": f"timestamp_seconds({far})", "n": "7L"}
            select = ", ".join(values.get(c, f"NULL AS `{c}`") for c in columns)
            self._strange("add a row", lambda: self.spark.sql(f"INSERT INTO {name} SELECT {select}"))
            cell = ("far", 7 * WINDOWS)
            main[cell] = [*main.get(cell, []), ((7, None, None), None, None)]
        self.model.changed_by_a_stranger()

    @precondition(lambda self: len(self.main_at) > 1)
    @rule(number=numbers)
    def roll_back(self, number: int) -> None:
        before = [snapshot for snapshot, run in self.reader.new_snapshots(None)[:-1] if run]
        known = [snapshot for snapshot in before if snapshot in self.main_at]
        if not known:
            return
        snapshot = known[-1 - number % min(3, len(known))]
        name = self.tables.windows.removeprefix("rewindow.")
        back = f"CALL rewindow.system.rollback_to_snapshot('{name}', {snapshot})"
        main, commits = self.main_at[snapshot]
        self.model.go_back(main, commits)
        self._strange(f"roll back to {snapshot}", lambda: self.spark.sql(back))

    @precondition(lambda self: self.head is not None)
    @rule(what=st.sampled_from(["windows", "late", "column", "renamed column"]))
    def drop(self, what: str) -> None:
        if what == "windows":
            self.model.lose_everything()
            self.main_at = {}
            self._strange("drop the windows", lambda: self.spark.sql(f"DROP TABLE {self.tables.windows}"))
        elif what == "late" and self.reader.late is not None and self.reader.named_late() is not None:
            self.model.late = []
            self.model.changed_by_a_stranger()
            self._strange("drop the late records", lambda: self.spark.sql(f"DROP TABLE {self.tables.late}"))
        elif "column" in what and "total" in self.spark.table(self.tables.windows).columns and self.model.commits:
            self.model.lose_totals()
            self.main_at = {}  # values of before are gone there too
            change = "DROP COLUMN total" if what == "column" else f"RENAME COLUMN total TO total_{next(self.count)}"
            alter = f"ALTER TABLE {self.tables.windows} {change}"
            self._strange(change, lambda: self.spark.sql(alter))

    @precondition(lambda self: self.head is not None and self.rested >= REST // 4)
    @rule()
    def compact(self) -> None:
        """Nobody sees another row: the next run goes on."""
        for name in (self.tables.windows, self.tables.late):
            if self.spark.catalog.tableExists(name):
                table = name.removeprefix("rewindow.")
                options = "options => map('rewrite-all', 'true')"
                call = f"CALL rewindow.system.rewrite_data_files(table => '{table}', {options})"
                self._carry_out(f"compact {table}", lambda call=call: self.spark.sql(call))

    @rule()
    def expire(self) -> None:
        self._carry_out("expire", self._expire)

    @precondition(lambda self: self.head is not None and self.rested >= REST)
    @rule(days=st.sampled_from([0, 1]))
    def maintain(self, days: int) -> None:
        """Snapshots expire at once; with `days`, runs that have ended are forgotten."""
        self._carry_out(
            f"maintain in {days} d",
            lambda: maintain(
                self.spark, self._pipeline(self.model.version), NoProgress(),
                now=now() + timedelta(days=days, hours=1), keep_snapshots=timedelta(0), keep_runs=timedelta(days=1),
            ),
        )  # fmt: skip
        self.has_expired, self.rested = True, 0
        self.left_behind.clear()
        self._all_is_clear(False)
        self.runs = {name: run for name, run in self.runs.items() if name in self.reader.runs}

    # What holds after every step.

    @invariant()
    def tables_hold_what_the_model_says(self) -> None:
        assert self.reader.current() == self.model.current(), self.story
        assert self.reader.late_records() == sorted(self.model.late), self.story

    @invariant()
    def revisions_of_each_window_form_one_chain(self) -> None:
        lives = self.reader.lives()
        for cell, life in lives.items():
            assert [row["revision"] for row in life] == list(range(1, len(life) + 1)), (cell, self.story)
            assert [row["valid_to"] for row in life] == [row["valid_from"] for row in life[1:]] + [None], self.story
            assert [row["run_id"] for row in life] == [run for _, run in self.model.revisions[cell]], self.story
        assert lives.keys() == self.model.revisions.keys(), self.story

    @invariant()
    def nothing_is_staged_by_nobody(self) -> None:
        is_open = {name: row for name, row in self.reader.runs.items() if self._is_open(name)}
        known = {self._staging(name, row["attempt"]) for name, row in is_open.items()}
        assert self.reader.staging <= known | self.left_behind, self.story
        branches = self.reader.branches()
        assert not branches or any(row["claim"] for row in is_open.values()), (branches, self.story)


@pytest.mark.timeout(sample(1800, 8 * 3600))
def test_whatever_people_processes_and_time_do_the_tables_follow_the_model(spark: SparkSession, tmp_path: Path) -> None:
    RunLives.made_ready(spark, tmp_path)
    write(tmp_path / "data", [record(i) for i in range(0, 60 * WINDOWS, 30)])
    text = definition_text("lives", tmp_path / "data")
    RunLives.plan = make_plan(RunLives.spark, load_pipeline(tmp_path / "lives.yaml", text=text))
    RunLives.take(STEPS, STEPS_OF_ONE)
