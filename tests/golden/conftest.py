"""A Spark session for many tiny inputs."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.conformance.formats import TINY


@pytest.fixture(scope="session")
def quick_spark(spark: SparkSession) -> SparkSession:
    """A session of its own, set up as `python -m tests.conformance` does it."""
    session = spark.newSession()
    for name, value in {**TINY, "spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}.items():
        session.conf.set(name, value)
    return session
