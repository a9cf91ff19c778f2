"""An Iceberg table as a history: the snapshot that a run reads, and what became of it since an earlier run."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.pins import Change, PinnedSnapshot
from spark_jobs.spark.failures import reading, short
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, elements, is_instance_of, loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at, table_at, way_back

_APPEND, _DELETE, _REWRITE = "append", "delete", "replace"
_TAKEN_AWAY = 2
"""The status of a file that a commit took away, in Iceberg's manifests."""


def pin_snapshot(spark: SparkSession, table: str, pinned: PinnedSnapshot | None = None) -> PinnedSnapshot:
    """The table's current snapshot, or that of a plan where it is still there.

    Raises SourceError: there is no such Iceberg table, or the snapshot of the plan has expired.
    """
    found = _loaded(spark, table)
    uuid = found.uuid().toString()
    if pinned is None:
        current = found.currentSnapshot()
        return PinnedSnapshot(table, uuid, None if current is None else current.snapshotId())
    if pinned.uuid != uuid:
        raise SourceError("the table was made anew since the plan was made", table, "Plan again.")
    if pinned.snapshot is not None and found.snapshot(pinned.snapshot) is None:
        raise SourceError(f"snapshot {pinned.snapshot} of the plan has expired", table, "Plan again.")
    return pinned


def snapshot_size(spark: SparkSession, pinned: PinnedSnapshot) -> tuple[int | None, int | None]:
    """The records and bytes of a snapshot, as its summary has them; deleted rows count too."""
    if pinned.snapshot is None:
        return 0, 0
    snapshot = _loaded(spark, pinned.table).snapshot(pinned.snapshot)
    summary = {} if snapshot is None else snapshot.summary()
    found = (summary.get(name) for name in ("total-records", "total-files-size"))
    records, size = (None if text is None else int(text) for text in found)
    return records, size


def read_snapshot(spark: SparkSession, pinned: PinnedSnapshot) -> DataFrame:
    """The rows of a snapshot, with the columns that the table has now. Row-level deletes are applied."""
    with reading(pinned.table):
        if pinned.snapshot is None:
            return spark.table(pinned.table).limit(0)
        return rows_at(spark, pinned.table, pinned.snapshot)


def read_appended(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> DataFrame:
    """The rows that were appended from one snapshot to a later one, where `change_between` is APPENDED."""
    if before.snapshot is None:
        return read_snapshot(spark, now)
    bounds = {"start-snapshot-id": str(before.snapshot), "end-snapshot-id": str(now.snapshot)}
    with reading(now.table):
        return spark.read.options(**bounds).table(now.table)


def change_between(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> Change:
    """What became of the rows of another snapshot of the table."""
    if now.snapshot is None:
        return Change.ROLLED_BACK
    found = _loaded(spark, now.table)
    way = way_back(found, before.snapshot, now.snapshot)
    if not way.is_past:
        return Change.UNKNOWN if way.is_past is None else Change.ROLLED_BACK
    operations = {snapshot.operation() for snapshot in way.later}
    if any(_takes_away(one) for one in way.later if one.operation() not in (_APPEND, _DELETE, _REWRITE)):
        return Change.REWRITTEN
    rewrites = (one for one in way.later if one.operation() == _REWRITE)
    if not all(_keeps_rows(spark, now.table, found, one) for one in rewrites):
        return Change.REWRITTEN
    if not operations <= {_APPEND, _REWRITE, _DELETE}:
        return Change.REWRITTEN if _DELETE in operations else Change.FILLED
    if _DELETE in operations:
        return Change.REMOVED
    return Change.APPENDED if _APPEND in operations else Change.NONE


def _takes_away(snapshot: JavaObject) -> bool:
    """Whether the commit removed files or marked rows as deleted; INSERT OVERWRITE of an empty partition does not."""
    return any(_count(snapshot, name) for name in ("deleted-data-files", "added-delete-files"))


def _count(snapshot: JavaObject, name: str) -> int:
    """A number of a snapshot's summary; 0 where it is not there."""
    return int(snapshot.summary().get(name) or 0)


def _keeps_rows(spark: SparkSession, table: str, found: JavaObject, rewrite: JavaObject) -> bool:
    """Whether a commit that wrote files anew wrote as many rows as the files that it took away had left.

    Iceberg does not look into the rows of such a commit. Marks of deleted rows can outlive the files that they are of,
    so that only the rows themselves tell how many were left.
    """
    names = ("deleted-records", "added-records", "total-delete-files", "added-delete-files", "removed-delete-files")
    gone, written, marks, more, fewer = (_count(rewrite, name) for name in names)
    if not marks - more + fewer:
        return gone == written
    parent = rewrite.parentId()
    before = None if parent is None else found.snapshot(parent)
    if before is None:
        return False
    with reading(table):
        if _count(before, "total-equality-deletes"):
            return written == _left(spark, table, rewrite, before.snapshotId())
        return written == gone - _marked(spark, table, rewrite, before.snapshotId())


def _marked(spark: SparkSession, table: str, rewrite: JavaObject, parent: int) -> int:
    """How many rows of the files that a commit took away were marked as deleted before it; reads the marks alone."""
    marks = table_at(spark, f"{table}.position_deletes", parent)
    return _of_taken(spark, table, rewrite, marks, "file_path").select("file_path", "pos").distinct().count()


def _left(spark: SparkSession, table: str, rewrite: JavaObject, parent: int) -> int:
    """How many rows the files that a commit took away had before it, where values say which are deleted."""
    rows = table_at(spark, table, parent).select("_file")
    return _of_taken(spark, table, rewrite, rows, "_file").count()


def _of_taken(spark: SparkSession, table: str, rewrite: JavaObject, rows: DataFrame, file: str) -> DataFrame:
    """The rows whose column `file` names a data file that the commit took away."""
    entries = table_at(spark, f"{table}.entries", rewrite.snapshotId())
    taken = entries.where((F.col("status") == _TAKEN_AWAY) & (F.col("snapshot_id") == rewrite.snapshotId()))
    files = taken.where("data_file.content = 0").select(F.col("data_file.file_path").alias(file))
    return rows.join(F.broadcast(files), file, "left_semi")


def column_ids(spark: SparkSession, table: str) -> dict[str, str]:
    """The field id of each column."""
    return {field.name(): str(field.fieldId()) for field in elements(_loaded(spark, table).schema().columns())}


def table_partitions(spark: SparkSession, table: str) -> tuple[str, ...]:
    """The columns by whose values themselves the table is partitioned."""
    found = _loaded(spark, table)
    fields, schema = elements(found.spec().fields()), found.schema()
    return tuple(schema.findColumnName(field.sourceId()) for field in fields if field.transform().isIdentity())


def _loaded(spark: SparkSession, table: str) -> JavaObject:
    try:
        found = loaded_iceberg_table(spark, table)
    except JAVA_ERRORS as error:
        what = short(str(error))
        hint = (
            "Name it with its catalog, as `catalog.namespace.table`; Spark has to be configured for the catalog. "
            "Of a Delta table, write `format: delta`."
        )
        raise SourceError(f"there is no such Iceberg table: {what}", table, hint) from error
    _refuse_part(spark, found, table)
    return found


def _refuse_part(spark: SparkSession, found: JavaObject, table: str) -> None:
    """Raises SourceError where the name is of a branch, a tag, a snapshot or metadata: none can be pinned beside."""
    last = table.rpartition(".")[2].strip("`")
    is_metadata = is_instance_of(spark, found, "org.apache.iceberg.BaseMetadataTable")
    if is_metadata or found.name().rpartition(".")[2].lower() != last.lower():
        what = "a metadata table" if is_metadata else "a branch, a tag or a snapshot"
        raise SourceError(
            f"`{last}` names {what} of an Iceberg table, not a table",
            table,
            f"Write `table: {table.rpartition('.')[0]}`. A run reads its current snapshot and pins it; to have what "
            "is on a branch, fast-forward `main` to it.",
        )
