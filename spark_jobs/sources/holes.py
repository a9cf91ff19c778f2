"""Offsets of a topic that hold no record: transactions leave some, and compaction does."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import Topic
from spark_jobs.definition.union import of_input
from spark_jobs.errors import HistoryError
from spark_jobs.sources.fidelity import Fidelity, Level, fidelity
from spark_jobs.sources.inspection import PartitionRange
from spark_jobs.sources.kafka_offsets import PinnedTopic
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.union import names_of


def fidelity_of(
    pipeline: Pipeline, opened: OpenHistory, partitions: Iterable[PartitionRange] | None = None
) -> Fidelity:
    """The fidelity of an opened history, see `fidelity`; of a union the least of its inputs.

    `partitions`: what was read of it, where that is known: then `with_holes` is asked, too.
    """
    if not opened.inputs:
        found = fidelity(pipeline, opened.topic)
        return found if partitions is None else with_holes(pipeline, opened.topic, partitions, found)
    known = None if partitions is None else {p.partition: p for p in partitions}
    levels, reasons = list[Level](), list[str]()
    for number, (one, part, name) in enumerate(zip(pipeline.inputs, opened.inputs, names_of(pipeline), strict=True)):
        own = None if known is None else [replace(p, partition=n) for n, p in of_input(known, number).items()]
        found = fidelity_of(one, part, own)
        levels.append(found.level)
        reasons += [f"{name}: {reason}" for reason in found.reasons]
    return Fidelity(max(levels, key=get_args(Level).index), tuple(reasons))


def with_holes(
    pipeline: Pipeline, topic: PinnedTopic | None, partitions: Iterable[PartitionRange], found: Fidelity
) -> Fidelity:
    """The fidelity, with a reason where offsets of a topic hold no record.

    A transaction takes one offset of each partition for its marker, and has a record there. So where more offsets are
    empty than hold a record, compaction has been at work, also if the topic is not compacted any more, or most records
    were aborted: that is refused unless the definition accepts it. A definition that leaves records out before the
    watermark is not looked at: its records are fewer than the topic's.

    Raises HistoryError where most of a partition is gone and `accept` has neither `holes` nor `compacted`.
    """
    history = pipeline.history.topic_alone
    if topic is None or history is None or _leaves_out(pipeline, history):
        return found
    read = {known.partition: known.records for known in partitions}
    missing = 0
    for pinned in topic.ranges:
        records = read.get(pinned.partition, 0)
        holes = pinned.end - pinned.start - records
        if holes > records and not {"holes", "compacted"} & set(history.accept):
            raise HistoryError(
                f"{holes} of the {pinned.end - pinned.start} offsets of partition {pinned.partition} hold no record: "
                "compaction has removed records that the live job saw, or most transactions were aborted",
                f"topic {history.topic} at {history.servers}",
                "Replay a copy that keeps all records, or write `accept: [holes]`, which the run's fidelity records.",
            )
        missing += holes
    if not missing:
        return found
    said = f"{missing} offsets hold no record: transactions leave such, and compaction does"
    return replace(found, reasons=(*found.reasons, said))


def _leaves_out(pipeline: Pipeline, history: Topic) -> bool:
    drops = history.tombstones == "drop" or pipeline.event_time.missing == "drop"
    return drops or pipeline.filter.before_watermark is not None
