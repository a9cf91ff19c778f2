"""Null-safe joins on keys and window bounds."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.spark.gateway import query_execution
from spark_jobs.spark.joins import OTHER, matching, others, same

KEYS = ("region", "a.b")


@pytest.fixture
def frames(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left = spark.createDataFrame(
        [("eu", 1, "x"), (None, 1, "y"), (None, None, "z")], "region string, `a.b` int, v string"
    )
    right = spark.createDataFrame([(None, 1), (None, None), ("us", 1)], "region string, `a.b` int")
    return left, right


def test_a_null_matches_a_null_and_nothing_else(frames: tuple[DataFrame, DataFrame]) -> None:
    left, right = frames
    assert sorted(row["v"] for row in matching(left, right, KEYS).collect()) == ["y", "z"]
    assert [row["v"] for row in matching(left, right, KEYS, "left_anti").collect()] == ["x"]


@pytest.mark.parametrize("hint", ["shuffle_hash", "merge", "broadcast"])
def test_the_columns_are_keys_of_the_join_in_the_physical_plan(frames: tuple[DataFrame, DataFrame], hint: str) -> None:
    left, right = frames
    joined = left.join(right.select(*others(KEYS)).hint(hint), same(KEYS), "left")
    plan = query_execution(joined).executedPlan().toString()
    join = next(line for line in plan.splitlines() if "Join" in line)
    assert all(f"coalesce({key}#" in join and f"coalesce({OTHER}{key}#" in join for key in KEYS), join
    assert "NestedLoop" not in plan and "<=>" not in join
