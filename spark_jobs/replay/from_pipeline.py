"""From a pipeline definition to the engine's `ReplaySpec`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.definition import Pipeline
from spark_jobs.definition.custom import check_class
from spark_jobs.definition.deduplicate import Deduplicate, DeduplicateKind
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.kafka_streams import StreamsWatermark, streams_windows_of
from spark_jobs.definition.structured_streaming import StreamingWatermark
from spark_jobs.definition.union import BLOCK, of_input
from spark_jobs.definition.watermark import Watermark
from spark_jobs.eventtime.flink.deduplication import UpdateType
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.kafka_streams.task import Topology
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.deduplication import DeduplicationKind
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.replay.deduplication import ID, Deduplication, FirstByProcessingTime, FirstByRowTime, SparkDeduplication
from spark_jobs.replay.defined_windows import slices_of, windows_of
from spark_jobs.replay.flink.rules import FLINK, FlinkRules
from spark_jobs.replay.kafka_streams.replay import Application
from spark_jobs.replay.kafka_streams.rules import KafkaStreamsRules
from spark_jobs.replay.kafka_streams.tasks import TaskRestart
from spark_jobs.replay.rule_book import RuleBook
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec


def strategy_of(pipeline: Pipeline, partitions_found: Sequence[int]) -> WatermarkStrategy:
    """The watermark strategy; where the definition registers no partitions, those found in the history are taken.

    Raises DefinitionError for a generator of the user's own that cannot run here.
    """
    if pipeline.inputs:
        return WatermarkStrategy.of_union(
            [
                _numbered(strategy_of(one, sorted(of_input(dict.fromkeys(partitions_found), number))), number)
                for number, one in enumerate(pipeline.inputs)
            ]
        )
    watermark = pipeline.watermark
    check_class(pipeline)
    partitions = tuple(watermark.partitions or sorted(partitions_found))
    return WatermarkStrategy(
        generator=watermark.supplier,
        partitions=partitions,
        subtasks=watermark.subtasks or (partitions,),
        scope=watermark.scope,
        per_event=watermark.emission == "per_event",
        interval=watermark.interval,
        timer_start=watermark.timer_start or 0,
        idleness=watermark.idleness,
        all_idle_emits_maximum=watermark.all_idle_emits_maximum,
        discovered=tuple(sorted(watermark.discovered.items())),
    )


def _numbered(strategy: WatermarkStrategy, number: int) -> WatermarkStrategy:
    """The strategy of a union's input, under the union's partition numbers."""
    first = number * BLOCK
    return replace(
        strategy,
        partitions=tuple(first + partition for partition in strategy.partitions),
        subtasks=tuple(tuple(first + partition for partition in subtask) for subtask in strategy.subtasks),
        discovered=tuple((first + partition, at) for partition, at in strategy.discovered),
    )


def rules_of(pipeline: Pipeline, batches: MicroBatches | None = None) -> RuleBook:
    """The rule book of the live job's engine; of a Structured Streaming query by the `batches` that it has run.

    Without them only complete values can be computed.
    """
    watermark = pipeline.watermark
    if isinstance(watermark, StreamsWatermark):
        return KafkaStreamsRules(application_of(pipeline))
    if isinstance(watermark, Watermark):
        return _rules_of_flink(pipeline)
    if not isinstance(watermark, StreamingWatermark) or batches is None:
        return FLINK
    mode = pipeline.output_mode or OutputMode.APPEND
    return StructuredStreamingRules(batches, mode, merge_locally=watermark.merge_sessions_in_local_partition)


def _rules_of_flink(pipeline: Pipeline) -> RuleBook:
    """A DataStream job's rules, or those of a query of Flink SQL."""
    section, slices = pipeline.flink_sql, slices_of(pipeline)
    return FLINK if section is None or slices is None else FlinkRules(slices, section.checkpoint_interval)


def deduplication_of(pipeline: Pipeline, batches: MicroBatches | None = None) -> Deduplication | None:
    """What the live job does about duplicates; None: nothing. `batches`: as in `rules_of`.

    The canonical records have what duplicates share in a column of their own.
    """
    section, watermark = pipeline.deduplicate, pipeline.watermark
    if section is None or isinstance(watermark, StreamsWatermark):
        return None
    if isinstance(watermark, StreamingWatermark):
        return None if batches is None else _of_spark(section, watermark, batches)
    if section.kind is DeduplicateKind.ROW_TIME:
        return FirstByRowTime((ID,), section.within)
    return FirstByProcessingTime((ID,), section.within, section.update_type is UpdateType.ON_READ_AND_WRITE)


def _of_spark(section: Deduplicate, watermark: StreamingWatermark, batches: MicroBatches) -> SparkDeduplication:
    kind = DeduplicationKind.WITHIN_WATERMARK
    if section.kind is DeduplicateKind.DROP_DUPLICATES:
        kind = DeduplicationKind.ID_AND_TIME if section.event_time else DeduplicationKind.ID
    delays = [(one.first_batch, one.delay) for one in section.delays] or [(0, watermark.delay)]
    times = tuple((batches.time_from(batch), delay) for batch, delay in delays)
    return SparkDeduplication(kind, (ID,), times, batches)


def application_of(pipeline: Pipeline) -> Application:
    """The Kafka Streams application that the definition describes. Raises TypeError for another engine's."""
    watermark, emission = pipeline.watermark, pipeline.emission
    if not isinstance(watermark, StreamsWatermark) or emission is None:
        raise TypeError(f"{pipeline.name} is no application of Kafka Streams")
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


def spec_of(
    pipeline: Pipeline,
    partitions_found: Sequence[int],
    *,
    mode: Mode = Mode.BOTH,
    panes: Panes | None = None,
    batches: MicroBatches | None = None,
) -> ReplaySpec:
    """The replay that the definition describes, in the given mode; `panes` overrides the definition's.

    `batches`: those of a Structured Streaming query, see `rules_of`.
    """
    return ReplaySpec(
        rules=rules_of(pipeline, batches),
        strategy=strategy_of(pipeline, partitions_found),
        windows=windows_of(pipeline),
        allowed_lateness=pipeline.allowed_lateness,
        keys=tuple(pipeline.keys),
        aggregates=dict(aggregates_of(pipeline)),
        after_watermark=pipeline.filter.after_watermark,
        mode=mode,
        panes=panes or Panes(pipeline.panes),
        flush=pipeline.end_of_input == "flush",
        restarts=restarts_of(pipeline),
        deduplication=deduplication_of(pipeline, batches),
    )
