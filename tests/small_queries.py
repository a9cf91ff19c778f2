"""Settings with which Spark compiles and re-plans nothing: with a few rows that takes most of a query's time."""

from __future__ import annotations

SMALL_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
AS_VARIABLE = ",".join(f"{name}={value}" for name, value in SMALL_QUERIES.items())
"""The same, as REWINDOW_SPARK_CONF takes it."""
