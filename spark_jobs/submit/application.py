"""One stage of a run as a Spark application: `spark-submit application.py --run RUN --stage replay --chunk 3`.

All that a stage needs is in the catalog and in the run's folder, and all its results go there: no working directory is
shared. The exit code is the error's own; `outcome.json` says what went wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.news import has_live_news
from spark_jobs.comparison.stage import compare_run
from spark_jobs.corrections.stage import again, announce, correct_run
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.size import is_small
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError, RewindowError
from spark_jobs.operations.maintain import maintain
from spark_jobs.operations.periods import KEEP_RUNS, retention, retention_or_forever
from spark_jobs.quality.configured import NO_FOLDER, gate_of
from spark_jobs.quality.gx import imported_ahead
from spark_jobs.replay.engine import History
from spark_jobs.report.collect import collect
from spark_jobs.runs.backfill import EndPolicy, end_run
from spark_jobs.runs.comparing import ToCompare, compare_live
from spark_jobs.runs.decision import Decision, effective_policy
from spark_jobs.runs.definition_change import with_change
from spark_jobs.runs.documents import (
    Application,
    ChunkDocument,
    DryRun,
    Outcome,
    Request,
    Requested,
    StagedRange,
    failure_fields,
    status_of,
)
from spark_jobs.runs.form_words import in_form_words
from spark_jobs.runs.job import Job
from spark_jobs.runs.lifecycle import new_token
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.plan import make_plan, plan_from_json, read_planned
from spark_jobs.runs.progress import LogProgress, Progress
from spark_jobs.runs.reopening import discard_staged, job_in_stages, pipeline_of, publish_staged, reopened
from spark_jobs.runs.replaying import prepare_staging, stage_chunk, stage_quarantine
from spark_jobs.runs.start import backfill_range, begin, prepare
from spark_jobs.runs.status import RunStatus, Stage
from spark_jobs.runs.store import PLAN, RunFolder, RunStore
from spark_jobs.runs.timeline import make_timeline, opened_replay, saved_timeline
from spark_jobs.sources import good
from spark_jobs.spark.session import spark_session
from spark_jobs.submit.conf import more_conf
from spark_jobs.submit.looking import answer_question
from spark_jobs.submit.package import ERROR


def plan_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """Decide all that the run will do, refuse what cannot be done, and enter the run into the ledger."""
    request = Request.required(folder)
    requested = request.requested
    effective_policy(pipeline.publish, requested.publish)
    gate_of(pipeline, thorough=True)  # a broken suite is refused before anything is read
    with progress.stage("plan", pipeline.name):
        plan = make_plan(
            spark,
            pipeline,
            start=_instant(requested.start),
            end=_instant(requested.end),
            as_of=requested.as_of or None,
            mode=Mode(requested.mode or pipeline.mode),
            chunks=requested.chunks,
            beyond_limits=requested.beyond_limits is True,
        )
        plan = with_change(spark, pipeline, plan)
    if plan.fidelity not in ("recorded", "log_order") and plan.mode != Mode.COMPLETE and not requested.accept_degraded:
        folder.write_text(PLAN, plan.to_json())
        raise HistoryError(
            f"the fidelity is `{plan.fidelity}`: {'; '.join(plan.fidelity_reasons)}",
            plan.source,
            "Accept degraded fidelity in the form, or correct history.position.",
        )
    if requested.dry_run is DryRun.PLAN:
        folder.write_text(PLAN, plan.to_json())
        Outcome(run_id=folder.run_id, status=RunStatus.DRY_RUN, message="a plan, and no more").write(folder)
        return
    job = job_in_stages(spark, folder, pipeline, plan, progress, new_token())
    started = datetime.now(UTC)
    if prepare(job, _history(job, read_planned(spark, pipeline, plan)), started):
        staged = backfill_range(job)
        begin(job, request.reason, started)
        staged.write(folder)


INLINE_RUN_MAX_RECORDS = 1_000_000
"""Up to so many records `plan` goes on with the timeline and, where there is one chunk, to the end of the run.

Another JVM's start would cost more. Chunks are applications of their own where somebody chose more than one.
"""


def continue_inline(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """Carry out the stages that follow the plan of a small run."""
    text = folder.read_text(PLAN)
    if text is None or status_of(folder) is not None:
        return
    plan = plan_from_json(text)
    if plan.records <= INLINE_RUN_MAX_RECORDS:
        execute_stage(spark, folder, pipeline, progress, Stage.TIMELINE)
        if len(plan.chunks) == 1:
            execute_stage(spark, folder, pipeline, progress, Stage.REPLAY, 1)
            if pipeline.live is not None:
                execute_stage(spark, folder, pipeline, progress, Stage.COMPARE)
            execute_stage(spark, folder, pipeline, progress, Stage.VERIFY)


def publish_stage(spark: SparkSession, folder: RunFolder, progress: Progress, why: str = "", person: str = "") -> None:
    """Publish what the run has staged. `why` and `person`: in spite of a closed gate, or in place of an approval."""
    with recorded(folder, Stage.PUBLISH, None, spark):
        publish_staged(lambda _: spark, folder.run_id, progress, why, person)


def publish_inline(spark: SparkSession, folder: RunFolder, progress: Progress) -> None:
    """Publish a run that was verified in this application and that nobody has to approve."""
    if status_of(folder) is RunStatus.STAGED:
        publish_stage(spark, folder, progress)


def correct_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline) -> int:
    """Deliver what is due to the readers of the live job's output, once the run is published; the exit code."""
    if pipeline.corrections is None or not _is_published(folder):
        return 0
    with recorded(folder, Stage.CORRECT, None, spark):
        done = correct_run(spark, pipeline, folder)
    if done.problem:
        _say(done.problem)
    return done.exit_code


def correct_again(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, stage: Stage, by: str) -> None:
    """Deliver the run's corrections once more, or bring back what readers had before them."""
    with recorded(folder, stage, None, spark):
        done = again(spark, pipeline, folder, revert=stage is Stage.REVERT, by=by)
    print(done.sentence(), flush=True)


def bring_corrections(spark: SparkSession, folder: RunFolder, pipeline: Pipeline) -> None:
    """Deliver corrections where the run is published by now; of one that waits, say how many would be delivered."""
    if pipeline.corrections is None:
        return
    if _is_published(folder):
        correct_stage(spark, folder, pipeline)  # what it cannot deliver, the task `correct` tries again
    elif status_of(folder) in (RunStatus.AWAITING_APPROVAL, RunStatus.GATE_FAILED):
        announce(spark, pipeline, folder)


def _is_published(folder: RunFolder) -> bool:
    status = status_of(folder)
    return status is not None and status.is_published


def execute_stage(
    spark: SparkSession,
    folder: RunFolder,
    pipeline: Pipeline,
    progress: Progress,
    stage: Stage,
    chunk: int | None = None,
) -> None:
    """One of the stages between plan and publish."""
    job, staged = reopened(spark, folder, pipeline, progress)
    if stage is Stage.VERIFY and job.life.status() is RunStatus.PUBLISHING:
        publish_stage(spark, folder, progress)  # the application that verified the run was killed while it published
        return
    with recorded(folder, stage, chunk, spark, job), job.watched(stage):
        if stage is Stage.TIMELINE:
            timeline_stage(job)
        elif stage is Stage.REPLAY:
            replay_stage(job, chunk or 1)
        elif stage is Stage.COMPARE:
            compare_stage(job, Request.required(folder).requested)
        else:
            verify_stage(job, staged, Request.required(folder).requested)


def timeline_stage(job: Job) -> None:
    """Make the timeline, stage the quarantine, and make the staging tables that the chunks fill side by side."""
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
    seconds = round(time.monotonic() - began, 3)
    document = ChunkDocument(chunk=number, start=chunk.start, end=chunk.end, seconds=seconds)
    document.write_as(job.folder, document.file)


def compare_stage(job: Job, requested: Requested) -> None:
    """Judge the live job's windows."""
    records = read_planned(job.spark, job.pipeline, job.plan)
    with opened_replay(job, _history(job, records), saved_timeline(job) if job.is_faithful else None) as replay:
        policy = end_policy_of(job.pipeline, requested)
        compare_live(job, replay, policy.compare, ToCompare(job.plan.chunks, keeps=policy.ends_as is None))


def verify_stage(job: Job, staged: StagedRange, requested: Requested) -> Decision | None:
    """Diff, gate and facts; the outcome says what is next."""
    records = read_planned(job.spark, job.pipeline, job.plan)
    with opened_replay(job, _history(job, records), saved_timeline(job) if job.is_faithful else None) as replay:
        timeline = replay.timeline if job.is_faithful else None
        end_run(job, staged, good(records), timeline, end_policy_of(job.pipeline, requested))
    return job.result.decision


def end_policy_of(pipeline: Pipeline, requested: Requested) -> EndPolicy:
    """How a run in stages ends: as requested, or as the definition says."""
    checks = gate_of(pipeline)
    return EndPolicy(
        policy=requested.publish,
        ends_as=RunStatus.DRY_RUN if requested.dry_run is DryRun.DIFF else None,
        in_stages=True,
        compare=compare_run if pipeline.live is not None else None,
        live_news=has_live_news if pipeline.live is not None else None,
        gate=checks,
        unchecked="" if checks else NO_FOLDER,
        collector=collect,
    )


def reconcile_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """A nightly reconciliation up to and with its gate."""
    request = Request.required(folder)
    gate_of(pipeline, thorough=True)
    reconcile(
        spark,
        pipeline,
        progress,
        until=_instant(request.requested.until),
        run_id=folder.run_id,
        reason=request.reason,
        end_policy=end_policy_of(pipeline, request.requested),
    )


def _session(name: str, pipeline: Pipeline, master: str | None) -> SparkSession:
    """The Spark of `spark-submit`; one of this process's own, or the warm one, where `master` says that it is local."""
    metastore = pipeline.history.metastore
    if master is None:
        return spark_session(name, metastore=metastore)
    conf, short = more_conf(), is_small(pipeline)
    return spark_session(name, metastore=metastore, master=master, conf=conf, short=short, warm=True)


def run_stage(
    run_id: str, stage: Stage, chunk: int | None, why: str, person: str = "", master: str | None = None
) -> int:
    """Carry out one stage; the exit code. `master`: that of a local Spark, which this process starts or joins."""
    folder, progress = RunStore.configured().folder(run_id), LogProgress()
    try:
        status = status_of(folder)
        if status is not None and status.is_final and not stage.follows_the_end:
            print(f"nothing to do: the run is {status.value}", flush=True)
            return 0
        pipeline = pipeline_of(folder)
        has_gate = stage in (Stage.PLAN, Stage.RECONCILE, Stage.VERIFY)
        with imported_ahead() if has_gate else nullcontext():
            spark = _session(f"rewindow {stage} {pipeline.name}", pipeline, master)
        if stage is Stage.CORRECT:
            return correct_stage(spark, folder, pipeline)
        if stage in (Stage.REPEAT, Stage.REVERT):
            correct_again(spark, folder, pipeline, stage, f"{person or 'somebody'}: {why}")
            return 0
        if stage is Stage.PUBLISH:
            publish_stage(spark, folder, progress, why, person)
        elif stage is Stage.DISCARD:
            with recorded(folder, stage, chunk, spark):
                discard_staged(lambda _: spark, run_id, progress, why, RunStatus.REJECTED)
        elif stage in (Stage.PLAN, Stage.RECONCILE):
            with recorded(folder, stage, chunk, spark):
                (plan_stage if stage is Stage.PLAN else reconcile_stage)(spark, folder, pipeline, progress)
            if stage is Stage.PLAN:
                continue_inline(spark, folder, pipeline, progress)
            publish_inline(spark, folder, progress)
        else:
            execute_stage(spark, folder, pipeline, progress, stage, chunk)
            if stage is Stage.VERIFY:
                publish_inline(spark, folder, progress)
        if stage in (Stage.PLAN, Stage.RECONCILE, Stage.VERIFY, Stage.PUBLISH):
            bring_corrections(spark, folder, pipeline)
        outcome = Outcome.read(folder)
        if outcome is not None and outcome.status is RunStatus.GATE_FAILED:
            print(outcome.sentence(), flush=True)
            return 0 if stage is Stage.PLAN else 3  # the task `verify` is the one that fails
        return 0
    except RewindowError as problem:
        _record_failure(folder, stage, in_form_words(problem))
        _say(str(problem))
        return problem.exit_code
    except Exception as problem:
        _record_failure(folder, stage, problem)
        raise


def maintain_tables(
    file: str, keep_snapshots: str, keep_revisions: str | None, keep_runs: str, master: str | None = None
) -> int:
    """Clean up a pipeline's tables; the exit code. A pipeline that has published nothing has nothing to clean up."""
    try:
        pipeline = load_pipeline(file)
        done = maintain(
            _session(f"rewindow maintain {pipeline.name}", pipeline, master),
            pipeline,
            LogProgress(),
            now=datetime.now(UTC),
            keep_snapshots=retention(keep_snapshots, "keep_snapshots"),
            keep_revisions=retention_or_forever(keep_revisions, "keep_revisions"),
            keep_runs=retention_or_forever(keep_runs, "keep_runs"),
        )
        print(json.dumps(asdict(done)), flush=True)
        return 0
    except EmptyRangeError as nothing:
        print(str(nothing), flush=True)
        return 0
    except RewindowError as problem:
        _say(str(problem))
        return problem.exit_code


def _record_failure(folder: RunFolder, stage: Stage, problem: Exception) -> None:
    """Write the error into the outcome. A run that waits or is published keeps its status: it was only refused."""
    try:
        before = Outcome.read(folder)
    except RewindowError:
        before = None
    if before is not None and before.status.waits:
        refusal = str(problem) if isinstance(problem, RewindowError) else str(failure_fields(problem)["message"])
        before.model_copy(update={"refusal": refusal}).write(folder)
        return
    if before is not None and before.status.is_final:
        return
    if before is not None and before.stage is not None and before.message == failure_fields(problem)["message"]:
        return  # the stage that failed has recorded it
    content = {} if before is None else before.to_dict()
    record = {"run_id": folder.run_id, "status": RunStatus.FAILED, **failure_fields(problem), "stage": stage}
    Outcome.model_validate({**content, **record}).write(folder)


def _say(problem: str) -> None:
    """Print why the application ends with an error; the task that started it looks for this line."""
    print(f"{ERROR}{problem}", file=sys.stderr, flush=True)


@contextmanager
def recorded(
    folder: RunFolder, stage: Stage, chunk: int | None, spark: SparkSession, job: Job | None = None
) -> Iterator[None]:
    """Keep the application's id and its seconds with the run."""
    began = time.monotonic()
    file, context = Application.file_of(stage, chunk), spark.sparkContext
    application = Application(stage=stage, chunk=chunk, application_id=context.applicationId, ui=context.uiWebUrl)
    application.write_as(folder, file)
    yield
    timings = job.result.timings if job else {}
    seconds = round(time.monotonic() - began, 3)
    application.model_copy(update={"timings": timings, "seconds": seconds}).write_as(folder, file)


def _history(job: Job, records: DataFrame) -> History:
    return History(good(records), job.plan.event_times, job.plan.processing_time_end)


def _instant(text: str | None) -> int | None:
    return None if not text else parse_instant(text)


def main() -> None:
    """Entry point of the application."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="the run whose stage is carried out")
    what.add_argument("--maintain", metavar="PIPELINE.yaml", help="clean up this pipeline's tables instead")
    what.add_argument("--look", metavar="PIPELINE.yaml", help="answer a question about this pipeline instead")
    parser.add_argument("--question", help="the document of the question, needed with --look")
    parser.add_argument("--stage", type=Stage, choices=list(Stage), help="needed with --run")
    parser.add_argument("--chunk", type=int)
    parser.add_argument("--why", default="", help="why a run is published all the same, or discarded")
    parser.add_argument("--person", default="", help="who says so")
    parser.add_argument("--keep-snapshots", default="7 d")
    parser.add_argument("--keep-revisions")
    parser.add_argument("--keep-runs", default=KEEP_RUNS)
    parser.add_argument("--master", help="a local master: this process starts Spark, or joins the warm one")
    given = parser.parse_args()
    if given.maintain:
        code = maintain_tables(
            given.maintain, given.keep_snapshots, given.keep_revisions, given.keep_runs, given.master
        )
    elif given.look:
        if given.question is None:
            parser.error("--look needs --question")
        code = answer_question(
            given.look, given.question, lambda name, pipeline: _session(name, pipeline, given.master), _say
        )
    elif given.stage is None:
        parser.error("--run needs --stage")
    else:
        code = run_stage(given.run, given.stage, given.chunk, given.why, given.person, given.master)
    if code:
        sys.exit(code)


if __name__ == "__main__":
    main()
