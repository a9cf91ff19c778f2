"""Partitions that have fallen silent: what a plan says of them, because they hold back what others have long passed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engine import Engine
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import HOUR, format_duration
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows
from spark_jobs.pins import PartitionRange
from spark_jobs.replay.from_pipeline import strategy_of


def fallen_silent(
    pipeline: Pipeline, windows: AnyWindows, known: Collection[PartitionRange], everywhere: Iterable[PartitionRange]
) -> list[str]:
    """The partitions that have had no record for long, each with what it holds back.

    Long is more than an hour and than the longest window. Partitions without any record are not among them.

    Args:
        pipeline: Whose watermark it is: of a union that of one input.
        known: The partitions of the pipeline.
        everywhere: Those of all inputs.
    """
    now = max((p.last_arrival for p in everywhere if p.last_arrival is not None), default=0)
    patience = max(HOUR, windows.longest if isinstance(windows, AlignedWindows) else 0)
    arrivals = {p.partition: p.last_arrival for p in known if p.last_arrival is not None}
    silent = {p for p, last in arrivals.items() if now - last > patience}
    return [
        f"{_named(group)} had no record since {format_instant(last)}, {format_duration(now - last)} before the last "
        f"arrival: {what}"
        for group, what in _holding(pipeline, sorted(p.partition for p in known))
        if group and silent.issuperset(group)
        for last in [max(arrivals[p] for p in group)]
    ]


def _holding(pipeline: Pipeline, partitions: Sequence[int]) -> list[tuple[tuple[int, ...], str]]:
    """The partitions that hold something back while all of a group are silent; none where the engine waits for none."""
    if pipeline.engine is Engine.KAFKA_STREAMS:
        return [
            ((p,), "its stream time stands still, so its own windows that end later do not close") for p in partitions
        ]
    if pipeline.engine is not Engine.FLINK:
        return []
    strategy = strategy_of(pipeline, partitions)
    waits_for_all = strategy.idleness is None or not strategy.interval
    if not waits_for_all or strategy.follows_the_clock or strategy.moves_without_records:
        return []
    what = "the watermark waits there, so no window that ends later closes (watermark.idleness is not set)"
    return [(group, what) for group in strategy.generator_groups]


def _named(partitions: Sequence[int]) -> str:
    listed = ", ".join(map(str, partitions))
    return f"partitions {listed} have" if len(partitions) > 1 else f"partition {listed} has"
