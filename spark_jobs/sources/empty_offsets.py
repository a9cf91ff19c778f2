"""Offsets that hold no record: by them a record that comes late is told from those that a run before has read.

A log is dense, so a few ranges say which offsets below an end offset were not there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.sources.inspection import PartitionRange

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
    return reduce(or_, of_each, F.lit(False))


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
