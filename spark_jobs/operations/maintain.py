"""Maintenance of a pipeline's tables: remove what is no longer needed, and compact small files.

Of old runs it forgets their rows in the ledger, their timeline states and their folders. What an open run, a revision
that is kept, a published late record or the next reconciliation needs stays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import live_of
from spark_jobs.comparison.emitted_topic import placing_of
from spark_jobs.corrections.partitions import delete_replaced
from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import deployments_of, destination_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.live import TableEmitted, TopicEmitted
from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.complete_days import complete_table
from spark_jobs.lakehouse.corrections import is_delivering
from spark_jobs.lakehouse.emitted_table import forget_others
from spark_jobs.lakehouse.ledger import Ledger, LedgerRow
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import Tables, drop_table, guarded, literal, refuse_unpublished
from spark_jobs.runs.life.documents import Outcome, Request
from spark_jobs.runs.life.recovery import OPEN, recover
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources.erased import erasures_table
from spark_jobs.spark.catalog import CATALOG
from spark_jobs.spark.gateway import JavaObject, elements, is_instance_of, loaded_iceberg_table

KEPT_STATES = 10
"""How many timeline states are kept for each definition, the latest ones."""

_AT_ONCE = 500
"""Rows that one statement deletes."""


def horizon_of(ledger: Ledger, before: datetime) -> datetime:
    """`before`, or the start of the oldest open run: it must see which runs were published since it began."""
    began = ledger.runs().where(OPEN).agg(F.unix_micros(F.min("started_at"))).collect()[0][0]
    return before if began is None else min(before, datetime.fromtimestamp(began / 1e6, UTC))


def delete_rows_of_runs(spark: SparkSession, tables: Tables, before: datetime) -> int:
    """Delete the ledger's rows of runs that ended before `before`; how many.

    The row of a run stays while a revision or a late record names the run, and while a later run needs it to find out
    what it goes on from and the cause of a change.
    """
    ledger = Ledger(spark, tables)
    old = ledger.runs().where(f"NOT ({OPEN})").where(F.col("finished_at") < F.lit(before)).select("run_id")
    for table in (f"{tables.windows}.branch_{REVISIONS}", tables.late):
        if table == tables.late and not spark.catalog.tableExists(table):
            continue
        old = old.join(spark.table(table).select("run_id").distinct(), "run_id", "left_anti")
    needed = {row["run_id"] for row in not_covered(ledger.published())}
    run_ids = sorted({row[0] for row in old.collect()} - needed)
    _delete(spark, tables.runs, run_ids, f"output = {literal(tables.windows)}")
    return len(run_ids)


def not_covered(published: Iterable[LedgerRow]) -> list[LedgerRow]:
    """The published runs, latest first, without those whose range later ones cover: they decide no cause any more."""
    kept: list[LedgerRow] = []
    covered: list[tuple[datetime, datetime]] = []  # apart from each other, in order
    for row in published:
        start, end = row["range_start"], row["range_end"]
        if any(low <= start and end <= high for low, high in covered):
            continue
        kept.append(row)
        apart = [one for one in covered if one[1] < start or end < one[0]]
        met = [one for one in covered if one not in apart]
        joined = (min([start, *(low for low, _ in met)]), max([end, *(high for _, high in met)]))
        covered = sorted([*apart, joined])
    return kept


def delete_states(spark: SparkSession, tables: Tables, pipeline: Pipeline, before: datetime | None) -> int:
    """Delete all but the latest timeline states of each definition, and those saved before `before`; how many.

    The state that the next reconciliation goes on from stays in any case, and so do those of a pipeline of this name
    with another table.
    """
    needed = {row["run_id"] for row in Ledger(spark, tables).published() if row["whole"]}
    others = spark.table(tables.runs).where(F.col("output") != tables.windows).select("run_id")
    states = spark.table(tables.timeline_state).where(F.col("pipeline") == pipeline.name)
    states = states.join(others, "run_id", "left_anti")
    saved_at = F.unix_micros("saved_at").alias("saved_us")
    order = (F.desc("processing_time_end"), F.desc("saved_at"))
    seen: dict[str, int] = {}
    deleted = []
    for row in states.orderBy(*order).select("definition_hash", "run_id", saved_at).collect():
        seen[row["definition_hash"]] = seen.get(row["definition_hash"], 0) + 1
        is_old = before is not None and (row["saved_us"] or 0) < before.timestamp() * 1e6
        if (is_old or seen[row["definition_hash"]] > KEPT_STATES) and row["run_id"] not in needed:
            deleted.append(row["run_id"])
    _delete(spark, tables.timeline_state, deleted, "TRUE")
    return len(deleted)


def delete_folders(store: RunStore, pipeline: Pipeline, before: datetime, needed: Iterable[str]) -> int:
    """Delete the folders of the pipeline's runs that ended before `before`, but those of `needed` runs; how many.

    A folder that cannot be read stays.
    """
    kept, deleted = set(needed), 0
    for run_id, changed_at in store.folders().items():
        if run_id in kept or (changed_at is not None and changed_at >= before.timestamp()):
            continue
        folder = store.folder(run_id)
        with suppress(RewindowError, ValueError):
            request, outcome = Request.read(folder), Outcome.read(folder)
            if request is None or request.pipeline != pipeline.name:
                continue
            ended = (outcome and outcome.finished_at) or request.requested_at
            if ended and _instant(ended) < before:
                folder.delete()
                deleted += 1
    return deleted


def drop_staging_of_nobody(spark: SparkSession, tables: Tables) -> int:
    """Drop staging tables that belong to no attempt of an open run; how many.

    A run that is killed while it begins again can leave those of its attempt before. A run is in the ledger before it
    stages anything, so the tables are listed first.
    """
    namespace, name = tables.windows.rsplit(".", 1)
    listed = spark.sql(f"SHOW TABLES IN {namespace} LIKE '{name}__staging*'").select("tableName").collect()
    rows = Ledger(spark, tables).runs().where(OPEN).select("run_id", "attempt").collect()
    owned = {tables.staging(row["run_id"], row["attempt"]).rsplit(".", 1)[1].lower() for row in rows}
    parts = sorted((part.value for part in StagedPart), reverse=True)
    dropped = 0
    for table in (row[0] for row in listed):
        suffix = next(part for part in parts if table.endswith(part))
        if table.removesuffix(suffix).lower() not in owned:
            drop_table(spark, f"{namespace}.{table}")
            dropped += 1
    return dropped


def open_runs(spark: SparkSession, tables: Tables) -> list[str]:
    """The runs that work or wait."""
    return [row[0] for row in Ledger(spark, tables).runs().where(OPEN).select("run_id").collect()]


def _delete(spark: SparkSession, table: str, run_ids: Sequence[str], where: str) -> None:
    for first in range(0, len(run_ids), _AT_ONCE):
        names = ", ".join(map(literal, run_ids[first : first + _AT_ONCE]))
        statement = f"DELETE FROM {table} WHERE {where} AND run_id IN ({names})"
        guarded("cannot write", table, lambda statement=statement: spark.sql(statement))


def _instant(text: str | datetime) -> datetime:
    at = text if isinstance(text, datetime) else datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


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
    refuse_unpublished(spark, tables)
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
    side_tables += [complete_table(tables), erasures_table(pipeline)]
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


ORPHANS = timedelta(days=3)
"""Files without a snapshot are removed at this age. Newer ones may belong to a run that has not committed yet."""
_METADATA = re.compile(r"(\d+)-[^/]+\.metadata\.json(\.gz)?")


@dataclass(frozen=True, slots=True)
class Tidied:
    """How many data files were compacted, snapshots expired, and files removed that nothing names."""

    compacted: int
    expired: int
    removed: int


def tidy(
    spark: SparkSession,
    table: str,
    order: str,
    now: datetime,
    keep: timedelta,
    settle: Callable[[], None],
    *,
    every_file: bool = False,
) -> Tidied:
    """Compact a table and remove what it does not need; readers see the same rows.

    `order`: the column by which compaction sorts. Snapshots older than `keep` are expired. `settle` is called between
    the two, so that what is published is what stays. `every_file`: write all files anew, and name none of the old ones.
    """
    name = table.split(".", 1)[1]

    def call(procedure: str, *arguments: str) -> dict[str, int]:
        parameters = ", ".join((f"table => '{name}'", *arguments))
        rows = spark.sql(f"CALL {CATALOG}.system.{procedure}({parameters})").collect()
        return rows[0].asDict() if rows else {}

    # `PublishedTable.prepare` sorts the rows of a file by time. Compaction keeps that order, so that a nightly
    # reconciliation reads few rows.
    sorting = ("strategy => 'sort'", f"sort_order => '{order}'") if order else ()
    which = "options => map('delete-file-threshold', '1', 'min-input-files', '2')"
    if every_file:
        which = "options => map('rewrite-all', 'true')"
        _merge_manifests(loaded_iceberg_table(spark, table), "false")
    compacted = 0
    for branch in sorted({"main", REVISIONS} & set(loaded_iceberg_table(spark, table).refs())):
        rewritten = call("rewrite_data_files", which, f"branch => '{branch}'", *sorting)
        compacted += int(rewritten.get("rewritten_data_files_count", 0))
    if _has_deletes(loaded_iceberg_table(spark, table)):  # those whose rows were compacted away
        call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    if every_file:
        _drop_emptied_manifests(loaded_iceberg_table(spark, table))
        _merge_manifests(loaded_iceberg_table(spark, table), "true")
    settle()
    before = _snapshots(spark, table)
    call("expire_snapshots", f"older_than => TIMESTAMP '{_timestamp_literal(now - keep)}'", "retain_last => 1")
    expired = before - _snapshots(spark, table)
    orphans = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{name}', "
        f"older_than => TIMESTAMP '{_timestamp_literal(now - ORPHANS)}')"
    ).count()
    return Tidied(compacted, expired, orphans + _remove_dead_metadata(spark, loaded_iceberg_table(spark, table)))


def _merge_manifests(table: JavaObject, value: str) -> None:
    """Whether commits merge small manifests: one that names new files would also name those that are gone."""
    table.updateProperties().set("commit.manifest-merge.enabled", value).commit()


def _drop_emptied_manifests(table: JavaObject) -> None:
    """Leave out the manifests that name only files that are gone, with the smallest and largest values of each.

    Iceberg keeps them in the snapshot of the commit that removed the files, and leaves them out of the next one.
    """
    for branch in sorted({"main", REVISIONS} & set(table.refs())):
        table.newAppend().toBranch(branch).commit()


def _has_deletes(table: JavaObject) -> bool:
    snapshot = table.currentSnapshot()
    return snapshot is not None and snapshot.summary().get("total-delete-files") not in (None, "0")


def _snapshots(spark: SparkSession, table: str) -> int:
    return spark.sql(f"SELECT count(*) FROM {table}.snapshots").collect()[0][0]


def _remove_dead_metadata(spark: SparkSession, table: JavaObject) -> int:
    """Remove the metadata files of commits that lost against another one; how many.

    A commit writes its file, numbered one higher than the current one, before the catalog decides. So a file whose
    number the table has reached, and that its metadata does not name, never was current or is not needed any more.
    """
    files, now = table.io(), table.operations().current()
    current = _number_of(now.metadataFileLocation())
    if current is None or not is_instance_of(spark, files, "org.apache.iceberg.io.SupportsPrefixOperations"):
        return 0
    known = {now.metadataFileLocation(), *(entry.file() for entry in now.previousFiles())}
    names = {location.rsplit("/", 1)[1] for location in known}
    dead = []
    for listed in elements(files.listPrefix(now.metadataFileLocation().rsplit("/", 1)[0] + "/")):
        location = listed.location()
        number = _number_of(location)
        if number is not None and number <= current and location.rsplit("/", 1)[1] not in names:
            dead.append(location)
    for location in dead:
        files.deleteFile(location)
    return len(dead)


def _number_of(location: str | None) -> int | None:
    found = _METADATA.fullmatch((location or "").rsplit("/", 1)[-1])
    return None if found is None else int(found[1])
