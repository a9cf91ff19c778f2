"""Kafka Streams towards runs: each task has its own stream time, and reads its partition in the order of the log."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.live import Live
from spark_jobs.engines.live_engine import Holding, LiveEngine
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.replay.band import Band
from spark_jobs.replay.kafka_streams.rules import application_of


class KafkaStreams(LiveEngine):
    """A Kafka Streams application."""

    restarts_by_offset: ClassVar[bool] = True

    def restart_in_definition(self, ends: Mapping[int, int], first: int) -> str:
        offsets = ", ".join(f"{partition}: {offset}" for partition, offset in sorted(ends.items()))
        return f"watermark: {{restarts: [{{offsets: {{{offsets}}}}}]}}"

    def watermark_in_words(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> str:
        by_task = application_of(pipeline).needs_tasks
        return "stream time of each partition, " + ("one task a partition, in log order" if by_task else "set by set")

    def warnings(
        self, pipeline: Pipeline, found: Collection[int], empty: Sequence[int], *, knows_all: bool
    ) -> list[str]:
        application = application_of(pipeline)
        if application.restarts or application.of_all or restarts_of(pipeline):
            return []
        return [
            "watermark.restarts is not set: stream time begins anew at each start of the application, and the "
            "replay takes it that there was none"
        ]

    def holding(self, pipeline: Pipeline, partitions: Sequence[int]) -> list[Holding]:
        what = "its stream time stands still, so its own windows that end later do not close"
        return [((partition,), what) for partition in partitions]

    def doubts_of_cutover(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> list[str]:
        return [
            "stream time begins anew with each restart or rebalance: one before the new application has caught up "
            "can take records that were late"
        ]

    def band(self, pipeline: Pipeline, live: Live) -> Band:
        """None: a task reads its partition in the order of the log, however late it is."""
        return Band(0, 0)


ENGINE = KafkaStreams()
