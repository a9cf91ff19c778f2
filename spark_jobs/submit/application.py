"""One stage of a run as a Spark application: `spark-submit application.py --run RUN --stage replay --chunk 3`.

All that a stage needs is in the catalog and in the run's folder, and all that it says goes there: no working directory
is shared. The exit code is the error's own; `outcome.json` says what went wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.definition.policy import Policy
from spark_jobs.errors import DefinitionError, HistoryError, RewindowError
from spark_jobs.quality.configured import gate_of
from spark_jobs.replay.engine import History
from spark_jobs.replay.spec import Mode, Panes
from spark_jobs.report.collect import collect
from spark_jobs.runs.backfill import (
    EndPolicy,
    end_run,
    job_of,
    make_timeline,
    opened_replay,
    prepare,
    stage_chunk,
)
from spark_jobs.runs.decision import Decision
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.plan import Plan, make_plan, plan_from_json, read_planned
from spark_jobs.runs.progress import LogProgress, Progress
from spark_jobs.runs.stages import (
    COUNTED,
    Job,
    RunResult,
    Staged,
    begin,
    discard,
    prepare_staging,
    problem_record,
    publish,
    saved_timeline,
    stage_quarantine,
)
from spark_jobs.runs.store import (
    CHANGES,
    DEFINITION,
    ENDED,
    OUTCOME,
    PLAN,
    REQUEST,
    STAGED,
    RunFolder,
    RunStore,
    application_document,
)
from spark_jobs.sources import good
from spark_jobs.spark.session import spark_session


def pipeline_of(folder: RunFolder) -> Pipeline:
    """The definition as it was when the run began. Raises DefinitionError where there is no such run."""
    request, text = folder.read(REQUEST), folder.read_text(DEFINITION)
    if request is None or text is None:
        raise DefinitionError(
            "there is no such run", folder.run_id, "Name one that `rewindow run` or Airflow has started here."
        )
    return load_pipeline(request["file"], text=text)


def reopened(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> tuple[Job, Staged]:
    """A run that began in another process, as its documents tell it."""
    text, staged = folder.read_text(PLAN), folder.read(STAGED)
    if text is None or staged is None:
        raise DefinitionError(
            f"run {folder.run_id} has staged nothing", folder.address(REQUEST), "Repeat it from its plan."
        )
    job = _job_of(spark, folder, pipeline, plan_from_json(text), progress)
    for name, value in (folder.read(CHANGES) or {}).items():
        if name in COUNTED:
            setattr(job.result, name, value)
    return job, Staged.from_dict(staged)


def _job_of(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, plan: Plan, progress: Progress) -> Job:
    request = folder.read(REQUEST) or {}
    panes = request["asked"].get("panes")
    return job_of(
        spark,
        pipeline,
        plan,
        progress,
        folder.run_id,
        request["kind"],
        panes=Panes(panes) if panes else None,
        in_stages=True,
    )


def plan_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """Decide all that the run will do, refuse what cannot be done, and enter the run into the ledger."""
    request = folder.read(REQUEST) or {}
    asked: dict[str, Any] = request["asked"]
    gate_of(pipeline, thorough=True)  # a broken suite is refused before anything is read
    with progress.stage("plan", pipeline.name):
        as_of = asked.get("as_of")
        plan = make_plan(
            spark,
            pipeline,
            start=_instant(asked.get("from")),
            end=_instant(asked.get("to")),
            as_of={int(p): int(end) for p, end in as_of.items()} if as_of else None,
            mode=Mode(asked.get("mode") or Mode.BOTH),
            chunks=asked.get("chunks"),
        )
    folder.write_text(PLAN, plan.to_json())
    if plan.fidelity != "log_order" and plan.mode != Mode.COMPLETE and not asked.get("accept_degraded"):
        raise HistoryError(
            f"the fidelity is `{plan.fidelity}`: {'; '.join(plan.fidelity_reasons)}",
            plan.source,
            "Accept degraded fidelity in the form, or mend history.position.",
        )
    if asked.get("dry_run") == "plan":
        folder.write(OUTCOME, {"run_id": folder.run_id, "status": "dry_run", "message": "a plan, and no more"})
        return
    job = _job_of(spark, folder, pipeline, plan, progress)
    started = datetime.now(UTC)
    if not prepare(job, _history(job, read_planned(spark, pipeline, plan)), started):
        return
    folder.write(STAGED, Staged(job.facts.head(), plan.span, replaces=True).to_dict())
    begin(job, request["reason"], started)


INLINE_RUN_MAX_RECORDS = 1_000_000
"""Up to so many records `plan` goes on with the timeline, and with the only chunk: a JVM's start would cost more."""


def continue_inline(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """Carry out the stages that follow the plan of a small run."""
    text = folder.read_text(PLAN)
    if text is None or folder.status() is not None:
        return
    plan = plan_from_json(text)
    if plan.records <= INLINE_RUN_MAX_RECORDS:
        execute_stage(spark, folder, pipeline, progress, "timeline")
        if len(plan.chunks) == 1:
            execute_stage(spark, folder, pipeline, progress, "replay", 1)


def execute_stage(
    spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress, stage: str, chunk: int | None = None
) -> None:
    """One of the stages between plan and publish."""
    job, staged = reopened(spark, folder, pipeline, progress)
    with told(folder, stage, chunk, spark, job), job.watched():
        if stage == "timeline":
            timeline_stage(job)
        elif stage == "replay":
            replay_stage(job, chunk or 1)
        else:
            verify_stage(job, staged, (folder.read(REQUEST) or {})["asked"])


def timeline_stage(job: Job) -> None:
    """Make the timeline, set the quarantine aside, and make the staging tables that the chunks fill side by side."""
    records = read_planned(job.spark, job.pipeline, job.plan)
    with opened_replay(job, _history(job, records)) as replay:
        make_timeline(job, replay)
        stage_quarantine(job, records)
        prepare_staging(job, replay)


def replay_stage(job: Job, number: int) -> None:
    """Stage one chunk, counted from 1."""
    if not 1 <= number <= len(job.plan.chunks):
        raise DefinitionError(f"there is no chunk {number}", job.result.run_id, f"It has {len(job.plan.chunks)}.")
    began = time.monotonic()
    records = read_planned(job.spark, job.pipeline, job.plan)
    saved = saved_timeline(job) if job.is_faithful else None
    with opened_replay(job, _history(job, records), saved) as replay:
        stage_chunk(job, replay, number)
    chunk = job.plan.chunks[number - 1]
    job.folder.write(
        f"chunk-{number:04}.json",
        {"chunk": number, "start": chunk.start, "end": chunk.end, "seconds": round(time.monotonic() - began, 3)},
    )


def verify_stage(job: Job, staged: Staged, asked: dict[str, Any]) -> Decision | None:
    """Diff, gate and facts; the outcome says what is next."""
    records = read_planned(job.spark, job.pipeline, job.plan)
    with opened_replay(job, _history(job, records), saved_timeline(job) if job.is_faithful else None) as replay:
        timeline = replay.timeline if job.is_faithful else None
        end_run(job, staged, good(records), timeline, manner_of(job.pipeline, asked))
    return job.result.decision


def manner_of(pipeline: Pipeline, asked: dict[str, Any]) -> EndPolicy:
    """How a run in stages ends: what was asked for, or what the definition says."""
    return EndPolicy(
        policy=Policy(asked["publish"]) if asked.get("publish") else None,
        ends_as="dry_run" if asked.get("dry_run") == "diff" else "",
        in_stages=True,
        checks=gate_of(pipeline),
        watcher=collect,
    )


def reconcile_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """A nightly reconciliation up to and with its gate."""
    request = folder.read(REQUEST) or {}
    gate_of(pipeline, thorough=True)
    reconcile(
        spark,
        pipeline,
        progress,
        until=_instant(request["asked"].get("until")),
        run_id=folder.run_id,
        reason=request["reason"],
        manner=manner_of(pipeline, request["asked"]),
    )


def publish_staged(
    session_of: Callable[[Pipeline], SparkSession], run_id: str, progress: Progress, reason: str = ""
) -> RunResult:
    """Publish what a run has staged. `reason`: why, where policy or gate had not let it."""
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    outcome = folder.read(OUTCOME) or {}
    job, staged = reopened(session_of(pipeline), folder, pipeline, progress)
    if outcome.get("status") in ENDED:
        job.result.note = f"nothing was done: the run is {outcome['status']}"
        return job.result
    with job.watched():
        publish(job, staged, reason=reason)
    return job.result


def discard_staged(
    session_of: Callable[[Pipeline], SparkSession], run_id: str, progress: Progress, why: str, status: str = "discarded"
) -> None:
    """Throw away what a run has staged. Raises DefinitionError for a run that is published."""
    folder = RunStore.configured().folder(run_id)
    pipeline = pipeline_of(folder)
    if folder.status() in ("published", "unchanged"):
        raise DefinitionError("the run is published already", run_id, "Publish another run to restate its windows.")
    job, _ = reopened(session_of(pipeline), folder, pipeline, progress)
    discard(job, status, why)


def run_stage(run_id: str, stage: str, chunk: int | None, why: str) -> int:
    """Carry out one stage; the exit code."""
    folder, progress = RunStore.configured().folder(run_id), LogProgress()
    try:
        if folder.status() in ENDED:
            print(f"nothing to do: the run is {folder.status()}", flush=True)
            return 0
        pipeline = pipeline_of(folder)
        name = f"rewindow {stage} {pipeline.name}"
        session_of = lambda p: spark_session(name, metastore=getattr(p.history, "metastore", None))  # noqa: E731
        if stage == "publish":
            with told(folder, stage, chunk, session_of(pipeline)):
                publish_staged(session_of, run_id, progress)
        elif stage == "discard":
            with told(folder, stage, chunk, session_of(pipeline)):
                discard_staged(session_of, run_id, progress, why, "rejected")
        elif stage in ("plan", "reconcile"):
            spark = session_of(pipeline)
            with told(folder, stage, chunk, spark):
                (plan_stage if stage == "plan" else reconcile_stage)(spark, folder, pipeline, progress)
            if stage == "plan":
                continue_inline(spark, folder, pipeline, progress)
        else:
            execute_stage(session_of(pipeline), folder, pipeline, progress, stage, chunk)
        outcome = folder.read(OUTCOME) or {}
        if outcome.get("status") == "gate_failed":
            print(f"{outcome['message']}. {outcome['hint']}", flush=True)
            return 3
        return 0
    except RewindowError as problem:
        _tell_failure(folder, stage, problem)
        print(str(problem), file=sys.stderr, flush=True)
        return problem.exit_code
    except Exception as problem:
        _tell_failure(folder, stage, problem)
        raise


def _tell_failure(folder: RunFolder, stage: str, problem: Exception) -> None:
    record = {"run_id": folder.run_id, "status": "failed", **problem_record(problem), "stage": stage}
    folder.write(OUTCOME, {**(folder.read(OUTCOME) or {}), **record})


@contextmanager
def told(
    folder: RunFolder, stage: str, chunk: int | None, spark: SparkSession, job: Job | None = None
) -> Iterator[None]:
    """Keep the application's id and its seconds with the run."""
    began = time.monotonic()
    document = application_document(stage, chunk)
    record = {"stage": stage, "chunk": chunk, "application_id": spark.sparkContext.applicationId, "timings": {}}
    folder.write(document, {**record, "ui": spark.sparkContext.uiWebUrl, "seconds": None})
    yield
    timings = job.result.timings if job else {}
    folder.write(document, {**record, "timings": timings, "seconds": round(time.monotonic() - began, 3)})


def _history(job: Job, records) -> History:
    return History(good(records), job.plan.event_times, job.plan.processing_time_end)


def _instant(text: str | None) -> int | None:
    return None if not text else parse_instant(text)


def main() -> None:
    """Entry point of the application."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    parser.add_argument(
        "--stage",
        required=True,
        choices=["plan", "timeline", "replay", "verify", "publish", "discard", "reconcile"],
    )
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--why", default="")
    given = parser.parse_args()
    code = run_stage(given.run, given.stage, given.chunk, given.why)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
