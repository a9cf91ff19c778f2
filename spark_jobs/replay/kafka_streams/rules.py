"""Kafka Streams' rule book: each task has its own stream time, and nothing passes between partitions."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.kafka_streams.task import Emission
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.flink.inversion import closes_reached, last_of
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, inverted, nothing_closed
from spark_jobs.replay.kafka_streams.replay import Application, TaskReplay, has_key
from spark_jobs.replay.rule_book import OwnReplay, RuleBook, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames


@dataclass(frozen=True)
class KafkaStreamsRules(RuleBook):
    """The rules of `tests/golden/kstreams/README.md` for one application."""

    closes_by_partition = True

    application: Application

    @property
    def gives_open_windows(self) -> bool:
        return self.application.topology.emission is Emission.EACH_UPDATE

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        return streams_timeline(spec, request, thresholds)

    def suspicion(self, records: DataFrame, cells: ThresholdCells, flushes: bool) -> tuple[Column, Column]:
        raise TypeError("sessions of Kafka Streams are decided by tasks")

    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        raise TypeError("sessions of Kafka Streams are decided by tasks")

    def is_read(self, spec: ReplaySpec) -> Column:
        """A record without a key, or with a time before 1970, is ignored: it does not move stream time (rule 3)."""
        is_read = F.col(EVENT_TIME).isNull() | (F.col(EVENT_TIME) >= 0)
        return is_read & has_key(spec.keys) if spec.keys else is_read

    def read(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        return records.where(self.is_read(spec))

    def own_replay(self, records: DataFrame, spec: ReplaySpec, cache: CachedFrames) -> OwnReplay | None:
        return TaskReplay(records, spec, self.application, cache) if self.application.needs_tasks else None


def streams_timeline(spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
    """The timeline of the records, as `invert` makes it, with the steps of each partition.

    Its rows fit the driver's memory: there are at most as many as window ends and partitions.
    """
    table = closes_reached(
        request.records,
        spec.strategy,
        thresholds,
        processing_time_end=request.processing_time_end,
        state=request.state,
    ).toArrow()
    last = last_of(table)
    reached = {partition: values["reached"] for partition, values in last.items()}
    steps = {
        p: inverted(table, [[p]], reached[p] + 1) if p in reached else nothing_closed()
        for p in spec.strategy.partitions
    }
    return Timeline(
        InMemoryTimeline.of_partitions(steps),
        thresholds,
        flushes=False,
        state={"kind": "stream_time", "partitions": {str(p): values for p, values in last.items()}},
        # A later run may go on from here where no partition has passed what it looks up.
        watermark_below=max(reached.values(), default=MIN_TIMESTAMP),
        note="stream time of each partition",
    )
