"""Structured Streaming towards runs: a query records in its checkpoint which batch has read what.

A row of a window may be out that nobody knows of, where a query has planned a batch and not committed it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.spark import query_of
from spark_jobs.engines.live_engine import LiveEngine, Recorded
from spark_jobs.engines.spark.batches import live_batches
from spark_jobs.engines.spark.gaps import records_between
from spark_jobs.engines.spark.kept import OfTwo, keep_batches, of_two_queries
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.rule_book import Emission
from spark_jobs.replay.sessions import SESSION_END, SESSION_START, with_sessions_columns
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.windows import windows_of_records
from spark_jobs.sources import good


def touched_by_pending(
    spark: SparkSession, pipeline: Pipeline, spec: ReplaySpec, as_of: Mapping[int, int], until: int
) -> DataFrame | None:
    """The windows that the batch after those of a run took a record in: keys, `window_start`, `window_end` (epoch ms).

    In update and complete mode it gives a row of each. Of sessions: the bounds of its records alone, before they met
    any session. None: there is no such batch, or it lets out the windows that have closed
    (`RuleBook.may_be_out_until`).
    """
    if spec.rules.emission is not Emission.EACH_BATCH:
        return None
    batches = live_batches(spark, pipeline, as_of, until)
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
    return touched if query_of(pipeline).output_mode is OutputMode.COMPLETE else touched.where(in_time)


class StructuredStreaming(LiveEngine):
    """A Structured Streaming query."""

    reads_backlog_at_once: ClassVar[bool] = True

    def doubts_of_cutover(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> list[str]:
        return [
            "the first micro-batch of a new query takes its whole backlog, so no record of that is late; with "
            "maxOffsetsPerTrigger it takes a part, and records of later parts can be late until it has caught up",
            "from then on the micro-batches of the new query decide what is late, as those of the old one did",
        ]

    def of_old_job(self) -> AbstractContextManager[None]:
        return of_two_queries(OfTwo.KEPT)

    def of_new_job(self) -> AbstractContextManager[None]:
        return of_two_queries(OfTwo.NOW)

    def closed_below(self, spark: SparkSession, pipeline: Pipeline) -> int | None:
        batches = live_batches(spark, pipeline)
        return None if batches is None else batches.watermark

    def recorded(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        as_of: Mapping[int, int] | None = None,
        until: int | None = None,
    ) -> Recorded | None:
        return live_batches(spark, pipeline, as_of, until)

    def keep(self, spark: SparkSession, pipeline: Pipeline) -> int:
        return keep_batches(spark, pipeline)

    def watermark_in_words(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> str:
        return "timeline of the query's checkpoint, batch by batch"

    def in_doubt(
        self, spark: SparkSession, pipeline: Pipeline, spec: ReplaySpec, as_of: Mapping[int, int], until: int
    ) -> DataFrame | None:
        return touched_by_pending(spark, pipeline, spec, as_of, until)


ENGINE = StructuredStreaming()
