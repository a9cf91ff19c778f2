"""Windows of which a row may be out that nobody knows of: a query has planned a batch and not committed it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import Emitted
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.rule_book import Emission
from spark_jobs.replay.sessions import SESSION_END, SESSION_START, with_sessions_columns
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.windows import windows_of_records
from spark_jobs.runs.planning.gap_batches import records_between
from spark_jobs.runs.planning.live_batches import live_batches
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.sources import good


def touched_by_pending(spark: SparkSession, pipeline: Pipeline, plan: Plan, spec: ReplaySpec) -> DataFrame | None:
    """The windows that the batch after the plan's took a record in: keys, `window_start`, `window_end` (epoch ms).

    In update and complete mode it gives a row of each. Of sessions: the bounds of its records alone, before they met
    any session (`touched_sessions`). None: there is no such batch, or it lets out the windows that have closed
    (`RuleBook.may_be_out_until`).
    """
    if spec.rules.emission is not Emission.EACH_BATCH:
        return None
    batches = live_batches(spark, pipeline, plan.as_of, plan.processing_time_end)
    if batches is None or batches.pending is None:
        return None
    records = good(records_between(spark, pipeline, batches.ends, batches.pending_ends))
    late = batches.pending.late_watermark(allow_multiple=batches.allow_multiple)
    in_time = F.col(END) > F.lit(late)
    if spec.has_sessions:
        alone = with_sessions_columns(records.where(F.col(EVENT_TIME).isNotNull()), spec)
        bounds = (F.col(SESSION_START).alias(START), F.col(SESSION_END).alias(END))
        own = alone.select(*(f"`{key}`" for key in spec.keys), *bounds).where(F.col(END) > F.col(START)).distinct()
        merges = isinstance(spec.rules, StructuredStreamingRules) and spec.rules.merge_locally
        return own if merges else own.where(in_time)  # a late record can be saved by another one of its batch
    touched = windows_of_records(records, spec)
    return touched if pipeline.output_mode is OutputMode.COMPLETE else touched.where(in_time)


def touched_sessions(uncommitted: DataFrame, windows: DataFrame, emitted: Emitted, keys: tuple[str, ...]) -> DataFrame:
    """The sessions of either side that overlap or touch a record of `uncommitted`: keys, bounds (epoch ms), distinct.

    Such a session is another one, if the batch's rows are out.
    """
    columns = [*(f"`{key}`" for key in keys), START, END]
    sessions = windows.select(*columns).unionByName(emitted.rows.select(*columns)).distinct()
    by_key = [name for name in join_columns(keys) if name not in (START, END)]
    alone = with_join_keys(uncommitted, keys).select(
        *by_key, F.col(START).alias("rw_first"), F.col(END).alias("rw_last")
    )
    touches = (F.col(START) <= F.col("rw_last")) & (F.col(END) >= F.col("rw_first"))
    joined = with_join_keys(sessions, keys).join(alone, by_key).where(touches)
    return joined.select(*columns).distinct()
