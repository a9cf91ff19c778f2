"""Bring the tables of a pipeline to the layout of this version: missing columns, the form of a column, revisions.

A run does the same for most columns that it needs. This does it at a time that a person chooses, for all tables at
once, and also for tables of windows that a run refuses: one without revisions, and one whose `as_of` is a map.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.corrections import CORRECTION_FACTS
from spark_jobs.lakehouse.publication import FACTS, REVISIONS, Cause
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA, Tables, ensure_table, guarded
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS, VERDICT_FACTS, rename_verdicts
from spark_jobs.sources import QUARANTINE_SCHEMA

BEFORE = "before-upgrade"
"""The run that the windows of a table without revisions get."""
_MAP = "as_of_map"
"""What the column `as_of` is called while its maps become text."""
_RUN_ID = StructField("run_id", StringType())


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What was done to a table: the columns that it got, how many windows became revisions, how many rows got the
    verdicts' names of today."""

    table: str
    columns: tuple[str, ...]
    windows: int = 0
    verdicts: int = 0


def upgrade(spark: SparkSession, pipeline: Pipeline) -> list[Upgraded]:
    """Upgrade the tables of a pipeline that exist; those that need nothing are not in the result.

    Can be repeated: an upgrade that was killed goes on.

    Raises:
        CatalogError: The table of windows is not one of Rewindow's, or the catalog fails.
    """
    tables = Tables.of(pipeline)
    schemas = {
        tables.runs: RUNS_SCHEMA,
        tables.timeline_state: TIMELINE_STATE_SCHEMA,
        tables.late: StructType([_RUN_ID]),
        tables.quarantine: StructType([_RUN_ID, *QUARANTINE_SCHEMA]),
        tables.verdicts: VERDICT_FACTS,
        tables.comparisons: COMPARISON_COLUMNS,
        tables.corrections: CORRECTION_FACTS,
    }
    done = [
        _with_columns(spark, table, schema) for table, schema in schemas.items() if spark.catalog.tableExists(table)
    ]
    for table, rows in rename_verdicts(spark, tables.verdicts, tables.comparisons).items():
        done.append(Upgraded(table, (), verdicts=rows))
    if spark.catalog.tableExists(tables.windows):
        done.append(guarded("cannot upgrade", tables.windows, lambda: _windows(spark, tables.windows, pipeline)))
    return [one for one in done if one.columns or one.windows or one.verdicts]


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
    published = PublishedTable(spark, table)
    if "as_of" in schema.names and isinstance(schema["as_of"].dataType, MapType):
        published.alter(f"RENAME COLUMN as_of TO {_MAP}")
    columns = _with_columns(spark, table, FACTS).columns
    if _MAP in spark.table(table).columns:
        _maps_to_text(spark, published)
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
    staged = StructType([field for field in schema if field.name not in (*FACTS.names, _MAP)])
    published.prepare(staged)
    return Upgraded(table, columns, windows)


def _maps_to_text(spark: SparkSession, published: PublishedTable) -> None:
    """End offsets as JSON text, as this version writes them, on `main` and on the branch of revisions."""
    text = F.to_json(F.map_from_entries(F.array_sort(F.map_entries(_MAP))))
    published.alter("WRITE LOCALLY ORDERED BY window_start")
    branches = {row["name"] for row in spark.table(f"{published.table}.refs").collect()} & {"main", REVISIONS}
    for branch in sorted(branches):
        name = published.table if branch == "main" else f"{published.table}.branch_{branch}"
        rows = spark.table(name).withColumn("as_of", F.coalesce("as_of", text))
        rows.writeTo(name).overwrite(F.lit(True))
    published.alter(f"DROP COLUMN {_MAP}")
