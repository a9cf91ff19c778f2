"""A Spark session for many tiny inputs."""

from tests.conformance.conftest import quick_spark

__all__ = ["quick_spark"]
