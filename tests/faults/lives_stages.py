"""For `test_run_lives`: the product as a stage uses it, and a step that is killed, or disturbed by another process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import Tables, create_tables
from spark_jobs.runs.life.documents import Gate, StagedRange
from spark_jobs.runs.life.lifecycle import new_token
from spark_jobs.runs.life.permission import Action
from spark_jobs.runs.life.processes import STAGES_PROCESS
from spark_jobs.runs.life.publication import conclude, publish
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.reopening import discard_staged, publish_staged, reopened
from spark_jobs.runs.life.start import Asked, begin, foreign_change, from_table, with_scope
from spark_jobs.runs.life.status import RunKind, RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.job import Job, job_of
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.runs.work.verification import verified
from spark_jobs.spark.gateway import loaded_iceberg_table
from tests.faults.boundaries import Stopped, stopped_at, watched_steps
from tests.faults.lives import Cell, Event, Model, ModelRun, Row
from tests.faults.lives_tables import Reader, late_of, windows_of
from tests.faults.machine import Machine
from tests.runs.small_runs import MINUTE, T0, definition_text

WINDOWS = 3
Events = list[tuple[Cell, bool]]
"""The windows of records that arrive, and whether each is late."""


def now() -> datetime:
    return datetime.now(UTC)


class Lives(Machine):
    """The runs of one pipeline, and the model; subclasses have the rules."""

    plan: ClassVar[Plan]

    def __init__(self) -> None:
        super().__init__()
        self.name = f"lives_{next(self.count)}"
        self.model = Model(WINDOWS)
        self.runs: dict[str, ModelRun] = {}
        self.head: int | None = None
        self.has_expired = False
        self.rested = 0
        self.may_be_settled = False
        """A run that corrects the tables may have been killed when it had written down that they are right."""
        self.main_at: dict[int, tuple[dict[Cell, list[Row]], int]] = {}
        """By snapshot what readers saw, and how many commits there were."""
        self.left_behind: set[str] = set()
        """Staging that a kill may have left of attempts that were replaced: `maintain` drops it."""
        self.store = RunStore.configured()
        self.tables = Tables.of(self._pipeline(0))
        create_tables(self.spark, self.tables)
        self.reader = Reader(self.tables)
        self.reader.look()

    # The product, as a stage uses it.

    def _pipeline(self, version: int) -> Pipeline:
        text = definition_text("lives", self.folder / "data").replace("sum(v)", f"sum(v) + {version}")
        return load_pipeline(self.folder / "lives.yaml", text=text.replace("run_tests", self.name))

    def _job(self, run: ModelRun, attempt: str, *, in_stages: bool) -> Job:
        pipeline = self._pipeline(run.version)
        span = TimeRange(T0 + run.low * MINUTE, T0 + run.high * MINUTE)
        ends = tuple(replace(p, end_offset=run.as_of if p.partition == 0 else 0) for p in self.plan.partitions)
        update = {
            "definition_hash": pipeline.definition_hash,
            "span": span,
            "chunks": (span,),
            "is_whole": (run.low, run.high) == (0, WINDOWS),
            "partitions": ends,
            "processing_time_end": T0 + 100 * MINUTE + run.as_of,
        }
        plan = self.plan.model_copy(update=update)
        kind = RunKind.BACKFILL if run.replaces else RunKind.RECONCILE
        return job_of(
            self.spark, pipeline, plan, NoProgress(), run.run_id, kind,
            attempt=attempt, in_stages=in_stages, now=lambda: now() + run.clock,
        )  # fmt: skip

    def _stage(self, run: ModelRun, *, in_stages: bool = True, goes_on: bool = False) -> None:
        """Begin a run and stage what it computes; with `goes_on` to its end, in this process."""
        recover(self.spark, self.tables, now())
        run.attempt, run.was_verified = new_token(), False
        self._look_at_the_tables(run)
        job = self._job(run, run.attempt, in_stages=in_stages)
        staged = StagedRange(
            **from_table(job.published_table.now()),
            reach=job.plan.span,
            replaces=run.replaces,
            since=None if run.since is None else {0: run.since, 1: 0},
            recent=None if run.replaces else job.plan.span,
            attempt=run.attempt,
            expected={StagedPart.WINDOWS.value: (1,), StagedPart.LATE.value: (1,)},
        )
        if run.replaces:
            staged = with_scope(job, staged)
        run.repairs = staged.repairs
        run.base, run.began = len(self.model.commits), len(self.model.published)
        with job.watched():
            begin(job, Asked(), now())
            staged.write(job.folder)
            job.staging.write(1, self.spark.createDataFrame(windows_of(run)))
            job.staging.write(1, self.spark.createDataFrame(late_of(run)), StagedPart.LATE)
            if goes_on:
                self._conclude(job, staged, run)

    def _look_at_the_tables(self, run: ModelRun) -> None:
        """The product's look before a run: it notices what somebody else did, and knows which run was the last one.

        Where snapshots have expired it may doubt: then a night is a full run.
        """
        is_another = F.col("definition_hash") != self._pipeline(run.version).definition_hash
        ledger = Ledger(self.spark, self.tables)
        last, chosen = ledger.latest_published(is_another | F.coalesce("whole", F.lit(False)))
        changed = last and foreign_change(self.spark, self.tables, last)
        if self.model.is_strange and last is not None and changed is None:
            assert self.may_be_settled, ("not noticed", self.story)
        if not self.model.is_strange and changed is not None:
            assert "have expired" in changed, (changed, self.story)
            self.model.changed_by_a_stranger()
            if not run.replaces:
                full = self.model.run(run.run_id, 0, WINDOWS, night=True)
                run.since, run.as_of, run.windows, run.late = None, full.as_of, full.windows, full.late
        run.has_seen = self.model.strange
        expected = (r for r in reversed(self.model.published) if r.version != run.version or r.is_whole(WINDOWS))
        before = next(expected, None)
        if (
            chosen is None
            or before is None
            or before.run_id not in self.reader.runs
            or any(step.startswith("killed") for step in self.steps)
        ):
            return
        assert chosen["run_id"] == before.run_id or not chosen["changes"], (chosen["run_id"], before, self.story)

    def _conclude(self, job: Job, staged: StagedRange, run: ModelRun) -> None:
        result = {"success": not run.gate_blocks, "severity": "critical"}
        gate = {"verdict": "failed" if run.gate_blocks else "passed", "blocks": run.gate_blocks, "results": [result]}
        policy = Policy.ON_APPROVAL if run.needs_approval else Policy.ALWAYS
        with verified(job, staged, self.spark.range(0), None, lambda _: Gate.model_validate(gate)) as checked:
            decision = conclude(job, policy, checked, waits=job.in_stages)
            if decision.action is Action.PUBLISH and not job.in_stages:
                publish(job, staged, difference=checked.difference, evidence=checked.evidence)

    def _verify(self, run: ModelRun) -> None:
        folder = self.store.folder(run.run_id)
        job, staged = reopened(self.spark, folder, self._pipeline(run.version), NoProgress())
        with job.watched():
            self._conclude(job, staged, run)

    def _publish(self, run: ModelRun, reason: str = "") -> None:
        publish_staged(lambda _: self.spark, run.run_id, NoProgress(), reason)

    def _discard(self, run: ModelRun, status: RunStatus = RunStatus.DISCARDED) -> None:
        discard_staged(lambda _: self.spark, run.run_id, NoProgress(), "no", status)

    def _expire(self) -> None:
        """All snapshots expire that no branch or tag names, as a platform may let them."""
        for name in (self.tables.windows, self.tables.late, self.tables.runs):
            if self.spark.catalog.tableExists(name):
                table = loaded_iceberg_table(self.spark, name)
                late = round((now() + timedelta(days=1)).timestamp() * 1000)
                table.expireSnapshots().expireOlderThan(late).retainLast(1).commit()
        self.has_expired = True

    # A step: it may be killed, or another process may do something in the middle of it.

    def _carry_out(
        self, what: str, action: Callable[[], Any], kill: int | None = None, between: Callable[[], Any] | None = None
    ) -> str:
        """`done`, `refused` or `killed`. With `between`, that is done at the boundary `kill`."""
        numbered, lock = itertools.count(1), threading.Lock()

        def boundary(_: str) -> None:
            with lock:
                number = next(numbered)
            if between is not None and number == kill:
                try:
                    between()
                except RewindowError as problem:
                    self.steps.append(f"  meanwhile refused: {problem}"[:200])

        try:
            if between is not None:
                with watched_steps(boundary):
                    action()
            elif kill is not None:
                with stopped_at(kill):
                    action()
            else:
                action()
            ended = "done"
        except Stopped:
            ended = "killed"
        except RewindowError as problem:
            ended = "refused"
            what += f": {problem}"[:200]
        self.steps.append(f"{ended}: {what} (at {kill})")
        self._follow()
        if ended == "killed":
            self.may_be_settled |= any(run.repairs for run in self.runs.values())
        return ended

    def _follow(self) -> None:
        """Let the model make the commits that the table's history shows since the last look."""
        self.rested += 1
        type(self).taken += 1
        self.reader.look()
        for run_id, row in self.reader.runs.items():
            run = self.runs.get(run_id)
            if run is not None:
                run.was_verified |= row["evidence"] is not None and row["attempt"] == run.attempt
        for snapshot, run_id in self.reader.new_snapshots(self.head):
            run = self.runs.get(run_id)
            if run is not None:
                assert run not in self.model.commits, ("a run is published once", self.story)
                assert run.was_verified, ("only what was verified is published", self.story)
                assert not self.model.rivals_of(run), ("no rival has published the range", self.story)
                assert self.model.has_effect(run) or run.repairs, self.story
                assert not self.model.is_strange or run.has_seen == self.model.strange, ("built on it", self.story)
                self.model.publish(run)
            self.head = snapshot
            main = {cell: list(rows) for cell, rows in self.model.main.items()}
            self.main_at[snapshot] = main, len(self.model.commits)
        for run_id, row in self.reader.runs.items():
            run = self.runs.get(run_id)
            if run is not None and row["status"] == "published" and run not in self.model.published:
                assert run in self.model.commits or run.was_verified, self.story
                self.model.published.append(run)
                if run.repairs and run.has_seen == self.model.strange:
                    self.model.is_strange = False

    def _strange(self, what: str, action: Callable[[], Any]) -> None:
        """Somebody else does something to the tables, and no run is at work meanwhile."""
        self.steps.append(f"a stranger: {what}")
        action()
        self.may_be_settled = False
        self.reader.look()
        snapshot = None if self.reader.windows is None else self.reader.windows.current_snapshot()
        self.head = None if snapshot is None else snapshot.snapshot_id
        for run in self.runs.values():
            run.base = min(run.base, len(self.model.commits))

    def _status(self, run: ModelRun) -> str:
        return self.reader.runs.get(run.run_id, {}).get("status", "")

    def _is_open(self, run_id: str) -> bool:
        row = self.reader.runs.get(run_id)
        if row is None:
            return False
        status = RunStatus(row["status"])
        fails = status is RunStatus.FAILED and row["process"] == STAGES_PROCESS
        return status.waits or status.has_work or fails or row["finished_at"] is None

    def _new_run(
        self,
        events: Events,
        bounds: tuple[int, int],
        *,
        night: bool,
        gate_blocks: bool,
        needs_approval: bool,
        clock: timedelta = timedelta(0),
    ) -> ModelRun:
        self.model.log += [Event(cell, is_late) for cell, is_late in events]
        run = self.model.run(f"{self.name}-{next(self.count)}", *bounds, night=night)
        run.gate_blocks, run.needs_approval, run.clock = gate_blocks, needs_approval, clock
        self.runs[run.run_id] = run
        return run

    def _staging(self, run_id: str, attempt: str) -> str:
        return self.tables.staging(run_id, attempt).rsplit(".", 1)[1]
