"""The files of one Iceberg table: small ones are compacted, what nothing needs is removed."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from spark_jobs.definition.instants import format_instant
from spark_jobs.lakehouse.publication import REVISIONS
from spark_jobs.lakehouse.tables import FEW_FILES
from spark_jobs.spark.catalog import CATALOG
from spark_jobs.spark.gateway import JavaObject, is_instance_of, loaded_iceberg_table

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
    spark: SparkSession, table: str, order: str, now: datetime, keep: timedelta, settle: Callable[[], None]
) -> Tidied:
    """Compact a table and remove what it does not need; readers see the same rows.

    `order`: the column by which compaction sorts. Snapshots older than `keep` are expired. `settle` is called between
    the two, so that what is published is what stays.
    """
    name = table.split(".", 1)[1]

    def call(procedure: str, *arguments: str) -> dict[str, int]:
        parameters = ", ".join((f"table => '{name}'", *arguments))
        rows = spark.sql(f"CALL {CATALOG}.system.{procedure}({parameters})").collect()
        return rows[0].asDict() if rows else {}

    _have_few_files(spark, table)
    # `PublishedTable.prepare` sorts the rows of a file by time. Compaction keeps that order, so that a nightly
    # reconciliation reads few rows.
    sorting = ("strategy => 'sort'", f"sort_order => '{order}'") if order else ()
    compacted = 0
    for branch in sorted({"main", REVISIONS} & set(loaded_iceberg_table(spark, table).refs())):
        small = "options => map('delete-file-threshold', '1', 'min-input-files', '2')"
        rewritten = call("rewrite_data_files", small, f"branch => '{branch}'", *sorting)
        compacted += int(rewritten.get("rewritten_data_files_count", 0))
    if _has_deletes(loaded_iceberg_table(spark, table)):  # those whose rows were compacted away
        call("rewrite_position_delete_files", "options => map('rewrite-all', 'true')")
    settle()
    before = _snapshots(spark, table)
    call("expire_snapshots", f"older_than => TIMESTAMP '{_literal(now - keep)}'", "retain_last => 1")
    expired = before - _snapshots(spark, table)
    orphans = spark.sql(
        f"CALL {CATALOG}.system.remove_orphan_files(table => '{name}', "
        f"older_than => TIMESTAMP '{_literal(now - ORPHANS)}')"
    ).count()
    return Tidied(compacted, expired, orphans + _remove_dead_metadata(spark, loaded_iceberg_table(spark, table)))


def _have_few_files(spark: SparkSession, table: str) -> None:
    """Give a table of an earlier version the properties that keep its files few."""
    properties = loaded_iceberg_table(spark, table).properties()
    lacking = {name: value for name, value in FEW_FILES.items() if properties.get(name) is None}
    if lacking:
        named = ", ".join(f"'{name}'='{value}'" for name, value in lacking.items())
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({named})")


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
    listed = files.listPrefix(now.metadataFileLocation().rsplit("/", 1)[0] + "/").iterator()
    dead = []
    while listed.hasNext():
        location = listed.next().location()
        number = _number_of(location)
        if number is not None and number <= current and location.rsplit("/", 1)[1] not in names:
            dead.append(location)
    for location in dead:
        files.deleteFile(location)
    return len(dead)


def _number_of(location: str | None) -> int | None:
    found = _METADATA.fullmatch((location or "").rsplit("/", 1)[-1])
    return None if found is None else int(found[1])


def _literal(instant: datetime) -> str:
    return format_instant(int(instant.timestamp() * 1000))
