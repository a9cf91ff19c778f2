"""Lake tables as histories: the snapshot that a run reads, and what became of it since, by the table's format."""

from __future__ import annotations

from types import ModuleType

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.pins import Change, PinnedSnapshot, TableFormat
from spark_jobs.sources.lake import delta, iceberg

_OF: dict[TableFormat, ModuleType] = {TableFormat.ICEBERG: iceberg, TableFormat.DELTA: delta}


def pin_snapshot(
    spark: SparkSession, table: str, kind: TableFormat, pinned: PinnedSnapshot | None = None
) -> PinnedSnapshot:
    """The table's current snapshot, or that of a plan where it is still there.

    Raises SourceError: there is no such table, or the snapshot of the plan is not there any more.
    """
    return _OF[kind].pin_snapshot(spark, table, pinned)


def snapshot_size(spark: SparkSession, pinned: PinnedSnapshot) -> tuple[int | None, int | None]:
    """The records and bytes of a snapshot, as its metadata has them; deleted rows count too. None: not known."""
    return _OF[pinned.format].snapshot_size(spark, pinned)


def read_snapshot(spark: SparkSession, pinned: PinnedSnapshot) -> DataFrame:
    """The rows of a snapshot, with the columns that the table had then. Row-level deletes are applied."""
    return _OF[pinned.format].read_snapshot(spark, pinned)


def read_appended(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> DataFrame:
    """The rows that were appended from one snapshot to a later one, where `change_between` is APPENDED."""
    return _OF[now.format].read_appended(spark, before, now)


def change_between(spark: SparkSession, before: PinnedSnapshot, now: PinnedSnapshot) -> Change:
    """What became of the rows of `before`. Compaction is no change. Reads the table's metadata alone."""
    if before.uuid != now.uuid:
        return Change.ANOTHER
    if before.snapshot == now.snapshot:
        return Change.NONE
    return _OF[now.format].change_between(spark, before, now)


def table_partitions(spark: SparkSession, table: str, kind: TableFormat) -> tuple[str, ...]:
    """The columns by whose values themselves the table is partitioned."""
    return _OF[kind].table_partitions(spark, table)


def column_ids(spark: SparkSession, pinned: PinnedSnapshot) -> dict[str, str]:
    """The id of each of the table's columns as it is now; of a Delta table without column mapping the name itself.

    A column that takes another one's name has another id.
    """
    return _OF[pinned.format].column_ids(spark, pinned.table)
