"""Corrections into a plain Hive table of Parquet or ORC, which Spark cannot merge into.

A touched partition is written anew into a folder of its own, and the metastore then gets that folder as the partition's
location: one step, so readers see the old rows or the new ones. To do it again changes nothing. Only partitions whose
windows are all closed for good are touched: into the others the live job still writes.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import ClassVar

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.corrections.columns import Columns, bound_in_sql
from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.errors import CatalogError, DefinitionError
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.lakehouse.corrections import Delivery, new_name
from spark_jobs.lakehouse.delivery import CorrectionAction
from spark_jobs.lakehouse.tables import guarded, literal
from spark_jobs.lakehouse.verdicts import final_before
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.sources.lake.hive import table_partitions
from spark_jobs.spark.gateway import elements, hadoop_conf, hadoop_path, jvm, session_state
from spark_jobs.spark.joins import same_pairs

_FOLDER = ".rewindow"
"""In the table's folder: the folders that corrected partitions lie in."""
_FORMATS = ("parquet", "orc")
_ATTEMPTS = 3


def description_of(spark: SparkSession, table: str) -> dict[str, str]:
    """What Spark says of a table, by name: its columns' types, `Provider`, `Location` and others."""
    return {row["col_name"]: row["data_type"] for row in spark.sql(f"DESCRIBE EXTENDED {table}").collect()}


def is_iceberg(described: Mapping[str, str]) -> bool:
    """Whether the table of this description is one of Iceberg's."""
    return described.get("Provider", "").lower() == "iceberg"


def open_partitions(
    scope: CorrectionScope,
    table: str,
    columns: Columns,
    kinds: Mapping[str, str],
    described: Mapping[str, str],
    where: str,
) -> PartitionedTable:
    """The table, as a destination; `described`: what Spark says of it. Raises DefinitionError for one of no use."""
    text = " ".join(described.get(name, "") for name in ("Provider", "InputFormat", "Serde Library")).lower()
    formats = [name for name in _FORMATS if name in text]
    partitions = table_partitions(scope.spark, table)
    location = described.get("Location", "")
    if len(formats) != 1 or not location:
        raise DefinitionError(
            f"{table} cannot be corrected: it is neither an Iceberg table nor a Hive table of Parquet or ORC",
            where,
            "Deliver to an Iceberg table, a topic or files under corrections.to.",
        )
    if not partitions:
        raise DefinitionError(
            f"{table} has no partitions: it could only be rewritten as a whole, while the live job writes to it",
            where,
            "Partition it by day, or deliver to an Iceberg table or files under corrections.to.",
        )
    return PartitionedTable(scope, table, columns, kinds, formats[0], partitions, location)


@dataclass
class PartitionedTable:
    """A Hive table that readers read."""

    scope: CorrectionScope
    table: str
    columns: Columns
    kinds: Mapping[str, str]
    format: str
    partitions: tuple[str, ...]
    location: str
    notes: tuple[str, ...] = ()
    most_rows: ClassVar[int | None] = None

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows whose partition is known and closed; the others stay due."""
        placed = self._placed(rows)
        waiting = placed.where(F.col("rw_partition").isNull()).count()
        if not waiting:
            return rows, ()
        kept = placed.where(F.col("rw_partition").isNotNull()).select(*(f"`{c}`" for c in rows.columns))
        note = (
            f"{waiting:,} corrections wait: their partition of {self.table} still has windows that are open, or is not "
            "known, because the table has no row of a window with that start"
        )
        return kept, (note,)

    def position(self) -> None:
        return None

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """Replace each touched partition by its corrected rows."""
        placed = self._placed(rows, only_closed=False).where(F.col("rw_partition").isNotNull())
        touched = [row[0] for row in placed.select("rw_partition").distinct().collect()]
        for partition in touched:
            replace = partial(self._replace, partition, placed, delivery)
            guarded("cannot correct", self.table, replace)

    def _placed(self, rows: DataFrame, *, only_closed: bool = True) -> DataFrame:
        """The rows with the partition (`rw_partition`, a struct) in which the table has windows with their bounds.

        Null: there is none, or several; with `only_closed`: or one that has a window that is not closed for good.
        """
        table, bounds = self._table(), list(self.columns.bounds.values())
        partition = F.struct(*(f"`{c}`" for c in self.partitions)).alias("rw_partition")
        by_bounds = table.groupBy(*(F.col(f"`{c}`").alias(f"rw_b{i}") for i, c in enumerate(bounds))).agg(
            F.collect_set(partition).alias("rw_found")
        )
        condition = [F.col(f"rw_b{i}").eqNullSafe(F.expr(self._bound(i, c))) for i, c in enumerate(bounds)]
        joined = rows.join(by_bounds, condition, "left")
        found = F.when(F.size("rw_found") == 1, F.col("rw_found")[0])
        placed = joined.select(*(f"`{c}`" for c in rows.columns), found.alias("rw_partition"))
        if not only_closed:
            return placed
        return placed.withColumn("rw_partition", F.when(self._is_closed(placed), F.col("rw_partition")))

    def _is_closed(self, placed: DataFrame) -> Column:
        """Whether all windows of the partition are closed for good, by the largest bound that it holds."""
        final = final_before(self.scope.spark, self.scope.tables.comparisons) or 0
        name, column = list(self.columns.bounds.items())[-1]
        windows = windows_of(self.scope.pipeline)
        if name == "window_start" and isinstance(windows, AlignedWindows):
            final -= windows.longest
        limit = bound_in_sql(f"timestamp_millis({final})", name, self.columns.window, self.kinds[column])
        partition = F.struct(*(f"`{c}`" for c in self.partitions))
        later = self._table().where(F.col(f"`{column}`") >= F.expr(limit))
        still = [row[0] for row in later.select(partition).distinct().collect()]
        closed: Column = F.lit(True)
        for one in still:
            same: Column = F.lit(True)
            for c in self.partitions:
                same = same & F.col("rw_partition")[c].eqNullSafe(F.lit(one[c]))
            closed = closed & ~F.coalesce(same, F.lit(False))
        return closed

    def _replace(self, partition: Row, placed: DataFrame, delivery: Delivery) -> None:
        """Write the partition's rows anew, and let the metastore point to them; again, where files have come."""
        spark = self.scope.spark
        named = ", ".join(f"`{c}`={literal(partition[c])}" for c in self.partitions)
        chosen = placed
        for c in self.partitions:
            chosen = chosen.where(F.col("rw_partition")[c].eqNullSafe(F.lit(partition[c])))
        for _ in range(_ATTEMPTS):
            # A name of its own each time: after a kill the partition may lie in the folder of an earlier attempt.
            folder = f"{self.location.rstrip('/')}/{_FOLDER}/{delivery.id}-{secrets.token_hex(4)}"
            rows = self._of(partition)
            files = sorted(rows.inputFiles())
            self._corrected(rows, chosen).write.format(self.format).mode("errorifexists").save(folder)
            if sorted(self._of(partition).inputFiles()) == files:
                spark.sql(f"ALTER TABLE {self.table} PARTITION ({named}) SET LOCATION '{folder}'")
                spark.catalog.refreshTable(self.table)
                return
        raise CatalogError(
            f"the partition {named} keeps getting files while it is corrected", self.table, "Try again later."
        )

    def _of(self, partition: Row) -> DataFrame:
        rows = self._table()
        for c in self.partitions:
            rows = rows.where(F.col(f"`{c}`").eqNullSafe(F.lit(partition[c])))
        return rows

    def _corrected(self, rows: DataFrame, corrections: DataFrame) -> DataFrame:
        """The partition's rows with the corrections, in the columns of its files."""
        keys, bounds, values = self.columns.keys, self.columns.bounds, self.columns.values
        cells = [F.expr(f"CAST(`{k}` AS {self.kinds[c]})").alias(f"rw_k{i}") for i, (k, c) in enumerate(keys.items())]
        cells += [F.expr(self._bound(i, c)).alias(f"rw_b{i}") for i, c in enumerate(bounds.values())]
        cells += [
            F.expr(f"CAST(`{new_name(v)}` AS {self.kinds[c]})").alias(f"rw_v{i}")
            for i, (v, c) in enumerate(values.items())
        ]
        given = corrections.select(F.col("action").alias("rw_action"), *cells)
        pairs = [(c, f"rw_k{i}") for i, c in enumerate(keys.values())]
        pairs += [(c, f"rw_b{i}") for i, c in enumerate(bounds.values())]
        known = dict(pairs)
        known |= {column: f"rw_v{i}" for i, column in enumerate(values.values())}
        joined = rows.withColumn("rw_there", F.lit(True)).join(given, same_pairs(pairs), "full")
        kept = joined.where(F.col("rw_action").isNull() | (F.col("rw_action") == CorrectionAction.UPSERT.value))
        columns = [c for c in rows.columns if c not in self.partitions]
        return kept.select(
            *(
                F.when(F.col("rw_action").isNotNull(), F.col(known[c])).otherwise(F.col(f"`{c}`")).alias(c)
                if c in known
                else F.col(f"`{c}`")
                for c in columns
            )
        )

    def _bound(self, place: int, column: str) -> str:
        name = list(self.columns.bounds)[place]
        return bound_in_sql(f"`{name}`", name, self.columns.window, self.kinds[column])

    def _table(self) -> DataFrame:
        self.scope.spark.catalog.refreshTable(self.table)
        return self.scope.spark.table(self.table)


def delete_replaced(spark: SparkSession, table: str, before: datetime) -> int:
    """Delete folders of corrected partitions that were corrected again, or that a killed process has left behind.

    Returns their number. A folder stays while a partition lies in it, and while it is not older than `before`: readers
    may still read it, and a process may be about to name it. A table that is not there, or no Hive table, has none.
    """
    if not spark.catalog.tableExists(table):
        return 0
    described = description_of(spark, table)
    location = described.get("Location", "")
    if is_iceberg(described) or not location or not table_partitions(spark, table):
        return 0
    parent = hadoop_path(spark, f"{location.rstrip('/')}/{_FOLDER}")
    files = parent.getFileSystem(hadoop_conf(spark))
    if not files.exists(parent):
        return 0
    old = [s.getPath() for s in files.listStatus(parent) if s.getModificationTime() < before.timestamp() * 1000]
    used = _locations(spark, table) if old else set()
    unused = [path for path in old if path.toUri().getPath() not in used]
    for path in unused:
        files.delete(path, True)
    return len(unused)


def _locations(spark: SparkSession, table: str) -> set[str]:
    """The paths that the metastore has for the partitions, without scheme and host."""
    state = session_state(spark)
    name = state.sqlParser().parseTableIdentifier(table)
    found = state.catalog().listPartitions(name, jvm(spark).scala.Option.empty())
    return {one.location().getPath().rstrip("/") for one in elements(found)}
