"""Offsets that hold no record: by them a record that comes late is told from those that a run before has read.

A log is dense, so a few ranges say which offsets below an end offset were not there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import get_args

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import Topic
from spark_jobs.definition.union import of_input
from spark_jobs.errors import HistoryError
from spark_jobs.pins import PartitionRange, PinnedTopic
from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.sources.fidelity import Fidelity, Level, fidelity
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import drops_without_event_time
from spark_jobs.sources.union import names_of
from spark_jobs.spark.conditions import any_of

Empty = dict[int, tuple[tuple[int, int], ...]]
"""By partition the ranges `[from, to)` of offsets without a record, in order."""

MOST_RANGES = 200
"""More ranges are not kept: then counts alone tell what is gone."""
_MOST_OFFSETS = 1_000_000
_BITS = 32_768
"""Offsets in one of Spark's bitmaps."""


def empty_offsets(records: DataFrame, ranges: Iterable[PartitionRange]) -> Empty | None:
    """The offsets below the end offset of each partition that hold no record; None: there are too many to keep.

    `ranges` count the records. Where they leave no gap, no Spark job runs.
    """
    known = list(ranges)
    found = {p.partition: [(0, p.first_offset if p.records else p.end_offset)] for p in known}
    sparse = {p.partition: p for p in known if 0 < p.records < p.end_offset - p.first_offset}
    if sum(p.end_offset - p.first_offset - p.records for p in sparse.values()) > _MOST_OFFSETS:
        return None
    if sparse:
        number, bit = F.bitmap_bucket_number(F.col(OFFSET) + 1), F.bitmap_bit_position(F.col(OFFSET) + 1)
        is_full = F.col("count") == _BITS
        bitmaps = (
            records.where(F.col(PARTITION).isin(list(sparse)))
            .groupBy(PARTITION, number.alias("number"))
            .agg(F.count("*").alias("count"), F.bitmap_construct_agg(bit).alias("bitmap"))
            .select(PARTITION, "number", F.when(~is_full, F.col("bitmap")).alias("bitmap"))
            .orderBy(PARTITION, "number")
        )
        for partition, rows in itertools.groupby(bitmaps.collect(), key=lambda row: row[PARTITION]):
            there = [span for row in rows for span in _spans(row["number"], row["bitmap"])]
            edges = [sparse[partition].first_offset, *itertools.chain(*there), sparse[partition].end_offset]
            found[partition] += zip(edges[::2], edges[1::2], strict=True)
    return _few({partition: _joined(spans) for partition, spans in found.items()})


def _spans(number: int, bitmap: bytes | None) -> list[tuple[int, int]]:
    """The ranges of offsets that a bitmap has; None: all of its."""
    first = (number - 1) * _BITS
    if bitmap is None:
        return [(first, first + _BITS)]
    bits = f"{int.from_bytes(bitmap, 'little'):0{_BITS}b}"[::-1]
    return [(first + found.start(), first + found.end()) for found in re.finditer("1+", bits)]


def empty_after(before: Empty | None, as_of: Mapping[int, int], new: Empty | None) -> Empty | None:
    """The empty offsets once records from the end offsets `as_of` on were read too; `new` are those among them."""
    if before is None or new is None:
        return None
    later = {p: [(max(a, as_of.get(p, 0)), b) for a, b in spans] for p, spans in new.items()}
    return _few({p: _joined([*before.get(p, ()), *later.get(p, ())]) for p in before.keys() | later.keys()})


def empty_in_both(before: Empty | None, as_of: Mapping[int, int], now: Empty | None) -> Empty | None:
    """The offsets that no run has read: neither the one `before`, up to `as_of`, nor the one of now."""
    if before is None or now is None:
        return None
    found: Empty = {}
    for partition, spans in now.items():
        end = as_of.get(partition, 0)
        pairs = itertools.product(spans, (*before.get(partition, ()), (end, max([end, *(b for _, b in spans)]))))
        found[partition] = _joined(sorted((max(a, c), min(b, d)) for (a, b), (c, d) in pairs))
    return _few(found)


def is_empty(empty: Empty | None) -> Column:
    """Whether a record's offset is one of these; false where they are not known."""
    spans = [(p, a, b) for p, ranges in (empty or {}).items() for a, b in ranges]
    partition, offset = F.col(PARTITION), F.col(OFFSET)
    of_each = ((partition == p) & (offset >= a) & (offset < b) for p, a, b in spans)
    return any_of(of_each)


def _joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Without those that have no offset; those that touch are one."""
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if start >= end:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def _few(empty: Empty) -> Empty | None:
    return empty if sum(map(len, empty.values())) <= MOST_RANGES else None


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
    drops = history.tombstones == "drop" or drops_without_event_time(pipeline)
    return drops or pipeline.filter.before_watermark is not None
