"""A timeline in memory and the same timeline in Spark."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay import timeline
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.flink import inversion
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.timeline import grid_thresholds
from spark_jobs.spark.cached import CachedFrames
from tests.sampling import first_of, seeds

RECORDS = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT"
GROUPS = {
    "each partition alone": (WatermarkScope.PARTITION, ((0, 1, 2),)),
    "two subtasks": (WatermarkScope.SUBTASK, ((0, 2), (1,))),
    "a partition without records": (WatermarkScope.SUBTASK, ((0, 1, 2), (3,))),
}


def log_of(seed: int) -> list[tuple[int, int, int, int]]:
    draw = random.Random(seed)
    rows, arrival = [], 0
    offsets = [0, 0, 0]
    for _ in range(120):
        arrival += draw.choice((0, 0, 1, 7, 40))
        partition = draw.randrange(3)
        rows.append((partition, offsets[partition], arrival, arrival + draw.randrange(-80, 80)))
        offsets[partition] += 1
    return rows


def naive(rows, groups, bound: int, x: int) -> tuple[int, int, int]:
    """C(x) from its definition, record by record, per event."""
    firsts = []
    for group in groups:
        reached = [(a, p, o) for p, o, a, ts in rows if p in group and ts - bound - 1 >= x]
        firsts.append(min(reached, default=(NEVER, NEVER, NEVER)))
    return max(firsts)


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("per_event", first_of([True, False]))
def test_memory_and_spark_give_the_same_close_positions(spark, monkeypatch, name, per_event) -> None:
    scope, subtasks = GROUPS[name]
    partitions = tuple(sorted(p for group in subtasks for p in group))
    strategy = WatermarkStrategy(
        BoundedOutOfOrderness(15),
        partitions,
        subtasks,
        scope=scope,
        per_event=per_event,
        interval=0 if per_event else 30,
    )
    grid = RegularGrid(10)
    for seed in seeds(1, 20):
        rows = log_of(seed)
        found = []
        for most in (1_000_000, 0):
            monkeypatch.setattr(inversion, "MAX_IN_MEMORY", most)
            monkeypatch.setattr(timeline, "MAX_IN_MEMORY", most)
            held = CachedFrames()
            made = inversion.invert(
                spark.createDataFrame(rows, RECORDS), strategy, grid_thresholds(grid, 0),
                processing_time_end=rows[-1][2], cache=held,
            )  # fmt: skip
            arrays = made.close_arrays(grid, -10, 300)
            lowest = min(row[0] for row in made.rows(spark).collect())
            found.append((arrays.positions.tolist(), made.state, made.watermark_below, lowest))
            held.release()
        assert found[0] == found[1]
        assert found[0][3] == MIN_TIMESTAMP
        if per_event:
            expected = [naive(rows, strategy.generator_groups, 15, x - 1) for x in grid.ends(-10, 300).tolist()]
            assert np.array_equal(found[0][0], expected)


@pytest.mark.parametrize("lateness", [0, 30, 13, MAX_TIMESTAMP])
def test_a_shift_is_folded_into_the_floor_of_thresholds(spark, lateness) -> None:
    grid = RegularGrid(10, phase=3)
    ends = set(grid.ends(-40, 80).tolist())
    closing = {end - 1 for end in ends}
    closing |= {end - 1 + lateness for end in ends} if lateness < MAX_TIMESTAMP else set()
    floor = grid_thresholds(grid, lateness).floor
    shifts = (-1001, -7, 0, 4, 10)
    value = F.col("id")
    rows = spark.range(-100, 100).select("id", *(floor(value - F.lit(s), s) + F.lit(s) for s in shifts)).collect()
    for value, *floors in rows:
        assert floors == [max(x for x in closing if x <= value)] * len(shifts)


steps = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5), st.integers(0, 1)), max_size=30)


def timeline_of(rows: list[tuple[int, int, int]], never_from: int) -> InMemoryTimeline:
    """The steps `x_from, arrival, major`, and that nothing from `never_from` on has closed."""
    every = [(0, 0, 0, 0), *((x, arrival, major, 0) for x, arrival, major in rows), (never_from, NEVER, NEVER, NEVER)]
    columns = zip(*every, strict=True)
    return InMemoryTimeline.of_table(pa.table(dict(zip(("x_from", "arrival", "major", "minor"), columns, strict=True))))


@given(steps, steps)
def test_what_is_kept_of_many_nights_is_no_more_than_its_different_positions(one, other) -> None:
    """Each x has the close that it had with all steps; nights that are joined, and kept, change none."""
    x = np.arange(0, 70)

    def closes(rows):
        found = [max([(a, m, 0) for start, a, m in rows if start <= at], default=(0, 0, 0)) for at in range(31)]
        return [*found, *[(NEVER, NEVER, NEVER)] * 39]

    night = timeline_of(one, 31)
    assert [tuple(row) for row in night.at(x)] == closes(one)
    assert len(night.x_from) <= len({*closes(one), (0, 0, 0)})
    assert night.never_from == 31
    later = timeline_of([(1, 6, 0), *((30 + start, 6 + arrival, major) for start, arrival, major in other)], 61)
    joined = InMemoryTimeline.from_bytes(night.followed_by(later).to_bytes())
    assert joined.at(x).tolist() == np.concatenate((night.at(x[:31]), later.at(x[31:]))).tolist()
    assert len(joined.x_from) < len(night.x_from) + len(later.x_from)


@given(st.lists(st.tuples(steps, st.integers(1, 31), steps), min_size=1, max_size=3))
def test_partitions_with_their_own_time_go_on_each_from_where_it_was_and_the_slowest_counts(partitions) -> None:
    x = np.arange(0, 70)
    nights = {p: timeline_of([r for r in one if r[0] < until], until) for p, (one, until, _) in enumerate(partitions)}
    laters = {
        p: timeline_of([(1, 6, 0), *((30 + start, 6 + arrival, major) for start, arrival, major in other)], 61 + p)
        for p, (_, _, other) in enumerate(partitions)
    }
    night = InMemoryTimeline.from_bytes(InMemoryTimeline.of_partitions(nights).to_bytes())
    joined = InMemoryTimeline.from_bytes(night.followed_by(InMemoryTimeline.of_partitions(laters)).to_bytes())
    expected = []
    for p, (_, until, _) in enumerate(partitions):
        own = [*nights[p].at(x[:until]).tolist(), *laters[p].at(x[until:]).tolist()]
        assert joined.by_partition[p].at(x).tolist() == own
        expected.append(own)
    assert joined.at(x).tolist() == [max(closes) for closes in zip(*expected, strict=True)]
    assert night.never_from == min(until for _, until, _ in partitions)


POSITIONS = st.tuples(*[st.integers(-1, 3)] * 3)


@given(st.sets(POSITIONS, min_size=1), st.lists(POSITIONS, min_size=1))
def test_the_last_position_until_another_is_found_among_those_that_ascend(
    own: set[tuple[int, int, int]], until: list[tuple[int, int, int]]
) -> None:
    steps = InMemoryTimeline(np.arange(len(own), dtype=np.int64), np.array(sorted(own), dtype=np.int64))
    lowest = (MIN_TIMESTAMP,) * 3
    wanted = [max((one for one in own if one <= end), default=lowest) for end in until]
    assert [tuple(found) for found in steps.last_until(np.array(until, dtype=np.int64)).tolist()] == wanted
