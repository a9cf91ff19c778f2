"""Carry out a plan in one process: all stages of a run over the plan's range."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.life.lifecycle import new_token
from spark_jobs.runs.life.permission import effective_policy
from spark_jobs.runs.life.start import Asked, prepare
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.computing import FullWork
from spark_jobs.runs.work.evaluation import EndPolicy, Evaluator
from spark_jobs.runs.work.job import RunResult, chosen_run_id, job_of
from spark_jobs.runs.work.progress import Progress
from spark_jobs.spark.failures import catalog_answers

__all__ = ["EndPolicy", "execute"]


@catalog_answers()
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
    asked: Asked | None = None,
    note: str = "",
    end_policy: EndPolicy | None = None,
    in_stages: bool = False,
    store: RunStore | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Carry out `plan` in this process: timeline, windows and late records chunk by chunk into staging, then publish.

    `records` are the plan's, where the caller has read them already (`planned_records`). `note` is what people are told
    of the run. A `run_id` that has been published already changes nothing. The result's `changes` say what publishing
    changes, its `decision` what became of the run.

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
        in_stages=in_stages,
        now=now,
        clock=clock,
    )
    job.result.note = note
    work = FullWork(job, records)
    if prepare(job, work.history, started, is_new=run_id is None):
        return Evaluator(work, end_policy, started=started, asked=asked, staged=work.staged()).evaluate()
    job.result.corrections = end_policy.delivered(spark, pipeline, job.folder)
    return job.result
