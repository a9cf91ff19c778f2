"""A Spark session for many tiny inputs."""

from tests.golden.conftest import quick_spark

__all__ = ["quick_spark"]
