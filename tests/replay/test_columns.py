"""Positions as Spark columns: their order, and the arrays that they are looked up in."""

from __future__ import annotations

import itertools

import numpy as np
from pyspark.sql import functions as F

from spark_jobs.replay.columns import NEVER, PositionColumns, long_arrays, position_names

VALUES = (-1, 0, 7, NEVER)
NAMES = [*position_names("a"), *position_names("b")]


def test_positions_are_compared_part_by_part(spark) -> None:
    positions = list(itertools.product(VALUES, repeat=3))
    rows = [a + b for a in positions for b in positions]
    frame = spark.createDataFrame(rows, ", ".join(f"{name} BIGINT" for name in NAMES))
    a, b = PositionColumns.named("a"), PositionColumns.named("b")
    judged = frame.select(*NAMES, a.not_after(b).alias("not_after"), a.before(b).alias("before")).collect()
    assert len(judged) == len(rows)
    for row in judged:
        left, right = tuple(row[:3]), tuple(row[3:6])
        assert (row["not_after"], row["before"]) == (left <= right, left < right)


def test_nothing_is_known_of_a_position_that_is_not_there(spark) -> None:
    frame = spark.createDataFrame([(1, 2, 3, None, None, None)], ", ".join(f"{name} BIGINT" for name in NAMES))
    a, b = PositionColumns.named("a"), PositionColumns.named("b")
    assert frame.select(a.not_after(b), b.not_after(a), a.before(b)).collect()[0][:] == (None, None, None)


def test_arrays_are_looked_up_by_place_and_null_outside(spark) -> None:
    frame = spark.createDataFrame([(i,) for i in (-1, 0, 1, 2)], "i INT")
    arrays = long_arrays(frame, {"x": np.array([5, NEVER]), "y": np.array([-1, 0])})
    rows = frame.select("i", *(F.get(array, F.col("i")).alias(name) for name, array in arrays.items())).collect()
    assert sorted(rows) == [(-1, None, None), (0, 5, -1), (1, NEVER, 0), (2, None, None)]
