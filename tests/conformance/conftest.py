"""A Spark session for many tiny inputs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def quick_spark(spark: SparkSession) -> SparkSession:
    """One task a stage and no re-planning: what costs time here is the number of jobs, not the data."""
    session = spark.newSession()
    for name, value in {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.ansi.enabled": "true",
    }.items():
        session.conf.set(name, value)
    return session
