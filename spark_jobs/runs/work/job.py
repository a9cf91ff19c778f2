"""A run on its way: what all its stages share, and how it ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs import __version__
from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError, NotApprovedError, RewindowError, RunStateError, noted
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.lakehouse.ledger import Ledger, PublishedRanges
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables, branch_of, guarded
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.runs.life.documents import Application, Outcome, failure_fields
from spark_jobs.runs.life.lifecycle import Event, RunLife, new_token
from spark_jobs.runs.life.permission import Decision
from spark_jobs.runs.life.processes import STAGES_PROCESS
from spark_jobs.runs.life.status import RunKind, RunStatus, Stage
from spark_jobs.runs.life.store import RunFolder, RunStore, checked_run_id
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.causes import published_before
from spark_jobs.runs.work.corrected import DeliveredCorrections
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources.erased import erasures_of
from spark_jobs.spark.failures import catalog_answers
from spark_jobs.spark.gateway import JAVA_ERRORS


@dataclass(slots=True)
class RunResult:
    """What a run did.

    `windows_recomputed`: see `spark_jobs.runs.work.figures`; None where the run did not get that far.
    """

    run_id: str
    tables: Tables
    counts: RunCounts = field(default_factory=RunCounts)
    windows_recomputed: int | None = None
    changes: dict[str, int] = field(default_factory=dict)
    note: str = ""
    watermark_note: str = ""
    continued_from: str | None = None
    timings: dict[str, float] = field(default_factory=dict)
    decision: Decision | None = None
    corrections: DeliveredCorrections | None = None

    @contextmanager
    def timed(self, stage: str, clock: Callable[[], float]) -> Iterator[None]:
        began = clock()
        yield
        self.timings[stage] = round(self.timings.get(stage, 0.0) + clock() - began, 3)


def chosen_run_id(pipeline: Pipeline, requested: str | None, now: datetime) -> str:
    """The run id that was requested, or `<pipeline>-<UTC time>-<random>`. Raises DefinitionError for an odd one."""
    if requested is None:
        return f"{pipeline.name}-{now:%Y%m%dT%H%M%SZ}-{new_token()[:6]}"
    return checked_run_id(requested)


@dataclass(frozen=True)
class Job:
    """One run on its way: what is to be done, and with what. `in_stages`: its stages may be processes of their own.

    `attempt` names this attempt of the run; its staging has a name of its own.
    """

    spark: SparkSession
    pipeline: Pipeline
    plan: Plan
    spec: ReplaySpec
    kind: RunKind
    progress: Progress
    result: RunResult
    folder: RunFolder
    now: Callable[[], datetime]
    clock: Callable[[], float]
    in_stages: bool = False
    attempt: str | None = None

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.spark, self.result.tables)

    @cached_property
    def life(self) -> RunLife:
        """The run's status in the ledger."""
        process = STAGES_PROCESS if self.in_stages else None
        return RunLife(self.ledger, self.result.run_id, self.attempt, now=self.now, process=process)

    @cached_property
    def published_table(self) -> PublishedTable:
        return PublishedTable(self.spark, self.result.tables.windows)

    @cached_property
    def staging(self) -> Staging:
        return Staging(self.spark, self.result.tables.staging(self.result.run_id, self.attempt), self.life.ensure)

    @cached_property
    def published(self) -> PublishedRanges:
        """What is published, see `published_before`; read once, when the run has its base (`StagedRange.base`).

        If another run of the same range is published after that, this one can not be published any more.
        """
        return published_before(self.ledger, self.plan, self.result.run_id, self.erased_at)

    @cached_property
    def erased_at(self) -> list[datetime]:
        """When people of this pipeline were forgotten."""
        return [one.requested_at for one in erasures_of(self.spark, self.pipeline)]

    @property
    def rows(self) -> int:
        """How many rows go through a shuffle at most."""
        return self.spec.pairs(self.plan.records)

    @property
    def is_faithful(self) -> bool:
        return self.spec.mode is not Mode.COMPLETE

    @contextmanager
    def stage(self, name: str, detail: str) -> Iterator[None]:
        self.life.ensure()
        where = noted(f"stage {name} of {self.pipeline.name}")
        with where, self.progress.stage(name, detail), self.result.timed(name, self.clock):
            yield

    @contextmanager
    def watched(self, stage: Callable[[], Stage | None] = lambda: None) -> Iterator[None]:
        """Write signs of life while the block runs. If it fails, record that in the ledger and in the run's folder.

        `stage` says which one is at work. Raises RunStateError in place of an error of Spark's where another process
        has ended the run meanwhile: what the block reads may be gone then.
        """
        with self.life.beating():
            try:
                with catalog_answers():
                    yield
            except Exception as problem:
                lost = fail(self, problem, stage())
                if lost is not None and not isinstance(problem, RewindowError):
                    raise lost from problem
                raise


def job_of(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    progress: Progress,
    run_id: str,
    kind: RunKind,
    *,
    attempt: str | None,
    panes: Panes | None = None,
    store: RunStore | None = None,
    in_stages: bool = False,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> Job:
    """What the stages of a run share. `attempt`: `new_token()` for a run that begins, else that of its folder."""
    spec = spec_of_plan(spark, pipeline, plan, plan.mode, panes)
    counts = RunCounts(records_read=plan.records, records_quarantined=plan.quarantined)
    result = RunResult(run_id, Tables.of(pipeline), counts)
    folder = (store or RunStore.configured()).folder(run_id)
    return Job(spark, pipeline, plan, spec, kind, progress, result, folder, now, clock, in_stages, attempt)


def fail(job: Job, problem: Exception, stage: Stage | None = None) -> RunStateError | None:
    """Record that the run failed, as far as the catalog still answers.

    The staging is dropped, unless the run is in stages: then the stage that failed can be repeated. A run that is
    published records nothing; nor does one that another process has ended or begun again: returned is what that says.
    Of a run that failed before it began, the ledger has no row.
    """
    if isinstance(problem, (RunStateError, NotApprovedError)):
        return None  # refused: all is as it was
    run_id, table = job.result.run_id, job.published_table
    is_cleared = False
    try:
        if table.head() is not None and run_id in table.published_runs():
            return None  # what is left to do after the commit is done by the next run's recovery
        if job.life.row() is None:  # the run has not begun: the folder alone knows of it
            end(job, RunStatus.FAILED, stage=stage, **failure_fields(problem))
            return None
        # Without an end in the ledger the next run's recovery does what a kill in between leaves undone.
        job.life.apply(Event.FAIL, reason=str(problem)[:1000], finished_at=None)
        if job.life.claim is not None and table.head() is not None:
            branch = branch_of(run_id, job.life.claim)
            guarded("cannot drop branches", table.table, lambda: table.drop_branches(branch))
        if not job.in_stages:
            job.staging.drop()
        is_cleared = True
    except RunStateError as lost:
        return lost
    except (CatalogError, *JAVA_ERRORS):
        pass  # the run's folder says it at least
    end(job, RunStatus.FAILED, stage=stage, **failure_fields(problem))
    if is_cleared:
        with suppress(CatalogError, RunStateError, *JAVA_ERRORS):
            job.life.set(finished_at=job.now())
    return None


def end(job: Job, status: RunStatus, **more: Any) -> None:
    """Write `outcome.json`: where the run stands."""
    result, plan = job.result, job.plan
    applications = Application.all_of(job.folder)
    timings = dict(result.timings)
    for application in applications:
        if application.application_id != job.spark.sparkContext.applicationId:
            for stage, seconds in application.timings.items():
                timings[stage] = round(timings.get(stage, 0.0) + seconds, 3)
    tables = {name: getattr(result.tables, name) for name in ("windows", "late", "quarantine", "runs")}
    Outcome(
        run_id=result.run_id,
        status=status,
        counts=result.counts,
        changes=result.changes,
        timings=timings,
        note=result.note,
        applications=tuple(applications),
        tables={**tables, "staging": job.staging.table},
        fidelity=plan.fidelity,
        fidelity_reasons=plan.fidelity_reasons,
        version=__version__,
        finished_at=job.now().isoformat(),
        **more,
    ).write(job.folder)
