"""Windows of which a row may be out that nobody knows of: a query has planned a batch and not committed it."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.microbatch.aggregation import OutputMode
from spark_jobs.replay.assign import END
from spark_jobs.replay.rule_book import Emission
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.windows import windows_of_records
from spark_jobs.runs.gap_batches import records_between
from spark_jobs.runs.live_batches import live_batches
from spark_jobs.runs.plan import Plan
from spark_jobs.sources import good


def touched_by_pending(spark: SparkSession, pipeline: Pipeline, plan: Plan, spec: ReplaySpec) -> DataFrame | None:
    """The windows that the batch after the plan's took a record in: keys, `window_start`, `window_end` (epoch ms).

    In update and complete mode it gives a row of each. None: there is no such batch, or the windows are sessions, or
    it lets out the windows that have closed (`RuleBook.may_be_out_until`).
    """
    if spec.rules.emission is not Emission.EACH_BATCH or spec.has_sessions:
        return None
    batches = live_batches(spark, pipeline, plan.as_of, plan.processing_time_end)
    if batches is None or batches.pending is None:
        return None
    records = good(records_between(spark, pipeline, batches.ends, batches.pending_ends))
    touched = windows_of_records(records, spec)
    if pipeline.output_mode is OutputMode.COMPLETE:
        return touched
    late = batches.pending.late_watermark(allow_multiple=batches.allow_multiple)
    return touched.where(F.col(END) > F.lit(late))
