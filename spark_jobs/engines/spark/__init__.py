"""Structured Streaming towards runs: a query records in its checkpoint which batch has read what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.engines.live_engine import LiveEngine, Recorded
from spark_jobs.engines.spark.batches import live_batches
from spark_jobs.engines.spark.kept import keep_batches
from spark_jobs.engines.spark.pending import touched_by_pending
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.replay.spec import ReplaySpec


class StructuredStreaming(LiveEngine):
    """A Structured Streaming query."""

    reads_backlog_at_once: ClassVar[bool] = True

    def doubts_of_cutover(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> list[str]:
        return [
            "the first micro-batch of a new query takes its whole backlog, so no record of that is late; with "
            "maxOffsetsPerTrigger it takes a part, and records of later parts can be late until it has caught up",
            "from then on the micro-batches of the new query decide what is late, as those of the old one did",
        ]

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
