"""What is known of staged windows without reading them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.lakehouse.staging import CHUNK, StagedPart, Staging

IDENTITY = ("key", "window_start", "window_end")


@pytest.fixture
def staging(spark: SparkSession) -> Iterator[Staging]:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.staging_tests")
    made = Staging(spark, f"rewindow.staging_tests.s{secrets.token_hex(4)}")
    yield made
    made.drop()


def windows(spark: SparkSession, *hours: int, key: str = "'a'") -> DataFrame:
    rows = ", ".join(f"({key}, TIMESTAMP '2026-01-01 00:00:00' + INTERVAL {h} HOURS)" for h in hours)
    start = f"SELECT col1 AS key, col2 AS window_start, col2 + INTERVAL 1 HOUR AS window_end FROM VALUES {rows}"
    return spark.sql(start)


def test_windows_of_one_aggregation_are_known_to_be_distinct(spark: SparkSession, staging: Staging) -> None:
    staging.write(1, windows(spark, 0, 1), distinct_by=IDENTITY)
    assert staging.is_distinct_by(IDENTITY)
    assert not staging.is_distinct_by(("key", "window_start"))
    staging.write(2, windows(spark, 2, 3), distinct_by=IDENTITY)
    staging.write(1, windows(spark, 0, 1), distinct_by=IDENTITY)  # again, as a task that was cleared
    staging.write(3, windows(spark, 9).limit(0), distinct_by=IDENTITY)
    staging.write(1, windows(spark, 5), StagedPart.LATE)
    assert staging.is_distinct_by(IDENTITY)


def test_windows_of_other_origin_are_not(spark: SparkSession, staging: Staging) -> None:
    staging.write(1, windows(spark, 0, 1), distinct_by=IDENTITY)
    staging.write(2, windows(spark, 2, 3))
    assert not staging.is_distinct_by(IDENTITY)


def test_chunks_with_windows_of_the_same_starts_are_not(spark: SparkSession, staging: Staging) -> None:
    staging.write(1, windows(spark, 0, 1), distinct_by=IDENTITY)
    staging.write(2, windows(spark, 1, 2, key="'b'"), distinct_by=IDENTITY)
    assert not staging.is_distinct_by(IDENTITY)


@pytest.mark.parametrize("chunk", [1, 2])
def test_rows_that_somebody_else_has_staged_are_seen(spark: SparkSession, staging: Staging, chunk: int) -> None:
    staging.write(1, windows(spark, 0, 1), distinct_by=IDENTITY)
    spark.sql(f"INSERT INTO {staging.table} SELECT {chunk} AS {CHUNK}, * FROM {{rows}}", rows=windows(spark, 1))
    assert not staging.is_distinct_by(IDENTITY)
