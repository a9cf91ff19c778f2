"""Rewindow's own Iceberg tables in the catalog `rewindow`.

For a pipeline with the output `<namespace>.<table>`:

- `<table>`: windows. Keys, `window_start`, `window_end` (UTC), `pane`, the aggregates (faithful) and
  `<aggregate>__complete`, `records_on_time`, `records_late`, `records_dropped`, `state`, `closed_at`, `run_id`;
- `<table>__late`: records that windows dropped, one row each;
- `<table>__quarantine`: records that could not be used, with position, raw value and reason;

and for all pipelines of a namespace `runs` and `timeline_state`.

A run replaces its range of windows: it stages on a branch of each table and publishes by moving `main`
there, one atomic commit a table, side tables first. A reader of the windows sees the old run or the new
one; a run that dies before leaves the tables as they were.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.catalog import CATALOG
from spark_jobs.sources.failures import read_error

T = TypeVar("T")

STAGING_PREFIX = "staging_"
_FULL = re.compile(r"No space left on device|Disk quota exceeded")
_FORBIDDEN = re.compile(r"AccessControlException|Permission denied")
_PROPERTIES = "TBLPROPERTIES ('format-version'='2', 'write.parquet.compression-codec'='zstd')"

RUNS_SCHEMA = """run_id STRING, pipeline STRING, status STRING, definition_hash STRING, definition STRING,
range_start TIMESTAMP, range_end TIMESTAMP, as_of MAP<INT, BIGINT>, processing_time_end TIMESTAMP, mode STRING,
panes STRING, fidelity STRING, fidelity_reasons ARRAY<STRING>, records_read BIGINT, records_quarantined BIGINT,
windows BIGINT, windows_open BIGINT, windows_all_late BIGINT, pairs_on_time BIGINT, pairs_late BIGINT,
pairs_dropped BIGINT, records_late BIGINT, timings MAP<STRING, DOUBLE>, rewindow_version STRING,
started_at TIMESTAMP, finished_at TIMESTAMP"""

TIMELINE_STATE_SCHEMA = """pipeline STRING, definition_hash STRING, run_id STRING, as_of MAP<INT, BIGINT>,
processing_time_end TIMESTAMP, watermark_below BIGINT, state STRING, saved_at TIMESTAMP"""


@dataclass(frozen=True, slots=True)
class Tables:
    """The full names of a pipeline's tables."""

    windows: str
    late: str
    quarantine: str
    runs: str
    timeline_state: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Tables:
        namespace = f"{CATALOG}.{pipeline.output.namespace}"
        table = f"{namespace}.{pipeline.output.table}"
        return cls(table, f"{table}__late", f"{table}__quarantine", f"{namespace}.runs", f"{namespace}.timeline_state")


def _guarded(what: str, where: str, action: Callable[[], T], *, reads_history: bool = False) -> T:
    try:
        return action()
    except (PySparkException, Py4JJavaError) as problem:
        text = str(problem)
        if _FULL.search(text):
            mend = "Free space and run again; nothing was published."
            raise CatalogError(f"{what}: the disk is full", where, mend) from problem
        # Spark reads the history while it writes: a damaged file is no trouble of the catalog.
        told = read_error(problem, where) if reads_history and not _FORBIDDEN.search(text) else None
        if told is not None:
            raise told from problem
        reason = next((line.strip() for line in text.splitlines() if line.strip()), type(problem).__name__)
        raise CatalogError(f"{what}: {reason[:300]}", where, "Check the catalog with `rewindow doctor`.") from problem


def create_tables(spark: SparkSession, tables: Tables) -> None:
    """Make the namespace and the tables that do not depend on the pipeline's columns."""

    def create() -> None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {tables.runs.rsplit('.', 1)[0]}")
        spark.sql(f"CREATE TABLE IF NOT EXISTS {tables.runs} ({RUNS_SCHEMA}) USING iceberg {_PROPERTIES}")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {tables.timeline_state} ({TIMELINE_STATE_SCHEMA}) USING iceberg {_PROPERTIES}"
        )

    _guarded("cannot make the tables", tables.runs, create)


class Staging:
    """One run's changes to one table, on a branch until `publish`.

    `replace` says which rows of the table this run stands for (SQL over the table's columns); they go, the
    staged rows come, in one commit on `main`.
    """

    def __init__(self, spark: SparkSession, table: str, schema: StructType, run_id: str, replace: str) -> None:
        self._spark = spark
        self._table = table
        self._branch = STAGING_PREFIX + re.sub(r"[^A-Za-z0-9_]", "_", run_id)
        _guarded("cannot stage", table, lambda: self._prepare(schema, replace))

    def _prepare(self, schema: StructType, replace: str) -> None:
        spark, table = self._spark, self._table
        if not spark.catalog.tableExists(table):
            empty = spark.createDataFrame([], schema)
            columns = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in empty.schema)
            spark.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {_PROPERTIES}")
        known = {f.name: f.dataType for f in spark.table(table).schema}
        for field in schema:
            if field.name not in known:
                spark.sql(f"ALTER TABLE {table} ADD COLUMNS (`{field.name}` {field.dataType.simpleString()})")
            elif known[field.name] != field.dataType:
                raise CatalogError(
                    f"column {field.name} is {known[field.name].simpleString()} in the table "
                    f"and {field.dataType.simpleString()} in this run",
                    table, "Write to another output table, or give the aggregate another name.",
                )  # fmt: skip
        self._drop_abandoned()
        if spark.sql(f"SELECT 1 FROM {table}.refs WHERE name = 'main'").isEmpty():
            # A branch needs a snapshot to start from.
            spark.table(table).limit(0).writeTo(table).append()
        spark.sql(f"ALTER TABLE {table} CREATE OR REPLACE BRANCH {self._branch}")
        spark.sql(f"DELETE FROM {table}.branch_{self._branch} WHERE {replace}")

    def _drop_abandoned(self) -> None:
        """Branches that killed runs have left."""
        refs = self._spark.sql(f"SELECT name FROM {self._table}.refs WHERE name LIKE '{STAGING_PREFIX}%'").collect()
        for row in refs:
            self._spark.sql(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS {row[0]}")

    def append(self, rows: DataFrame) -> None:
        """Stage rows; columns that the table has and the rows lack become null."""
        columns = self._spark.table(self._table).schema
        given = set(rows.columns)
        aligned = rows.select(
            *(F.col(f.name) if f.name in given else F.lit(None).cast(f.dataType).alias(f.name) for f in columns)
        )
        target = f"{self._table}.branch_{self._branch}"
        _guarded("cannot write", self._table, lambda: aligned.writeTo(target).append(), reads_history=True)

    def rows(self) -> DataFrame:
        """What readers will see after publishing."""
        return self._spark.table(f"{self._table}.branch_{self._branch}")

    def publish(self) -> None:
        """Move `main` to the staged state: one atomic commit. Refused if `main` has moved meanwhile."""

        def move() -> None:
            name = self._table.split(".", 1)[1]
            self._spark.sql(f"CALL {CATALOG}.system.fast_forward('{name}', 'main', '{self._branch}')")
            self._spark.sql(f"ALTER TABLE {self._table} DROP BRANCH {self._branch}")

        _guarded("cannot publish: another run may have written meanwhile", self._table, move)

    def discard(self) -> None:
        """Drop what was staged."""
        self._spark.sql(f"ALTER TABLE {self._table} DROP BRANCH IF EXISTS {self._branch}")


def append_rows(table: str, rows: DataFrame) -> None:
    """Append to `runs` or `timeline_state`."""
    _guarded("cannot write", table, lambda: rows.writeTo(table).append())
