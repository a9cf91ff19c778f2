"""A timeline in memory and the same timeline in Spark."""

from __future__ import annotations

import random

import numpy as np
import pytest
from pyspark.sql import functions as F

from spark_jobs.eventtime.strategy import Scope, WatermarkStrategy
from spark_jobs.eventtime.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay import inversion, timeline
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.timeline import grid_thresholds
from spark_jobs.spark.cached import CachedFrames

RECORDS = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT"
GROUPS = {
    "each partition alone": (Scope.PARTITION, ((0, 1, 2),)),
    "two subtasks": (Scope.SUBTASK, ((0, 2), (1,))),
    "a partition without records": (Scope.SUBTASK, ((0, 1, 2), (3,))),
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
@pytest.mark.parametrize("per_event", [True, False])
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
    for seed in range(2):
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
