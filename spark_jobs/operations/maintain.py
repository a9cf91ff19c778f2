"""Maintenance of a pipeline's tables: remove what is no longer needed, and compact small files."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession

from spark_jobs.comparison.emitted import live_of
from spark_jobs.comparison.emitted_topic import placing_of
from spark_jobs.corrections.partitions import delete_replaced
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of, destination_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.live import TableEmitted, TopicEmitted
from spark_jobs.errors import EmptyRangeError
from spark_jobs.lakehouse.corrections import is_delivering
from spark_jobs.lakehouse.emitted_table import forget_others
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, guarded
from spark_jobs.operations.files import ORPHANS, tidy
from spark_jobs.operations.retention import (
    delete_folders,
    delete_rows_of_runs,
    delete_states,
    drop_staging_of_nobody,
    horizon_of,
    open_runs,
)
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.recovery import recover
from spark_jobs.runs.store import RunStore


@dataclass(slots=True)
class Maintenance:
    """What a maintenance run has done.

    Attributes:
        abandoned: The ids of killed runs whose staged data was removed.
        snapshots_expired, files_compacted, orphans_removed: Counts by table.
        revisions_deleted: Superseded revisions that were deleted.
        states_deleted: Timeline states that were deleted.
        staging_dropped: Staging tables that belonged to no run any more.
        runs_forgotten: Rows of the ledger that were deleted.
        folders_deleted: Folders with the documents of runs that were deleted.
        replaced_deleted: Folders of corrected Hive partitions that no partition lies in any more.
    """

    abandoned: list[str] = field(default_factory=list)
    snapshots_expired: dict[str, int] = field(default_factory=dict)
    files_compacted: dict[str, int] = field(default_factory=dict)
    orphans_removed: dict[str, int] = field(default_factory=dict)
    revisions_deleted: int = 0
    states_deleted: int = 0
    staging_dropped: int = 0
    runs_forgotten: int = 0
    folders_deleted: int = 0
    replaced_deleted: int = 0


def maintain(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    now: datetime,
    keep_snapshots: timedelta = timedelta(days=7),
    keep_revisions: timedelta | None = None,
    keep_runs: timedelta | None = None,
    store: RunStore | None = None,
) -> Maintenance:
    """Maintain a pipeline's tables and runs. Current windows and the revisions that are kept do not change.

    Killed runs are cleared, old revisions, timeline states and runs are deleted, small files are compacted, old
    snapshots are expired, and orphan files are removed.

    Args:
        now: The current time.
        keep_snapshots: Older snapshots are expired.
        keep_revisions: Revisions that were superseded longer ago are deleted; None: all are kept.
        keep_runs: Runs that ended longer ago lose their documents, and their row in the ledger if nothing that is kept
            names them; None: all are kept.
        store: The run store; default: the configured one.

    Raises:
        EmptyRangeError: Nothing has been published.
        CatalogError: The catalog refuses a step.
    """
    tables = Tables.of(pipeline)
    if not spark.catalog.tableExists(tables.windows):
        raise EmptyRangeError("no run has published this pipeline yet", tables.windows, "Start with `rewindow run`.")
    done = Maintenance()
    with progress.stage("killed runs", tables.runs):
        done.abandoned = recover(spark, tables, now, store, progress=progress)
        done.staging_dropped = drop_staging_of_nobody(spark, tables)
    if keep_revisions is not None:
        with progress.stage("revisions", f"superseded more than {keep_revisions.days} days ago"):
            done.revisions_deleted = _delete_revisions(spark, tables, now - keep_revisions)
    before = None if keep_runs is None else horizon_of(Ledger(spark, tables), now - keep_runs)
    with progress.stage("states", tables.timeline_state):
        done.states_deleted = delete_states(spark, tables, pipeline, before)
    if before is not None:
        with progress.stage("runs", f"ended before {_timestamp_literal(before)}"):
            done.runs_forgotten = delete_rows_of_runs(spark, tables, before)
            needed = open_runs(spark, tables)
            done.folders_deleted = delete_folders(store or RunStore.configured(), pipeline, before, needed)
    destination = destination_of(pipeline)
    if isinstance(destination, TableEmitted):
        with progress.stage("corrected partitions", destination.table):
            remove = partial(delete_replaced, spark, destination.table, now - ORPHANS)
            done.replaced_deleted = guarded("cannot maintain", destination.table, remove)
    if pipeline.live is not None and spark.catalog.tableExists(tables.emitted):
        with progress.stage("emitted rows", "of earlier definitions"):
            forget = partial(forget_others, spark, tables.emitted, _placings(pipeline))
            guarded("cannot maintain", tables.emitted, forget)
    side_tables = [tables.late, tables.quarantine, tables.verdicts, tables.comparisons, tables.emitted]
    if not is_delivering(spark, tables.corrections):
        side_tables.append(tables.corrections)
    settle = PublishedTable(spark, tables.windows).settle
    for table in (tables.windows, *side_tables, tables.runs, tables.timeline_state):
        if spark.catalog.tableExists(table):
            with progress.stage("table", table):
                order = "window_start" if table in (tables.windows, tables.emitted) else ""
                tidied = guarded(
                    "cannot maintain", table, partial(tidy, spark, table, order, now, keep_snapshots, settle)
                )
                done.files_compacted[table] = tidied.compacted
                done.snapshots_expired[table] = tidied.expired
                done.orphans_removed[table] = tidied.removed
    return done


def _delete_revisions(spark: SparkSession, tables: Tables, before: datetime) -> int:
    branch = f"{tables.windows}.branch_{REVISIONS}"
    old = f"valid_to < TIMESTAMP '{_timestamp_literal(before)}'"
    count = spark.table(branch).where(old).count()
    if count:
        guarded("cannot write", tables.windows, lambda: spark.sql(f"DELETE FROM {branch} WHERE {old}"))
    return count


def _placings(pipeline: Pipeline) -> list[str]:
    """By what the current definition reads the rows of topics."""
    found = []
    for deployed in deployments_of(pipeline):
        source = live_of(deployed.pipeline).source
        if isinstance(source, TopicEmitted):
            found.append(placing_of(source, deployed.pipeline))
    return found


def _timestamp_literal(instant: datetime) -> str:
    return format_instant(int(instant.timestamp() * 1000))
