"""Kafka Streams' rule book: each task has its own stream time, and nothing passes between partitions."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.kafka_streams.task import Emission
from spark_jobs.replay.columns import EVENT_TIME
from spark_jobs.replay.kafka_streams.replay import Application, TaskReplay, has_key
from spark_jobs.replay.kafka_streams.timeline import streams_timeline
from spark_jobs.replay.rule_book import OwnReplay, RuleBook, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames


@dataclass(frozen=True)
class KafkaStreamsRules(RuleBook):
    """The rules of `tests/golden/kstreams/README.md` for one application."""

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

    def read(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        """A record without a key, or with a time before 1970, is ignored: it does not move stream time (rule 3)."""
        read = records.where(F.col(EVENT_TIME).isNull() | (F.col(EVENT_TIME) >= 0))
        return read.where(has_key(spec.keys)) if spec.keys else read

    def own_replay(self, records: DataFrame, spec: ReplaySpec, cache: CachedFrames) -> OwnReplay | None:
        return TaskReplay(records, spec, self.application, cache) if self.application.needs_tasks else None
