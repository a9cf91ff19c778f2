"""Maintenance of a pipeline's tables: remove what is no longer needed, and compact small files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.eventtime.durations import parse_duration
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import REVISIONS
from spark_jobs.lakehouse.tables import Tables, guarded
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.recovery import recover
from spark_jobs.spark.catalog import CATALOG

ORPHANS = timedelta(days=3)
"""Files without a snapshot are removed at this age. Newer ones may belong to a run that has not committed yet."""

KEPT_STATES = 10
"""How many timeline states are kept for each definition, the latest ones."""


@dataclass(slots=True)
class Maintenance:
    """What a maintenance run has done.

    Attributes:
        abandoned: The ids of killed runs whose staged data was removed.
        snapshots_expired, files_compacted, orphans_removed: Counts by table.
        revisions_deleted: Superseded revisions that were deleted.
        states_deleted: Timeline states that were deleted.
    """

    abandoned: list[str] = field(default_factory=list)
    snapshots_expired: dict[str, int] = field(default_factory=dict)
    files_compacted: dict[str, int] = field(default_factory=dict)
    orphans_removed: dict[str, int] = field(default_factory=dict)
    revisions_deleted: int = 0
    states_deleted: int = 0


def retention(text: str, field: str) -> timedelta:
    """A length of time as people write it: 7 d, 36 h, PT30M. Raises DefinitionError, with the field's name."""
    try:
        return timedelta(milliseconds=parse_duration(text))
    except (ValueError, OverflowError) as problem:
        raise DefinitionError(f"{field}: {problem}", hint="Write it like 7 d, 36 h or PT30M.") from None


def maintain(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    now: datetime,
    keep_snapshots: timedelta = timedelta(days=7),
    keep_revisions: timedelta | None = None,
) -> Maintenance:
    """Maintain a pipeline's tables. Current windows and the revisions that are kept do not change.

    Killed runs are cleared, old revisions and timeline states are deleted, small files are compacted, old snapshots
    are expired, and orphan files are removed.

    Args:
        now: The current time.
        keep_snapshots: Older snapshots are expired.
        keep_revisions: Revisions that were superseded longer ago are deleted; None: all are kept.

    Raises:
        EmptyRangeError: Nothing has been published.
        CatalogError: The catalog refuses a step.
    """
    tables = Tables.of(pipeline)
    if not spark.catalog.tableExists(tables.windows):
        raise EmptyRangeError("no run has published this pipeline yet", tables.windows, "Start with `rewindow run`.")
    done = Maintenance()
    with progress.stage("killed runs", tables.runs):
        done.abandoned = recover(spark, tables, now)
    if keep_revisions is not None:
        with progress.stage("revisions", f"superseded more than {keep_revisions.days} days ago"):
            done.revisions_deleted = _delete_revisions(spark, tables, now - keep_revisions)
    with progress.stage("states", tables.timeline_state):
        done.states_deleted = _delete_states(spark, tables, pipeline)
    for table in (tables.windows, tables.late, tables.quarantine, tables.runs, tables.timeline_state):
        if spark.catalog.tableExists(table):
            with progress.stage("table", table):
                order = "window_start" if table == tables.windows else ""
                guarded(
                    "cannot maintain",
                    table,
                    lambda table=table, order=order: _maintain_table(spark, table, order, now, keep_snapshots, done),
                )
    return done


def _delete_revisions(spark: SparkSession, tables: Tables, before: datetime) -> int:
    branch = f"{tables.windows}.branch_{REVISIONS}"
    old = f"valid_to < TIMESTAMP '{_timestamp_literal(before)}'"
    count = spark.table(branch).where(old).count()
    if count:
        guarded("cannot write", tables.windows, lambda: spark.sql(f"DELETE FROM {branch} WHERE {old}"))
    return count


def _delete_states(spark: SparkSession, tables: Tables, pipeline: Pipeline) -> int:
    ledger = Ledger(spark, tables)
    states = spark.table(tables.timeline_state).where(F.col("pipeline") == pipeline.name)
    seen: dict[str, int] = {}
    deleted = 0
    order = (F.desc("processing_time_end"), F.desc("saved_at"))
    for row in states.orderBy(*order).select("definition_hash", "run_id").collect():
        seen[row["definition_hash"]] = seen.get(row["definition_hash"], 0) + 1
        if seen[row["definition_hash"]] > KEPT_STATES:
            ledger.delete_rows(tables.timeline_state, row["run_id"])
            deleted += 1
    return deleted


def _maintain_table(
    spark: SparkSession, table: str, order: str, now: datetime, keep: timedelta, done: Maintenance
) -> None:
    name = table.split(".", 1)[1]

    def call(procedure: str, *arguments: str) -> dict[str, int]:
        parameters = ", ".join((f"table => '{name}'", *arguments))
        rows = spark.sql(f"CALL {CATALOG}.system.{procedure}({parameters})").collect()
        return rows[0].asDict() if rows else {}

    # `PublishedTable.prepare` sorts the rows of a file by time. Compaction keeps that order, so that a nightly
    # reconciliation reads few rows.
    sorting = ("strategy => 'sort'", f"sort_order => '{order}'") if order else ()
    compacted = call("rewrite_data_files", "options => map('delete-file-threshold', '1')", *sorting)
    done.files_compacted[table] = int(compacted.get("rewritten_data_files_count", 0))
    before = spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0]
    call("expire_snapshots", f"older_than => TIMESTAMP '{_timestamp_literal(now - keep)}'", "retain_last => 1")
    after = spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0]
    done.snapshots_expired[table] = before - after
    removed = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{name}', "
        f"older_than => TIMESTAMP '{_timestamp_literal(now - ORPHANS)}')"
    )
    done.orphans_removed[table] = removed.count()


def _timestamp_literal(instant: datetime) -> str:
    return format_instant(int(instant.timestamp() * 1000))
