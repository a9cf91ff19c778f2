"""The micro-batches of a query as arrays: their timeline, and which batch has read a record."""

from __future__ import annotations

import itertools
import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.eventtime.microbatch.batches import Batch, BatchKind, BatchLog
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.microbatches import MicroBatches
from spark_jobs.replay.range_lookup import joined_to_ranges


def batches_with(watermarks: list[int], timestamps: list[int] | None = None) -> MicroBatches:
    before = [0, *watermarks]
    planned = timestamps or list(range(len(watermarks)))
    batches = BatchLog.of(
        Batch(i, BatchKind.COMMITTED, planned[i], watermark, before[i]) for i, watermark in enumerate(watermarks)
    )
    return MicroBatches.of(batches, True, {})


@given(st.lists(st.integers(0, 12), min_size=1, max_size=8).map(sorted))
def test_a_window_comes_out_of_the_first_batch_whose_watermark_has_reached_its_end(watermarks: list[int]) -> None:
    batches = batches_with(watermarks)
    timeline = batches.timeline()
    for end in range(-3, 15):
        position = timeline.at(np.array([end - 1]))[0]
        reached = [i for i, watermark in enumerate(watermarks) if watermark >= end]
        if end <= 0:
            assert position[0] < batches.times[0], "before the first batch"
        elif reached:
            assert position.tolist() == [batches.times[reached[0]], NEVER, NEVER]
        else:
            assert position.tolist() == [NEVER, NEVER, NEVER]
    assert timeline.never_from == watermarks[-1]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=8))
def test_a_batch_is_later_than_the_one_before_it_whatever_the_clock_says(timestamps: list[int]) -> None:
    times = batches_with([0] * len(timestamps), timestamps).times.tolist()
    assert all(a < b for a, b in itertools.pairwise(times))
    assert all(time >= planned for time, planned in zip(times, timestamps, strict=True))


def test_each_value_finds_the_range_that_holds_it(spark) -> None:
    """Ranges of very different lengths, in three groups, beside each other or apart."""
    draw = random.Random(7)
    rows, expected = [], []
    for group in range(3):
        at = draw.randrange(-50, 50)
        for number in range(20):
            length = draw.choice((0, 1, 2, 3, 500))
            rows.append((group, at, at + length, group * 100 + number))
            expected += [(group, value, group * 100 + number) for value in range(at, at + length)]
            at += length + draw.choice((0, 0, 4))
    start, end, groups, payload = (np.array([row[i] for row in rows], dtype=np.int64) for i in (1, 2, 0, 3))
    values = [(group, value) for group in range(4) for value in range(-100, 12_000)]
    frame = spark.createDataFrame(values, "g BIGINT, v BIGINT")
    found = joined_to_ranges(frame, frame["v"], start, end, {"p": payload}, group=frame["g"], groups=groups)
    assert sorted(map(tuple, found.select("g", "v", "p").collect())) == sorted(expected)
