"""What a destination of corrections is, and which one a definition names.

Tables and files are here. Into an Iceberg table goes one `MERGE` by key and window, which changes nothing when it
comes again; a plain Hive table is none: see `spark_jobs.corrections.partitions`. Of files each delivery has one
folder, complete where it has the file `_SUCCESS`, with the columns: the keys, `window_start`, `window_end`, `action`
(upsert or delete), for each aggregate its new value and `<a>__old`, and `revision`, `cause`, `run_id`. The folder's
name is the delivery's number and id: the same delivery never lies there twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.corrections.columns import Columns, bound_in_sql, columns_of
from spark_jobs.corrections.due import CorrectionScope
from spark_jobs.corrections.partitions import description_of, is_iceberg, open_partitions
from spark_jobs.definition.corrections import FilesDestination
from spark_jobs.definition.live import TableEmitted, TopicEmitted
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.lakehouse.commits import retried
from spark_jobs.lakehouse.corrections import Delivery, new_name, old_name
from spark_jobs.lakehouse.tables import guarded
from spark_jobs.spark.cached import viewed
from spark_jobs.spark.failures import short
from spark_jobs.spark.gateway import JAVA_ERRORS, hadoop_conf, hadoop_path
from spark_jobs.spark.joins import same_pairs


class Destination(Protocol):
    """Takes deliveries. `notes`: sentences for people about what it cannot take."""

    notes: tuple[str, ...]

    most_rows: ClassVar[int | None]
    """The most rows of one delivery; None: as many as there are."""

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        """The rows of the table of corrections that it can take, and notes about the others."""
        ...

    def position(self) -> Mapping[int, int] | None:
        """Where it stands before a delivery: a topic's end offset by partition; None for others."""
        ...

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """Take the rows of a delivery, once. `is_resumed`: a process before this one may have brought them already."""
        ...


def open_destination(scope: CorrectionScope) -> Destination:
    """The destination that the definition names. Raises DefinitionError or SourceError where it cannot be used."""
    chosen = scope.corrections.destination(scope.live)
    if isinstance(chosen, TableEmitted):
        return open_table(scope, chosen)
    if isinstance(chosen, TopicEmitted):
        from spark_jobs.corrections.topic import open_topic

        return open_topic(scope, chosen)
    return Files(scope, chosen)


def open_table(scope: CorrectionScope, destination: TableEmitted) -> Destination:
    """The table as a destination. Raises SourceError where it is not there, DefinitionError for one of no use."""
    spark, table = scope.spark, destination.table
    where = scope.pipeline.source_of(("corrections",)) or scope.pipeline.name
    try:
        spark.catalog.refreshTable(table)
        kinds = {f.name: f.dataType.simpleString() for f in spark.table(table).schema}
        described = description_of(spark, table)
    except JAVA_ERRORS as error:
        what = f"corrections cannot be delivered: {short(str(error))}"
        raise SourceError(what, where, "Correct corrections.to.") from error
    if scope.live.mode == "changelog" and scope.corrections.is_of(scope.live):
        raise DefinitionError(
            "a table of operations has no rows to correct",
            where,
            "Name the table that readers read, or a topic, under corrections.to.",
        )
    columns = _checked(columns_of(scope), kinds, table, where)
    if not is_iceberg(described):
        return open_partitions(scope, table, columns, kinds, described, where)
    pane = scope.live.pane if scope.corrections.is_of(scope.live) else None
    return IcebergTable(scope, table, columns, kinds, pane if pane in kinds else None)


def _checked(columns: Columns, kinds: Mapping[str, str], table: str, where: str) -> Columns:
    """Raises DefinitionError where the table lacks a column, or a bound is text."""
    named = (*columns.keys.values(), *columns.bounds.values(), *columns.values.values())
    missing = [column for column in named if column not in kinds]
    if missing:
        raise DefinitionError(
            f"{table} has no column {', '.join(missing)}",
            where,
            f"Name its columns under corrections.keys, .window and .values; there are {', '.join(kinds)}.",
        )
    if columns.window.unit == "iso":
        raise DefinitionError(
            f"the windows of {table} are text, which is not matched exactly", where, "Use a table with timestamps."
        )
    return columns


class _TakesEveryRow:
    """A destination that takes any rows, however many, and has no end offsets."""

    most_rows: ClassVar[int | None] = None

    def accepted(self, rows: DataFrame) -> tuple[DataFrame, tuple[str, ...]]:
        return rows, ()

    def position(self) -> None:
        return None


@dataclass
class IcebergTable(_TakesEveryRow):
    """An Iceberg table. `pane`: of several rows of a window that with the largest one is corrected."""

    scope: CorrectionScope
    table: str
    columns: Columns
    kinds: Mapping[str, str]
    pane: str | None = None
    notes: tuple[str, ...] = ()

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """One `MERGE`. Rows that are as they should be are left alone, so a second one changes nothing."""
        guarded("cannot correct", self.table, lambda: retried(lambda: self._merge(rows)))

    def _merge(self, rows: DataFrame) -> None:
        spark, columns = self.scope.spark, self.columns
        source = rows.select(
            "action",
            *(
                F.expr(f"CAST(`{name}` AS {self.kinds[c]})").alias(f"k{i}")
                for i, (name, c) in enumerate(columns.keys.items())
            ),
            *(
                F.expr(bound_in_sql(name, name, columns.window, self.kinds[c])).alias(f"b{i}")
                for i, (name, c) in enumerate(columns.bounds.items())
            ),
            *(
                F.expr(f"CAST(`{new_name(name)}` AS {self.kinds[c]})").alias(f"v{i}")
                for i, (name, c) in enumerate(columns.values.items())
            ),
        )
        keys = [(c, f"k{i}") for i, c in enumerate(columns.keys.values())]
        bounds = [(c, f"b{i}") for i, c in enumerate(columns.bounds.values())]
        values = [(c, f"v{i}") for i, c in enumerate(columns.values.values())]
        places = [*keys, *bounds]
        if self.pane is not None:
            source = self._with_last_panes(source, places, self.pane)
        same = " AND ".join(f"t.`{c}` <=> s.{name}" for c, name in (*places, *self._pane_pair))
        first, name = bounds[0]
        low, high = source.agg(*(F.expr(f"CAST({f}({name}) AS STRING)") for f in ("min", "max"))).collect()[0]
        literals = [f"CAST('{text}' AS {self.kinds[first]})" for text in (low, high)]
        within = f"t.`{first}` BETWEEN {literals[0]} AND {literals[1]}"  # the files that it need not read
        differs = " OR ".join(f"NOT (t.`{c}` <=> s.{name})" for c, name in values)
        sets = ", ".join(f"t.`{c}` = s.{name}" for c, name in values)
        names = ", ".join(f"`{c}`" for c, _ in (*places, *values, *self._pane_pair))
        given = ", ".join(f"s.{name}" for _, name in (*places, *values, *self._pane_pair))
        with viewed(source) as view:
            spark.sql(
                f"MERGE INTO {self.table} t USING {view} s ON {within} AND {same} "
                "WHEN MATCHED AND s.action = 'delete' THEN DELETE "
                f"WHEN MATCHED AND ({differs}) THEN UPDATE SET {sets} "
                f"WHEN NOT MATCHED AND s.action = 'upsert' THEN INSERT ({names}) VALUES ({given})"
            )

    @property
    def _pane_pair(self) -> list[tuple[str, str]]:
        return [] if self.pane is None else [(self.pane, "rw_pane")]

    def _with_last_panes(self, source: DataFrame, places: list[tuple[str, str]], pane: str) -> DataFrame:
        """The source with the last pane of each window; 0 where the table has no row of it."""
        table = self.scope.spark.table(self.table)
        last = table.groupBy(*(f"`{c}`" for c, _ in places)).agg(F.max(f"`{pane}`").alias("rw_last"))
        last = last.select("rw_last", *(F.col(f"`{c}`").alias(f"rw_{name}") for c, name in places))
        joined = source.join(last, same_pairs((name, f"rw_{name}") for _, name in places), "left")
        kind = self.kinds[pane]
        return joined.select(*source.columns, F.coalesce("rw_last", F.lit(0)).cast(kind).alias("rw_pane"))


@dataclass
class Files(_TakesEveryRow):
    """A folder that readers look into."""

    scope: CorrectionScope
    destination: FilesDestination
    notes: tuple[str, ...] = ()

    def take(self, delivery: Delivery, rows: DataFrame, *, is_resumed: bool) -> None:
        """Write the folder, unless it is complete."""
        spark, values = self.scope.spark, self.scope.values
        folder = f"{self.destination.path.rstrip('/')}/{delivery.number:06}-{delivery.id}"
        marker = hadoop_path(spark, f"{folder}/_SUCCESS")
        if is_resumed and marker.getFileSystem(hadoop_conf(spark)).exists(marker):
            return
        chosen = rows.select(
            *(f"`{c}`" for c in self.scope.identity),
            "action",
            *(F.col(f"`{new_name(v)}`").alias(v) for v in values),
            *(f"`{old_name(v)}`" for v in values),
            "revision",
            "cause",
            "run_id",
        ).coalesce(1)
        writer = chosen.write.format(self.destination.format).mode("overwrite")
        if self.destination.format == "csv":
            writer = writer.option("header", True)
        if self.destination.format == "json":
            writer = writer.option("ignoreNullFields", False)
        guarded("cannot write", folder, lambda: writer.save(folder))
