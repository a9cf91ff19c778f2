"""The snapshots of an Iceberg table: the way from one back to an earlier one, also where some have expired."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table


@dataclass(frozen=True, slots=True)
class Way:
    """The way from a snapshot of a branch back to an earlier one.

    `later`: the snapshots behind the earlier one, the latest first, as far as they have not expired. `is_past`: whether
    the earlier one is in the past of the branch; None: snapshots between them have expired, so that nobody knows.
    """

    later: tuple[JavaObject, ...]
    is_past: bool | None


def table_at(spark: SparkSession, name: str, snapshot: int) -> DataFrame:
    """An Iceberg table or one of its metadata tables (`table.entries`) at a snapshot, in the columns of then."""
    return spark.read.option("versionAsOf", str(snapshot)).table(name)


def rows_at(spark: SparkSession, table: str, snapshot: int) -> DataFrame:
    """The rows of an Iceberg table's snapshot, in the columns that the table has now; what it had not then is null.

    Iceberg knows a renamed column by its id. Spark reads a snapshot in the columns that the table had then.
    """
    rows = table_at(spark, table, snapshot)
    iceberg = loaded_iceberg_table(spark, table)
    then, now = iceberg.snapshot(snapshot).schemaId(), iceberg.schema()
    if then is None or then == now.schemaId():
        return rows
    former = iceberg.schemas().get(then)
    columns = []
    for field in spark.table(table).schema:
        name = former.findColumnName(now.findField(field.name).fieldId())
        value = F.lit(None) if name is None else F.col(f"`{name}`")
        columns.append(value.cast(field.dataType).alias(field.name))
    return rows.select(columns)


def snapshots_back(table: JavaObject, head: int | None = None) -> Iterator[JavaObject]:
    """The snapshots of Iceberg's own `table` from `head` (default: the current one) back, looked up one by one."""
    snapshot = table.currentSnapshot() if head is None else table.snapshot(head)
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.snapshot(parent)


def way_back(table: JavaObject, known: int | None, head: int | None = None, sequence: int | None = None) -> Way:
    """The way from `head` (default: the current snapshot) of Iceberg's own `table` back to its snapshot `known`.

    `known`: None stands for the table before its first snapshot. `sequence`: the sequence number of `known`, where it
    may have expired. Sequence numbers rise with each commit, so they say what clocks cannot: an expired past does not
    hold a snapshot that came later.
    """
    later: list[JavaObject] = []
    for snapshot in snapshots_back(table, head):
        if snapshot.snapshotId() == known:
            return Way(tuple(later), is_past=True)
        later.append(snapshot)
        if snapshot.parentId() == known:  # it may have expired
            return Way(tuple(later), is_past=True)
    if not later:
        return Way((), is_past=None if head is not None else known is None)
    oldest = later[-1]
    if oldest.parentId() is None:
        return Way(tuple(later), is_past=False)
    there = None if known is None else table.snapshot(known)
    number = sequence if there is None else there.sequenceNumber()
    may_be = not number or number < oldest.sequenceNumber()  # tables of Iceberg's version 1 have no numbers: 0
    return Way(tuple(later), is_past=None if may_be else False)
