"""Bring the tables of a pipeline to the layout of this version: columns that are missing, and the branch of revisions.

A run does the same for the columns that it needs. This does it at a time that a person chooses, for all tables at once,
and also for a table of windows without revisions, which a run refuses.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.published_table import FACTS, Cause, PublishedTable
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA, Tables, ensure_table, guarded

BEFORE = "before-upgrade"
"""The run that the windows of a table without revisions get."""


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What was done to a table: the columns that it got, and how many windows became revisions."""

    table: str
    columns: tuple[str, ...]
    windows: int = 0


def upgrade(spark: SparkSession, pipeline: Pipeline) -> list[Upgraded]:
    """Upgrade the tables of a pipeline that exist; those that need nothing are not in the result.

    Can be repeated: an upgrade that was killed goes on.

    Raises:
        CatalogError: The table of windows is not one of Rewindow's, or the catalog fails.
    """
    tables = Tables.of(pipeline)
    done = [
        _with_columns(spark, table, schema)
        for table, schema in ((tables.runs, RUNS_SCHEMA), (tables.timeline_state, TIMELINE_STATE_SCHEMA))
        if spark.catalog.tableExists(table)
    ]
    if spark.catalog.tableExists(tables.windows):
        done.append(guarded("cannot upgrade", tables.windows, lambda: _windows(spark, tables.windows, pipeline)))
    return [one for one in done if one.columns or one.windows]


def _with_columns(spark: SparkSession, table: str, schema: StructType) -> Upgraded:
    before = set(spark.table(table).columns)
    guarded("cannot upgrade", table, lambda: ensure_table(spark, table, schema))
    return Upgraded(table, tuple(name for name in schema.names if name not in before))


def _windows(spark: SparkSession, table: str, pipeline: Pipeline) -> Upgraded:
    schema = spark.table(table).schema
    lacks = {"window_start", "window_end", *pipeline.keys} - set(schema.names)
    if lacks:
        raise CatalogError(
            f"the table has no column {', '.join(sorted(lacks))}: it holds no windows of {pipeline.name}",
            table,
            "Name another table under `output`.",
        )
    columns = _with_columns(spark, table, FACTS).columns
    without = spark.table(table).where(F.col("revision").isNull())
    windows = without.count()
    if windows:
        first = {
            "revision": F.lit(1),
            "cause": F.lit(Cause.BACKFILL.value),
            "run_id": F.lit(BEFORE),
            "as_of": F.lit("{}"),
            "valid_from": F.current_timestamp(),
        }
        values = {name: F.coalesce(F.col(name), value) for name, value in first.items()}
        spark.table(table).withColumns(values).writeTo(table).overwrite(F.lit(True))
    staged = StructType([field for field in schema if field.name not in FACTS.names])
    PublishedTable(spark, table).prepare(staged)
    return Upgraded(table, columns, windows)
