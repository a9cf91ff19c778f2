"""Carry out a plan in one process: timeline, replay, verification and publication, stage by stage."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.definition.policy import Policy
from spark_jobs.replay.engine import History
from spark_jobs.replay.spec import Panes
from spark_jobs.replay.timeline import Timeline
from spark_jobs.runs.comparing import CompareStage, LiveNews, ToCompare, compare_live
from spark_jobs.runs.decision import effective_policy
from spark_jobs.runs.documents import StagedRange
from spark_jobs.runs.job import Job, RunResult, chosen_run_id, job_of
from spark_jobs.runs.keeping import keep_of_range
from spark_jobs.runs.lifecycle import new_token
from spark_jobs.runs.plan import Plan, confirm_files, read_planned
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.publication import conclude
from spark_jobs.runs.replaying import stage_chunk, stage_quarantine
from spark_jobs.runs.start import CommandLine, backfill_range, begin, prepare
from spark_jobs.runs.status import RunKind, RunStatus
from spark_jobs.runs.store import RunStore
from spark_jobs.runs.timeline import make_timeline, opened_replay
from spark_jobs.runs.verification import GateCheck, ReportCollector, verified
from spark_jobs.sources import good


@dataclass(frozen=True, slots=True)
class EndPolicy:
    """How a run ends.

    `policy`: one that is stricter than the definition's. With `ends_as` (dry_run or compared_only) the run says what
    would change and drops what it staged. `compare` judges the live job's windows; `live_news` says whether a night
    without new records has something to compare. `gate` checks what is staged; where there is none, `unchecked` says
    why. `collector` gathers the report's facts. With `in_stages` another process publishes.
    """

    policy: Policy | None = None
    ends_as: RunStatus | None = None
    in_stages: bool = False
    compare: CompareStage | None = None
    live_news: LiveNews | None = None
    gate: GateCheck | None = None
    unchecked: str = ""
    collector: ReportCollector | None = None


def execute(
    spark: SparkSession,
    pipeline: Pipeline,
    plan: Plan,
    progress: Progress,
    *,
    panes: Panes | None = None,
    records: DataFrame | None = None,
    run_id: str | None = None,
    kind: RunKind = RunKind.BACKFILL,
    reason: str = "",
    request: CommandLine | None = None,
    end_policy: EndPolicy | None = None,
    store: RunStore | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Carry out `plan` in this process: timeline, windows and late records chunk by chunk into staging, then publish.

    `records` are the plan's, where the caller has read them already (`planned_records`). A `run_id` that has been
    published already changes nothing. The result's `changes` say what publishing changes, its `decision` what became of
    the run.

    Raises DefinitionError for a plan that does not cover its range or a policy weaker than the definition's,
    HistoryError where a record breaks a rule (before anything is written), RunStateError where another process works on
    the run, CatalogError where the tables cannot be written or another run has published the same range meanwhile (the
    published tables stay as they were).
    """
    started, end_policy = now(), end_policy or EndPolicy()
    effective_policy(pipeline.publish, end_policy.policy)
    job = job_of(
        spark,
        pipeline,
        plan,
        progress,
        chosen_run_id(pipeline, run_id, started),
        kind,
        attempt=new_token(),
        panes=panes,
        store=store,
        in_stages=end_policy.in_stages,
        now=now,
        clock=clock,
    )
    if records is None:
        records = read_planned(spark, pipeline, plan)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    if not prepare(job, history, started, is_new=run_id is None):
        return job.result
    staged = backfill_range(job)
    with job.watched():
        begin(job, reason, started, request)
        staged.write(job.folder)
        with opened_replay(job, history) as replay:
            make_timeline(job, replay)
            stage_quarantine(job, records)
            for number in range(1, len(plan.chunks) + 1):
                stage_chunk(job, replay, number)
            compare_live(job, replay, end_policy.compare, ToCompare(plan.chunks, keeps=end_policy.ends_as is None))
            end_run(job, staged, history.records, replay.timeline if job.is_faithful else None, end_policy)
    return job.result


def end_run(
    job: Job, staged: StagedRange, records: DataFrame, timeline: Timeline | None, end_policy: EndPolicy
) -> None:
    """Verify what is staged, and let policy, gate and difference decide what becomes of it."""
    policy = effective_policy(job.pipeline.publish, end_policy.policy)
    if not job.in_stages:  # a stage of its own has looked when it opened the history
        confirm_files(job.spark, job.pipeline, job.plan)
    if staged.replaces:
        keep_of_range(job, staged, records)
    with verified(
        job, staged, records, timeline, end_policy.gate, end_policy.collector, end_policy.unchecked
    ) as checked:
        job.result.decision = conclude(job, staged, policy, checked, ends_as=end_policy.ends_as)
