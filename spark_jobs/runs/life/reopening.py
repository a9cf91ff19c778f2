"""A run that began in another process: opened again from its folder, to go on with it, publish it or discard it."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError, DocumentError
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import Tables, create_tables
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.life.documents import Answer, Approval, Changes, Outcome, Request, StagedRange, recorded_definition
from spark_jobs.runs.life.lifecycle import RunLife, event_that_drops
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.life.store import DEFINITION, RunFolder, RunStore
from spark_jobs.runs.planning.plan import plan_from_json
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.computing import FullWork
from spark_jobs.runs.work.evaluation import EndPolicy, Evaluator
from spark_jobs.runs.work.job import Job, RunResult, job_of
from spark_jobs.runs.work.progress import Progress
from spark_jobs.runs.work.stages import Deliver, Publish
from spark_jobs.spark.failures import catalog_answers

SessionOf = Callable[[Pipeline], SparkSession]


def pipeline_of(folder: RunFolder) -> Pipeline:
    """The definition as it was when the run began. Raises DefinitionError where there is no such run."""
    try:
        request = Request.required(folder)
    except DocumentError:
        if folder.read_bytes(DEFINITION) is None:
            raise
        request = None  # the definition says enough
    pipeline = recorded_definition(folder, request)
    if pipeline is None:
        raise DefinitionError("the run's definition is missing", folder.address(DEFINITION), "Start the run again.")
    return pipeline


def job_in_stages(
    spark: SparkSession, folder: RunFolder, pipeline: Pipeline, plan: Plan, progress: Progress, attempt: str | None
) -> Job:
    """The job of a run whose stages are processes of their own."""
    request = Request.required(folder)
    panes = request.requested.panes
    return job_of(
        spark,
        pipeline,
        plan,
        progress,
        folder.run_id,
        request.kind,
        attempt=attempt,
        panes=Panes(panes) if panes else None,
        in_stages=True,
    )


def reopened(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> tuple[Job, StagedRange]:
    """The job of a run's current attempt, and what that stages. Raises DefinitionError where it has staged nothing."""
    text, staged = folder.read_text(Plan.FILE), StagedRange.read(folder)
    if text is None or staged is None:
        raise DefinitionError(
            f"run {folder.run_id} has staged nothing", folder.address(Plan.FILE), "Repeat it from its plan."
        )
    job = job_in_stages(spark, folder, pipeline, plan_from_json(text), progress, staged.attempt)
    create_tables(spark, job.result.tables)  # also refuses those of another layout
    changes = Changes.read(folder)
    if changes is not None:
        job.result.counts = RunCounts(**changes.counted())
        job.result.windows_recomputed = changes.windows_recomputed
    return job, staged


@catalog_answers()
def publish_staged(
    session_of: SessionOf,
    run_id: str,
    progress: Progress,
    reason: str = "",
    person: str | None = None,
    end_policy: EndPolicy | None = None,
) -> RunResult:
    """Publish what a run has staged; then corrections are delivered, where `end_policy` says how.

    `reason`: why, where neither policy nor gate lets it; `person`: who says so (default: this process's user).
    Raises NotApprovedError, RunStateError or CatalogError where it may not be published, see `publication.publish`.
    """
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    job, staged = reopened(session_of(pipeline), folder, pipeline, progress)
    stages = (Publish(reason, person or (getpass.getuser() if reason else "")), Deliver())
    return Evaluator(FullWork(job), end_policy or EndPolicy(), staged=staged).evaluate(stages)


def discard_staged(
    session_of: SessionOf,
    run_id: str,
    progress: Progress,
    why: str,
    status: RunStatus = RunStatus.DISCARDED,
    *,
    person: str = "",
) -> None:
    """Drop what a run has staged. Raises RunStateError for a run that is published, or that a process works on.

    `person`: who says so, in the words `why`, where nobody has answered the run's question.

    It needs the run's definition and its row in the ledger; its other documents may be damaged.
    """
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    spark, tables = session_of(pipeline), Tables.of(pipeline)
    create_tables(spark, tables)  # also refuses those of another layout
    with progress.stage("discard", run_id):
        ledger, attempts = Ledger(spark, tables), []

        def now() -> datetime:
            return datetime.now(UTC)

        def remember(row: LedgerRow | None) -> None:
            attempts[:] = [None if row is None else row["attempt"]]

        life = RunLife(ledger, run_id, None, now=now)
        # Without an end in the ledger the next run's recovery does what a kill in between leaves undone.
        life.apply(event_that_drops(status), remember, finished_at=None)
        life.attempt = attempts[0]
        Staging(spark, tables.staging(run_id, life.attempt)).drop()
        if person and not _has_said_no(folder):
            answer = Approval(decision=Answer.REJECTED, by=person, at=now().isoformat(), comment=why)
            answer.model_copy(update={"attempt": life.attempt}).write(folder)
        _ended(folder, status, why, now())
        life.set(finished_at=now())


def _has_said_no(folder: RunFolder) -> bool:
    """Whether a person has answered the run's question with no: then their words are kept."""
    with suppress(DocumentError):
        answer = Approval.read(folder)
        return answer is not None and answer.decision is Answer.REJECTED
    return False


def _ended(folder: RunFolder, status: RunStatus, why: str, at: datetime) -> None:
    """Write the outcome of a run that is dropped: with what is known of it from before."""
    new = {"run_id": folder.run_id, "status": status, "message": why, "finished_at": at.isoformat()}
    known = {"counts", "changes", "timings", "note", "applications", "tables"}
    known |= {"fidelity", "fidelity_reasons", "version"}
    with suppress(DocumentError):
        if before := Outcome.read(folder):
            new |= before.model_dump(include=known)
    Outcome(**new).write(folder)
