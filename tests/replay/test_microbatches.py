"""The micro-batches of a query as arrays: their timeline, and which batch has read a record."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import GeneratorKind, supplier_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batch, BatchKind, BatchLog, OffsetRanges
from spark_jobs.eventtime.windows import SlidingWindows
from spark_jobs.replay.band import UNDECIDED, Band
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.range_lookup import joined_to_ranges
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from spark_jobs.replay.spec import ReplaySpec


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


@pytest.mark.parametrize("seed", range(2))
def test_the_offset_at_which_a_window_ends_says_the_same_as_the_batch_of_each_record(spark, seed: int) -> None:
    """Partitions with gaps in their numbers; records before the first batch's offsets and behind the last one's."""
    draw, count = random.Random(seed), 12
    watermarks = np.cumsum([0, *(draw.choice((0, 0, 7, 15)) for _ in range(count - 1))])
    log = BatchLog.of(
        Batch(i, BatchKind.COMMITTED, i, int(watermarks[i]), int(watermarks[max(0, i - 1)])) for i in range(count)
    )
    ranges, rows = {}, []
    for partition in (0, 3, 10_001):
        ends = np.cumsum([2, *(draw.choice((0, 1, 5)) for _ in range(count))])
        read = ends[1:] > ends[:-1]
        ranges[partition] = OffsetRanges(ends[:-1][read], ends[1:][read], np.flatnonzero(read))
        rows += [
            (partition, offset, 0, draw.randrange(0, 130), draw.choice("ab")) for offset in range(int(ends[-1]) + 3)
        ]
    records = spark.createDataFrame(
        rows, "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, k STRING"
    )
    rules = StructuredStreamingRules(MicroBatches.of(log, True, ranges), OutputMode.APPEND)
    strategy = WatermarkStrategy(supplier_of(GeneratorKind.NONE), (0,), ((0,),))
    spec = ReplaySpec(rules, strategy, SlidingWindows(20, 10), 0, ("k",), {"n": "count(*)"}, flush=False)
    times = TimeRange(0, 130)

    def windows(history: History, *, is_placed: bool, band: Band | None = None) -> set[tuple]:
        with Replay(history, spec, is_placed=is_placed) as replay:
            found = replay.windows(TimeRange(-20, 130), band).drop(UNDECIDED)
            return {tuple(row) for row in found.collect()}

    assert rules.unplaced(records, spec, TimeRange(-20, 130)) is not None
    found = windows(History(records, times, 0), is_placed=False)
    assert found == windows(History(rules.placed(records), times, 0), is_placed=True)
    assert found == windows(History(records, times, 0), is_placed=False, band=Band(0, 0))
    dropped, states = sum(row[7] for row in found), {row[9] for row in found}
    assert dropped > 0 and {"closed", "open"} <= states


def test_of_a_partition_that_was_read_with_a_hole_no_offset_tells_the_batches_apart() -> None:
    log = BatchLog.of(Batch(i, BatchKind.COMMITTED, i, 0, 0) for i in range(2))
    assert MicroBatches.of(log, True, {0: OffsetRanges.of([0, 5], [5, 9], [0, 1])}).cuts is not None
    assert MicroBatches.of(log, True, {0: OffsetRanges.of([0, 6], [5, 9], [0, 1])}).cuts is None
