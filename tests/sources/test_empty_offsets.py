"""Offsets that hold no record, against plain sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.replay.columns import OFFSET, PARTITION
from spark_jobs.sources import PartitionRange
from spark_jobs.sources.empty_offsets import (
    MOST_RANGES,
    Empty,
    empty_after,
    empty_in_both,
    empty_offsets,
    is_empty,
)


def spans(offsets: set[int], end: int) -> tuple[tuple[int, int], ...]:
    """The ranges below `end` that are not in `offsets`, as a person would find them."""
    found: list[tuple[int, int]] = []
    for offset in range(end):
        if offset not in offsets:
            found[-1:] = (
                [(found[-1][0], offset + 1)]
                if found and found[-1][1] == offset
                else [*found[-1:], (offset, offset + 1)]
            )
    return tuple(found)


def ranges(log: dict[int, set[int]]) -> list[PartitionRange]:
    return [PartitionRange(p, min(o), max(o) + 1, None, None, len(o)) for p, o in log.items()]


logs = st.sets(st.integers(0, 60), min_size=1)


@given(before=logs, later=st.sets(st.integers(0, 30)), late=logs)
def test_empty_offsets_follow_what_was_read(before: set[int], later: set[int], late: set[int]) -> None:
    end = max(before) + 1
    known: Empty = {0: spans(before, end)}
    new = {end + offset for offset in later}
    if new:
        found = empty_after(known, {0: end}, {0: spans(new, max(new) + 1)})
        assert found == {0: spans(before | new, max(new) + 1)}
    now = {0: spans(late, max(late) + 1)}
    both = empty_in_both(known, {0: end}, now)
    ever = late | before
    assert both == {0: tuple(_below(spans(ever, max(late) + 1), max(late) + 1))}


def _below(found: tuple[tuple[int, int], ...], end: int) -> list[tuple[int, int]]:
    return [(a, min(b, end)) for a, b in found if a < end]


def test_a_history_says_which_offsets_are_empty(spark: SparkSession) -> None:
    log = {
        0: set(range(5, 100_000)) - {7, 40_000, 40_001} - set(range(50_000, 90_000)),
        1: set(range(200)),
        3: {32_767, 32_768, 65_535, 65_536},
    }
    rows = [(p, o) for p, offsets in log.items() for o in offsets]
    records = spark.createDataFrame(rows, f"{PARTITION} INT, {OFFSET} BIGINT")
    found = empty_offsets(records, ranges(log))
    assert found == {p: spans(offsets, max(offsets) + 1) for p, offsets in log.items()}
    late = spark.createDataFrame([(0, 6), (0, 7), (0, 40_001), (1, 7), (3, 5), (4, 1)], records.schema)
    assert [(r[0], r[1]) for r in late.where(is_empty(found)).collect()] == [(0, 7), (0, 40_001), (3, 5)]
    many = {0: set(range(0, 4 * MOST_RANGES, 2))}
    rows = [(0, o) for o in many[0]]
    assert empty_offsets(spark.createDataFrame(rows, records.schema), ranges(many)) is None
    assert late.where(is_empty(None)).isEmpty() and late.select(F.count_if(is_empty(None))).collect()[0][0] == 0


@pytest.mark.parametrize("known", [None, {}])
def test_what_is_not_known_stays_unknown(known: Empty | None) -> None:
    assert empty_after(None, {0: 1}, known) is None
    assert empty_in_both(None, {0: 1}, known) is None
