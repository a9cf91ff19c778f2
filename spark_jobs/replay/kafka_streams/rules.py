"""Kafka Streams' rule book: each task has its own stream time, and nothing passes between partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.kafka_streams import streams_of, streams_windows_of
from spark_jobs.eventtime.kafka_streams.task import Emission, Topology
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.replay.flink.inversion import closes_reached, last_of
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, inverted, nothing_closed
from spark_jobs.replay.kafka_streams.night import TaskNight, reached, why_not_gone_on
from spark_jobs.replay.kafka_streams.replay import Application, TaskReplay, has_key
from spark_jobs.replay.kafka_streams.tasks import TaskRestart
from spark_jobs.replay.other_values import OtherValue
from spark_jobs.replay.rule_book import GoneOn, OwnReplay, RuleBook, TimelineRequest
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames


@dataclass(frozen=True)
class KafkaStreamsRules(RuleBook):
    """The rules of `tests/golden/kstreams/README.md` for one application."""

    closes_by_partition = True

    application: Application

    @classmethod
    def of(cls, pipeline: Pipeline, recorded: object | None) -> KafkaStreamsRules:
        return cls(application_of(pipeline))

    @property
    def decides_by_order(self) -> bool:
        return self.application.needs_tasks

    @property
    def gives_open_windows(self) -> bool:
        return self.application.topology.emission is Emission.EACH_UPDATE

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        return streams_timeline(spec, request, thresholds)

    def is_read(self, spec: ReplaySpec) -> Column:
        """A record without a key, or with a time before 1970, is ignored: it does not move stream time (rule 3)."""
        is_read = F.col(EVENT_TIME).isNull() | (F.col(EVENT_TIME) >= 0)
        return is_read & has_key(spec.keys) if spec.keys else is_read

    def read(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        return records.where(self.is_read(spec))

    def with_watermark(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        """By stream time, less the grace and 1 ms: a stream time before the first of `records` closes nothing there."""
        keyed = records.where(has_key(spec.keys)) if spec.keys else records
        starts = [(F.col(ARRIVAL) >= F.lit(one.instant)) for one in self.application.of_all]
        starts += [
            (F.col(PARTITION) == F.lit(partition)) & (F.col(OFFSET) >= F.lit(one.offset))
            for partition, restarts in self.application.restarts.items()
            for one in restarts
        ]
        life = sum((F.when(start, 1).otherwise(0) for start in starts), F.lit(0))
        before = Window.partitionBy(PARTITION, "rw_life").orderBy(OFFSET).rowsBetween(Window.unboundedPreceding, -1)
        time = F.max(EVENT_TIME).over(before) - F.lit(self.application.topology.grace + 1)
        return keyed.withColumn("rw_life", life).withColumn("rw_watermark", time).drop("rw_life")

    def own_replay(
        self, records: DataFrame, spec: ReplaySpec, cache: CachedFrames, before: GoneOn | None = None
    ) -> OwnReplay | None:
        if not self.application.needs_tasks:
            return None
        if before is None:
            return TaskReplay(records, spec, self.application, cache)
        return TaskNight(records, spec, self.application, cache, before)

    @property
    def forgets_records(self) -> bool:
        return bool(self.application.of_all) or any(self.application.restarts.values())

    def why_not_gone_on(self, state: Mapping[str, Any]) -> str:
        return why_not_gone_on(self.application, state)

    def reached(self, windows: DataFrame, new: DataFrame, spec: ReplaySpec, state: Mapping[str, Any]) -> DataFrame:
        return reached(windows, self.read(new, spec), spec, self.application, state)

    def other_values(self, spec: ReplaySpec, *, is_whole: bool) -> Iterator[OtherValue]:
        application = self.application
        if is_whole and (application.restarts or application.of_all):
            alone = replace(application, restarts={}, of_all=())
            yield OtherValue("watermark.restarts", "[]", replace(spec, rules=replace(self, application=alone)))
        for emission, text in _WRITTEN.items() if is_whole else ():
            if emission is not application.topology.emission:
                other = replace(application, topology=replace(application.topology, emission=emission))
                yield OtherValue("emission", text, replace(spec, rules=replace(self, application=other)))


_WRITTEN = {
    Emission.EACH_UPDATE: "each_update",
    Emission.SUPPRESS: "on_close",
    Emission.ON_WINDOW_CLOSE: "{kind: on_close, strategy: emit}",
}
"""The kinds of emission, as a definition has them."""
RULES = KafkaStreamsRules


def application_of(pipeline: Pipeline) -> Application:
    """The Kafka Streams application that the definition describes. Raises TypeError for another engine's."""
    application = streams_of(pipeline)
    watermark, emission = application.watermark, application.row_emission
    topology = Topology(
        streams_windows_of(pipeline.window), watermark.grace, emission.emits, watermark.retention, emission.interval
    )
    general = [
        TaskRestart(restart.state, instant=restart.at) for restart in watermark.restarts if restart.at is not None
    ]
    by_offset: dict[int, list[TaskRestart]] = {}
    for restart in watermark.restarts:
        for partition, offset in (restart.offsets or {}).items():
            by_offset.setdefault(partition, []).append(TaskRestart(restart.state, offset=offset))
    return Application(topology, by_offset, tuple(sorted(general, key=lambda restart: restart.instant or 0)))


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
