"""One stage of a run as a Spark application: `spark-submit application.py --run RUN --stage replay --chunk 3`.

All that a stage needs is in the catalog and in the run's folder, and all its results go there: no working directory is
shared. The exit code is the error's own; `outcome.json` says what went wrong.

A person's question is in a document, which holds the answer then; nothing of what the person wrote is on the command
line.
"""

from __future__ import annotations

import argparse
import getpass
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import asdict
from datetime import UTC, datetime
from types import MappingProxyType

from pyspark.sql import SparkSession

from spark_jobs.corrections.stage import again, correct_run
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.size import is_small
from spark_jobs.errors import DefinitionError, EmptyRangeError, HistoryError, RewindowError
from spark_jobs.marks.read import ends_of_mark
from spark_jobs.operations.archive import archived
from spark_jobs.operations.looking import answer_of
from spark_jobs.operations.maintain import maintain
from spark_jobs.operations.periods import KEEP_RUNS, retention, retention_or_forever
from spark_jobs.operations.run_ends import end_policy_of
from spark_jobs.quality.gx import import_ahead
from spark_jobs.runs.life.documents import Application, DryRun, Outcome, Request, failure_fields, instant_of, status_of
from spark_jobs.runs.life.lifecycle import new_token
from spark_jobs.runs.life.permission import effective_policy
from spark_jobs.runs.life.reopening import discard_staged, job_in_stages, pipeline_of, reopened
from spark_jobs.runs.life.start import Asked, prepare, refuse_known_run_of_another
from spark_jobs.runs.life.status import RunStatus, Stage
from spark_jobs.runs.life.store import RunFolder, RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.definition_change import with_change
from spark_jobs.runs.planning.form_words import in_form_words
from spark_jobs.runs.planning.looks import Looks
from spark_jobs.runs.planning.plan import make_plan, planned_records
from spark_jobs.runs.work.computing import FullWork
from spark_jobs.runs.work.evaluation import Around, Evaluator
from spark_jobs.runs.work.job import Job
from spark_jobs.runs.work.progress import LogProgress, Progress
from spark_jobs.runs.work.stages import Begin, Publish, ReplayChunk, RunStage, applications_of, from_stage, stages_of
from spark_jobs.settings import more_conf
from spark_jobs.spark.failures import catalog_failure
from spark_jobs.spark.session import spark_session
from spark_jobs.submit.package import ERROR


def plan_stage(
    spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress, frames: ExitStack
) -> tuple[Evaluator, tuple[RunStage, ...]] | None:
    """Decide all that the run will do, refuse what cannot be done, and enter the run into the ledger.

    Returns the run and the stages with which this application goes on; None: it has ended, or is published already.
    Where it goes on, `frames` keeps the records of a topic, or of small files, for all stages.
    """
    request = Request.required(folder)
    requested = request.requested.with_ends(lambda mark: ends_of_mark(lambda: spark, pipeline, mark))
    effective_policy(pipeline.publish, requested.publish)
    end_policy = end_policy_of(pipeline, requested)
    if end_policy.prepare is not None and requested.dry_run is not DryRun.PLAN:
        end_policy.prepare()
    refuse_known_run_of_another(spark, folder, pipeline)
    with progress.stage("plan", pipeline.name):
        alone = requested.dry_run is DryRun.PLAN
        plan = make_plan(spark, pipeline, counts_undecided=alone, **requested.plan_options(pipeline))
        plan = with_change(spark, pipeline, plan)
    if plan.fidelity not in ("recorded", "log_order") and plan.mode != Mode.COMPLETE and not requested.accept_degraded:
        plan.write(folder)
        raise HistoryError(
            f"the fidelity is `{plan.fidelity}`: {'; '.join(plan.fidelity_reasons)}",
            plan.source,
            "Accept degraded fidelity in the form, or correct history.position.",
        )
    if requested.dry_run is DryRun.PLAN:
        plan.write(folder)
        Outcome(run_id=folder.run_id, status=RunStatus.DRY_RUN, message="a plan, and no more").write(folder)
        return None
    records = None
    if len(applications_of(stages_of(pipeline, plan.replay_stages), plan.records)[0]) > 1:
        plan, records = frames.enter_context(planned_records(spark, pipeline, plan))
    work = FullWork(job_in_stages(spark, folder, pipeline, plan, progress, new_token()), records)
    started = datetime.now(UTC)
    if not prepare(work.job, work.history, started):
        return None
    run = Evaluator(
        work,
        end_policy,
        started=started,
        asked=Asked(request.reason),
        staged=work.staged(),
        around=_recorded_stages(work.job),
    )
    begins, *others = applications_of(run.stages, plan.records)[0]
    run.evaluate([begins])
    return run, tuple(others)


def execute_stage(
    spark: SparkSession,
    folder: RunFolder,
    pipeline: Pipeline,
    progress: Progress,
    name: Stage,
    chunk: int | None = None,
    why: str = "",
    person: str = "",
) -> None:
    """A stage of a run that another application has begun, and what follows it at once.

    `why` and `person`: a run is published in spite of a closed gate, or in place of an approval.
    """
    run = reopened_run(spark, folder, pipeline, progress, gate=name is Stage.VERIFY)
    stages = from_stage(run.stages, name, chunk)
    if name is Stage.REPLAY and not stages:
        chunks = len(run.job.plan.chunks)
        raise DefinitionError(f"there is no chunk {chunk}", folder.run_id, f"It has {chunks}.")
    if name is Stage.PUBLISH:
        stages = (Publish(why, person or (getpass.getuser() if why else "")), *stages[1:])
    elif name is Stage.VERIFY and run.job.life.status() is RunStatus.PUBLISHING:
        stages = stages[1:]  # the application that verified the run was killed while it published
    run.evaluate(stages)


def reopened_run(
    spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress, *, gate: bool = True
) -> Evaluator:
    """A run that another application has begun. `gate`: it is going to be verified."""
    job, staged = reopened(spark, folder, pipeline, progress)
    end_policy = end_policy_of(pipeline, Request.required(folder).requested, gate=gate)
    return Evaluator(FullWork(job), end_policy, staged=staged, around=_recorded_stages(job))


def correct_again(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, stage: Stage, by: str) -> None:
    """Deliver the run's corrections once more, or bring back what readers had before them."""
    with recorded(spark, folder, stage):
        done = again(spark, pipeline, folder, revert=stage is Stage.REVERT, by=by)
    print(done.sentence(), flush=True)


def correct_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline) -> int:
    """Deliver what is due to the readers of the live job's output, once the run is published; the exit code."""
    status = status_of(folder)
    if pipeline.corrections is None or status is None or not status.is_published:
        return 0
    with recorded(spark, folder, Stage.CORRECT):
        done = correct_run(spark, pipeline, folder)
    if done.problem:
        _say(done.problem)
    return done.exit_code


def reconcile_stage(spark: SparkSession, folder: RunFolder, pipeline: Pipeline, progress: Progress) -> None:
    """A nightly reconciliation, all of it."""
    request = Request.required(folder)
    reconcile(
        spark,
        pipeline,
        progress,
        until=instant_of(request.requested.until),
        run_id=folder.run_id,
        asked=Asked(request.reason),
        end_policy=end_policy_of(pipeline, request.requested),
        in_stages=True,
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
        if stage in (Stage.PLAN, Stage.VERIFY):
            import_ahead()
        spark = _session(f"rewindow {stage} {pipeline.name}", pipeline, master)
        if stage is Stage.CORRECT:
            return correct_stage(spark, folder, pipeline)
        if stage in (Stage.REPEAT, Stage.REVERT):
            correct_again(spark, folder, pipeline, stage, f"{person or 'somebody'}: {why}")
            return 0
        if stage is Stage.DISCARD:
            with recorded(spark, folder, stage):
                discard_staged(lambda _: spark, run_id, progress, why, RunStatus.REJECTED, person=person)
        elif stage is Stage.RECONCILE:
            with recorded(spark, folder, stage):
                reconcile_stage(spark, folder, pipeline, progress)
        elif stage is Stage.PLAN:
            with ExitStack() as frames:
                with recorded(spark, folder, stage):
                    begun = plan_stage(spark, folder, pipeline, progress, frames)
                if begun is not None:
                    run, stages = begun
                    run.evaluate(stages)
        else:
            execute_stage(spark, folder, pipeline, progress, stage, chunk, why, person)
        outcome = Outcome.read(folder)
        if outcome is not None and outcome.status is RunStatus.GATE_FAILED:
            print(outcome.sentence(), flush=True)
            return 0 if stage is Stage.PLAN else 3  # the task `verify` is the one that fails
        return 0
    except Exception as problem:
        known = problem if isinstance(problem, RewindowError) else catalog_failure(problem)
        if known is None:
            _record_failure(folder, stage, problem)
            raise
        _record_failure(folder, stage, in_form_words(known))
        _say(str(known))
        return known.exit_code


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


def archive_history(file: str, master: str | None = None) -> int:
    """Archive what is new in a pipeline's topic or checkpoint; the exit code."""
    try:
        pipeline = load_pipeline(file)
        print(archived(_session(f"rewindow archive {pipeline.name}", pipeline, master), pipeline), flush=True)
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
    spark: SparkSession,
    folder: RunFolder,
    stage: Stage,
    chunk: int | None = None,
    timings: Mapping[str, float] = MappingProxyType({}),
) -> Iterator[None]:
    """Keep the application's id, its seconds, and what `timings` gets meanwhile with the run."""
    began, before = time.monotonic(), dict(timings)
    file, context = Application.file_of(stage, chunk), spark.sparkContext
    application = Application(stage=stage, chunk=chunk, application_id=context.applicationId, ui=context.uiWebUrl)
    application.write_as(folder, file)
    yield
    own = {name: round(at - before.get(name, 0.0), 3) for name, at in timings.items() if at != before.get(name)}
    seconds = round(time.monotonic() - began, 3)
    application.model_copy(update={"timings": own, "seconds": seconds}).write_as(folder, file)


def _recorded_stages(job: Job) -> Around:
    """What keeps each stage of a run as `recorded` does; the beginning is a part of the stage `plan`."""

    def around(stage: RunStage) -> AbstractContextManager[None]:
        if isinstance(stage, Begin):
            return nullcontext()
        chunk = stage.number if isinstance(stage, ReplayChunk) else None
        return recorded(job.spark, job.folder, stage.name, chunk, job.result.timings)

    return around


def main() -> None:
    """Entry point of the application."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--run", help="the run whose stage is carried out")
    what.add_argument("--maintain", metavar="PIPELINE.yaml", help="clean up this pipeline's tables instead")
    what.add_argument("--archive", metavar="PIPELINE.yaml", help="archive what is new in this pipeline's topic instead")
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
    elif given.archive:
        code = archive_history(given.archive, given.master)
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


def answer_question(
    file: str, document: str, session: Callable[[str, Pipeline], SparkSession], say: Callable[[str], None]
) -> int:
    """Answer the question of a document; the exit code. What goes wrong is in the document too."""
    pipeline = load_pipeline(file)
    looks = Looks(RunStore.configured(), pipeline.name)
    asked = looks.read(document)
    if asked is None or asked.question is None:
        say(f"there is no question {document}")
        return 2

    def start() -> SparkSession:
        return session(f"rewindow look {pipeline.name}", pipeline)

    try:
        found = answer_of(start, pipeline, asked.question, LogProgress())
    except RewindowError as problem:
        said = in_form_words(problem)
        where = f" ({said.where})" if said.where else ""
        looks.write(document, asked.model_copy(update={"problem": f"{said.what}{where}", "hint": said.hint}))
        say(str(said))
        return problem.exit_code
    except Exception as problem:
        unforeseen = f"{type(problem).__name__}: {str(problem).splitlines()[0][:300] if str(problem) else ''}"
        looks.write(document, asked.model_copy(update={"problem": unforeseen, "hint": "See the log of the task."}))
        raise
    looks.write(document, asked.model_copy(update={"answer": found, "answered_at": datetime.now(UTC).isoformat()}))
    print(found.sentence, flush=True)
    return 0


if __name__ == "__main__":
    main()
