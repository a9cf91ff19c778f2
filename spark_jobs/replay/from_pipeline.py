"""From a pipeline definition to the engine's `ReplaySpec`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from spark_jobs.definition import Pipeline
from spark_jobs.definition.custom import check_class
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.engines import part_of
from spark_jobs.definition.union import BLOCK, of_input
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.functions.prepared import aggregates_of
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.rule_book import RuleBook
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


def rule_book_of(pipeline: Pipeline) -> type[RuleBook]:
    """The kind of rule book that the live job's engine has."""
    return part_of(pipeline.engine, "replay", "rules").RULES


def spec_of(
    pipeline: Pipeline,
    partitions_found: Sequence[int],
    *,
    mode: Mode = Mode.BOTH,
    panes: Panes | None = None,
    recorded: object | None = None,
) -> ReplaySpec:
    """The replay that the definition describes, in the given mode; `panes` overrides the definition's.

    `recorded`: what the live job has written down of its reading, see `RuleBook.of`.
    """
    rules = rule_book_of(pipeline).of(pipeline, recorded)
    return ReplaySpec(
        rules=rules,
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
        deduplication=rules.deduplication(pipeline),
    )
