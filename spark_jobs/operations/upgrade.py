"""Bring the tables of a pipeline to the layout of this version: missing columns, the form of a column, revisions.

A run does the same for most columns that it needs. This does it at a time that a person chooses, for all tables at
once, and also for tables of windows that a run refuses: one without revisions, and one whose `as_of` is a map.

Runs of earlier layouts that have not ended are ended here, and nowhere else. What such a run would have published is a
function of the definition and its end offsets, so a command makes it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StringType, StructField, StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import CatalogError, RunStateError
from spark_jobs.lakehouse.corrections import CORRECTION_FACTS
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.publication import FACTS, REVISIONS, Cause
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.lakehouse.tables import RUNS_SCHEMA, TIMELINE_STATE_SCHEMA, Tables, ensure_table, guarded
from spark_jobs.lakehouse.verdicts import COMPARISON_COLUMNS, VERDICT_FACTS, rename_verdicts
from spark_jobs.runs.lifecycle import sign_of_row
from spark_jobs.runs.processes import STAGES_PROCESS, Sign
from spark_jobs.runs.recovery import OPEN, is_earlier, settle
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import RunStore
from spark_jobs.sources import QUARANTINE_SCHEMA

BEFORE = "before-upgrade"
"""The run that the windows of a table without revisions get."""
_MAP = "as_of_map"
"""What the column `as_of` is called while its maps become text."""
_RUN_ID = StructField("run_id", StringType())


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What was done to a table: the columns that it got, how many windows became revisions, how many rows got the
    verdicts' names of today; by run that was ended what became of it, and how it is made again."""

    table: str
    columns: tuple[str, ...]
    windows: int = 0
    verdicts: int = 0
    ended: Mapping[str, str] = field(default_factory=dict)


def upgrade(spark: SparkSession, pipeline: Pipeline, store: RunStore | None = None) -> list[Upgraded]:
    """Upgrade the tables of a pipeline that exist; those that need nothing are not in the result.

    Can be repeated: an upgrade that was killed goes on.

    Raises:
        CatalogError: The table of windows is not one of Rewindow's, or the catalog fails.
        RunStateError: A process works on a run of an earlier layout.
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
    if spark.catalog.tableExists(tables.runs):
        done.append(Upgraded(tables.runs, (), ended=_end_runs(spark, pipeline, store)))
    return [one for one in done if one.columns or one.windows or one.verdicts or one.ended]


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


def _end_runs(spark: SparkSession, pipeline: Pipeline, store: RunStore | None) -> dict[str, str]:
    """End the runs of layouts before 5 that have not ended; by run what became of it.

    With its commit in the table's history a run is published, else it is given up, and what it had staged goes. Before
    layout 4 staging and branches had the run's name. Those versions changed late and quarantined records before and
    after the commit: the next night is a full run, which makes them right.
    """
    tables, now = Tables.of(pipeline), datetime.now(UTC)
    ledger, table = Ledger(spark, tables), PublishedTable(spark, tables.windows)
    bounds = {name: F.unix_millis(name) for name in ("range_start", "range_end")}
    rows = [row.asDict() for row in ledger.runs().where(OPEN).withColumns(bounds).collect()]
    rows = [row for row in rows if is_earlier(row)]
    for row in rows:
        is_worked_on = RunStatus(row["status"]).has_work and row["process"] != STAGES_PROCESS
        if is_worked_on and sign_of_row(row, now) is Sign.ALIVE:
            what = f"a process of an earlier version works on this run: {row['process']}"
            raise RunStateError(what, row["run_id"], "Wait until it has ended, or stop it; then upgrade again.")
    if rows and spark.catalog.tableExists(tables.timeline_state):
        spark.sql(f"UPDATE {tables.timeline_state} SET steps = NULL WHERE pipeline = '{pipeline.name}'")
    for row in rows:
        run_id = row["run_id"]
        Staging(spark, f"{tables.windows}__staging_{re.sub(r'[^A-Za-z0-9_]', '_', run_id)}").drop()
        name = "publishing_" + "".join(c if c.isalnum() else "_" for c in run_id)
        for branch in (name, f"{name}_added"):
            if table.head() is not None:
                table.drop_branches(branch)
    given_up = settle(spark, tables, rows, now, store)
    again = {row["run_id"]: _made_again(pipeline, row, ledger) for row in rows if row["run_id"] in given_up}
    return {row["run_id"]: again.get(row["run_id"], "had ended") for row in rows}


def _made_again(pipeline: Pipeline, row: LedgerRow, ledger: Ledger) -> str:
    """The command that makes a run again; or which run, published since, has read as much."""
    ends: Mapping[int, int] = row["as_of"] or {}
    wholes = ledger.published_runs().where("whole").orderBy(F.desc("finished_at"))
    for one in wholes.select("run_id", "as_of").collect():
        if all((one["as_of"] or {}).get(partition, 0) >= end for partition, end in ends.items()):
            return f"was given up; run {one['run_id']} has read as much"
    span = {"--from": row["range_start"], "--to": row["range_end"]} if not row["whole"] else {}
    options = [f"{name} {format_instant(at)}" for name, at in span.items()]
    options += ["--as-of " + ",".join(f"{partition}={end}" for partition, end in sorted(ends.items()))]
    options += [] if row["mode"] == pipeline.mode.value else [f"--mode {row['mode']}"]
    return f"was given up; `rewindow run {pipeline.name} {' '.join(options)}` makes it again"
