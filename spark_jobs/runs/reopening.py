"""A run that began in another process: opened again from its folder, to go on with it, publish it or discard it."""

from __future__ import annotations

import getpass
from collections.abc import Callable

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.errors import DefinitionError
from spark_jobs.lakehouse.tables import create_tables
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.documents import Changes, Request, StagedRange
from spark_jobs.runs.job import Job, RunResult, job_of
from spark_jobs.runs.plan import Plan, plan_from_json
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.publication import drop, publish
from spark_jobs.runs.recorded import recorded_definition
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import DEFINITION, PLAN, RunFolder, RunStore

SessionOf = Callable[[Pipeline], SparkSession]


def pipeline_of(folder: RunFolder) -> Pipeline:
    """The definition as it was when the run began. Raises DefinitionError where there is no such run."""
    pipeline = recorded_definition(folder, Request.required(folder))
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
    text, staged = folder.read_text(PLAN), StagedRange.read(folder)
    if text is None or staged is None:
        raise DefinitionError(
            f"run {folder.run_id} has staged nothing", folder.address(PLAN), "Repeat it from its plan."
        )
    job = job_in_stages(spark, folder, pipeline, plan_from_json(text), progress, staged.attempt)
    create_tables(spark, job.result.tables)  # those of an earlier version lack columns
    changes = Changes.read(folder)
    if changes is not None:
        job.result.take_counts(changes)
    return job, staged


def publish_staged(
    session_of: SessionOf, run_id: str, progress: Progress, reason: str = "", person: str | None = None
) -> RunResult:
    """Publish what a run has staged.

    `reason`: why, where neither policy nor gate lets it; `person`: who says so (default: this process's user).
    Raises NotApprovedError, RunStateError or CatalogError where it may not be published, see `publication.publish`.
    """
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    job, staged = reopened(session_of(pipeline), folder, pipeline, progress)
    with job.watched():
        publish(job, staged, reason=reason, person=person or (getpass.getuser() if reason else ""))
    return job.result


def discard_staged(
    session_of: SessionOf,
    run_id: str,
    progress: Progress,
    why: str,
    status: RunStatus = RunStatus.DISCARDED,
) -> None:
    """Drop what a run has staged. Raises RunStateError for a run that is published, or that a process works on."""
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    job, _ = reopened(session_of(pipeline), folder, pipeline, progress)
    drop(job, status, why)
