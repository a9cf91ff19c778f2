"""Structured Streaming towards runs: a query records in its checkpoint which batch has read what."""

from __future__ import annotations

from collections.abc import Mapping

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
