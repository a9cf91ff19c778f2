"""The steps of `rewindow compare`: plan, replay, compare. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.comparer import Comparer
from spark_jobs.comparison.deployed import no_deployment, only_of, replay_of
from spark_jobs.comparison.emitted import EmittedRows, refuse_without_live
from spark_jobs.comparison.join_keys import key_types
from spark_jobs.comparison.report import make_report, of_deployments
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of
from spark_jobs.engines import live_engine
from spark_jobs.eventtime.durations import DAY
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import Mode, Panes
from spark_jobs.runs.life.verdicts import Verdicts
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import good, reading
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.shuffles import shuffles_for


def run_compare(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    start: int | None = None,
    end: int | None = None,
    as_of: Mapping[int, int] | None = None,
    limit: int = 10,
) -> Verdicts:
    """Compare the emitted windows of a pipeline with its replay.

    Args:
        start, end: compare the windows with a start in `[start, end)` (epoch ms); None: no bound.
        as_of: one end offset for each partition; None: the history up to now.
        limit: the most windows that the report lists.

    Raises:
        DefinitionError: the definition does not say what the live job emitted.
        RewindowError: the plan cannot be made.
    """
    refuse_without_live(pipeline)
    with ExitStack() as resources:
        with progress.stage("plan", pipeline.name):
            planned = planned_records(spark, pipeline, start=start, end=end, as_of=as_of, mode=Mode.BOTH)
            plan, records = resources.enter_context(planned)
        return compare_planned(spark, pipeline, plan, progress, records=records, limit=limit)


def compare_planned(
    spark: SparkSession, pipeline: Pipeline, plan: Plan, progress: Progress, *, records: DataFrame, limit: int = 10
) -> Verdicts:
    """Like `run_compare`, for a plan that is already made and its canonical records."""
    records = good(records)
    spec = spec_of_plan(records.sparkSession, pipeline, plan, Mode.BOTH, Panes.LAST)
    types = key_types(records.schema, spec.keys)
    history = History(records, plan.event_times, plan.processing_time_end)
    uncommitted = live_engine(pipeline).in_doubt(spark, pipeline, spec, plan.as_of, plan.processing_time_end)
    reports = []
    shuffles = shuffles_for(spark, spec.pairs(plan.records))
    with shuffles, CachedFrames() as cached, Replay(history, spec) as replay, reading(plan.pipeline):
        for deployed in deployments_of(pipeline):
            if (span := deployed.clipped(plan.span)) is None:
                continue
            suffix = f", {deployed.name}" if deployed.name else ""
            with progress.stage("emitted", f"what the live job emitted{suffix}"):
                emitted = EmittedRows(spark, deployed.pipeline, types, cached).windows(span)
                emitted = only_of(deployed, emitted)
            with (
                replay_of(deployed, replay, list(plan.as_of)) as own,
                Comparer(
                    own, deployed.pipeline, emitted, deployed.within(plan.chunks), uncommitted=uncommitted
                ) as comparer,
            ):
                with progress.stage("timeline", plan.watermark):
                    own.timeline  # noqa: B018 - made here, so that the progress shows its time
                with progress.stage("compare", f"emitted, faithful, complete{suffix}"):
                    comparison = comparer.compare()
                    report = make_report(comparison, comparer.context, emitted, limit, DAY)
                    reports.append((deployed, report))
    if not reports:
        raise no_deployment(pipeline)
    return of_deployments(reports, limit)
