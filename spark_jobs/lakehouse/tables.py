"""Rewindow's own Iceberg tables in the catalog `rewindow`, by name and column.

For a pipeline with the output `<namespace>.<table>`:

- `<table>`: the current windows, and on its branch `revisions` every value that a window ever had (`facts`);
- `<table>__late`: records that windows dropped, one row each;
- `<table>__quarantine`: records that could not be used, with position, raw value and reason;
- `<table>__verdicts`: windows of the live job that are not what they should be, and `<table>__comparisons`: how many
  (`verdicts`); `<table>__emitted`: what it has written to a topic (`emitted_table`);
- `<table>__checkpoint`: the batches of a Structured Streaming query (`checkpoint_archive`);
- `<table>__corrections`: what was delivered to the readers of its output (`corrections`);
- `<table>__staging_<hash>`: what an attempt of a run has computed and not yet published (`staging`);

and for all pipelines of a namespace `runs` (`ledger`) and `timeline_state`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs import LAYOUT
from spark_jobs.definition import Pipeline
from spark_jobs.errors import CatalogError, EmptyRangeError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.counts import RunCounts
from spark_jobs.spark.catalog import CATALOG
from spark_jobs.spark.conditions import any_of
from spark_jobs.spark.failures import read_error, store_failure
from spark_jobs.spark.gateway import JAVA_ERRORS, iceberg_catalog, is_instance_of, jvm, loaded_iceberg_table
from spark_jobs.spark.java import java_reason

T = TypeVar("T")


def _struct(**columns: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in columns.items()])


LAYOUT_PROPERTY = "rewindow.layout"
"""The property in which a table keeps its layout, see `spark_jobs.LAYOUT`."""
_FULL = re.compile(r"No space left on device|Disk quota exceeded|database or disk is full")
_FORBIDDEN = re.compile(r"AccessControlException|Permission denied")
FEW_FILES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "10",
    "commit.manifest.min-count-to-merge": "8",
}
"""Each commit writes a file of metadata, which holds all of the one before: the last 10 stay, others go at once. Many
small commits leave a manifest each: from 8 on the next commit puts them into one."""
_FEWEST_FILES = FEW_FILES | {"commit.manifest.min-count-to-merge": "2"}
"""`FEW_FILES` for tables of few rows: each commit puts all manifests into one."""
_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.parquet.row-group-size-bytes": "8388608",
    "write.parquet.dict-size-bytes": "262144",
    "read.split.target-size": "33554432",
    "write.distribution-mode": "none",
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.delete.isolation-level": "snapshot",
    "write.update.isolation-level": "snapshot",
}
"""Row groups are small, so that a query for few windows reads little; splits too, so that a task's rows are sorted in
memory. Dictionaries fit into a processor's cache: larger ones, of values that seldom repeat, take a fifth of a write's
time and save no space."""
_BY_RUN = {"write.metadata.metrics.column.run_id": "full"}
"""A file that holds one run's rows only is then known as such, and goes as a whole."""

AS_OF = t.MapType(t.IntegerType(), t.LongType())
"""End offset (exclusive) of each partition."""

RUNS_SCHEMA = _struct(
    run_id=t.StringType(),
    pipeline=t.StringType(),
    output=t.StringType(),
    status=t.StringType(),
    kind=t.StringType(),
    definition_hash=t.StringType(),
    definition=t.StringType(),
    range_start=t.TimestampType(),
    range_end=t.TimestampType(),
    whole=t.BooleanType(),
    replaces=t.BooleanType(),
    as_of=AS_OF,
    processing_time_end=t.TimestampType(),
    mode=t.StringType(),
    panes=t.StringType(),
    fidelity=t.StringType(),
    fidelity_reasons=t.ArrayType(t.StringType()),
    **dict.fromkeys(RunCounts.names(), t.LongType()),
    changes=t.MapType(t.StringType(), t.LongType()),
    reason=t.StringType(),
    timings=t.MapType(t.StringType(), t.DoubleType()),
    rewindow_version=t.StringType(),
    process=t.StringType(),
    started_at=t.TimestampType(),
    finished_at=t.TimestampType(),
    attempt=t.StringType(),
    claim=t.StringType(),
    heartbeat_at=t.TimestampType(),
    evidence=t.StringType(),
    person=t.StringType(),
    table_id=t.StringType(),
    sequence=t.LongType(),
)

TIMELINE_STATE_SCHEMA = _struct(
    pipeline=t.StringType(),
    definition_hash=t.StringType(),
    run_id=t.StringType(),
    as_of=AS_OF,
    processing_time_end=t.TimestampType(),
    watermark_below=t.LongType(),
    state=t.StringType(),
    steps=t.BinaryType(),
    saved_at=t.TimestampType(),
)


@dataclass(frozen=True, slots=True)
class Tables:
    """The full names of a pipeline's tables."""

    windows: str
    late: str
    quarantine: str
    runs: str
    timeline_state: str

    @classmethod
    def of(cls, pipeline: Pipeline) -> Tables:
        namespace = f"{CATALOG}.{pipeline.output.namespace}"
        table = f"{namespace}.{pipeline.output.table}"
        return cls(table, f"{table}__late", f"{table}__quarantine", f"{namespace}.runs", f"{namespace}.timeline_state")

    @property
    def verdicts(self) -> str:
        return f"{self.windows}__verdicts"

    @property
    def comparisons(self) -> str:
        return f"{self.windows}__comparisons"

    @property
    def emitted(self) -> str:
        return f"{self.windows}__emitted"

    @property
    def checkpoint(self) -> str:
        return f"{self.windows}__checkpoint"

    @property
    def corrections(self) -> str:
        return f"{self.windows}__corrections"

    def staging(self, run_id: str, attempt: str | None) -> str:
        """The staging table of a run's attempt.

        The name holds a hash: it is short enough for every file system, and two runs never share one, also where a
        metastore ignores case.
        """
        return f"{self.windows}__staging_{name_hash(run_id, attempt or '')}"


def branch_of(run_id: str, claim: str | None) -> str:
    """The name of the branches of one process that publishes a run; another process that publishes it has others."""
    return f"publishing_{name_hash(run_id, claim or '')}"


def name_hash(*parts: str) -> str:
    """A name of 16 hex digits for these texts, the same each time."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def refuse_unpublished(spark: SparkSession, tables: Tables) -> None:
    """Raises EmptyRangeError where no run of the pipeline has published anything."""
    if not spark.catalog.tableExists(tables.windows):
        raise EmptyRangeError("no run has published this pipeline yet", tables.windows, "Start with `rewindow run`.")
    refuse_other_layout(spark, tables.windows)


def starts_within(span: TimeRange, column: str = "window_start") -> Column:
    """Windows with a start in the span; a plain comparison, which file formats can prune by."""
    start = F.col(column)
    return (start >= F.timestamp_millis(F.lit(span.start))) & (start < F.timestamp_millis(F.lit(span.end)))


def starting_in(frame: DataFrame, spans: Iterable[TimeRange]) -> DataFrame:
    """The windows with a start in one of `spans`; a table prunes by it."""
    return frame.where(any_of(map(starts_within, spans)))


def start_bounds(windows: DataFrame) -> tuple[int | None, int | None]:
    """The first and the last window's start, epoch ms; None where there are no windows. The metadata mostly knows."""
    return tuple(windows.agg(*(F.unix_millis(f("window_start")) for f in (F.min, F.max))).collect()[0])


def guarded(what: str, where: str, action: Callable[[], T], *, reads_history: bool = False) -> T:
    """Run `action`; what the catalog or the file system refuses becomes a CatalogError with a hint.

    Spark reads the history while it writes: with `reads_history` a damaged file becomes a SourceError that names it.
    """
    try:
        return action()
    except (PySparkException, Py4JError) as problem:
        text = str(problem)
        if _FULL.search(text):
            hint = "Free space and run again; nothing was published."
            raise CatalogError(f"{what}: the disk is full", where, hint) from problem
        known = isinstance(problem, JAVA_ERRORS)
        source_error = read_error(problem, where) if known and reads_history and not _FORBIDDEN.search(text) else None
        if source_error is not None:
            raise source_error from problem
        of_store = store_failure(problem)
        if of_store is not None:
            raise CatalogError(f"{what}: {of_store.what}", where, of_store.hint) from problem
        raise CatalogError(
            f"{what}: {java_reason(problem)[:300]}", where, "Check the catalog with `rewindow doctor`."
        ) from problem


def create_tables(spark: SparkSession, tables: Tables) -> None:
    """Make the namespace and the tables that do not depend on the pipeline's columns."""

    def create() -> None:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {tables.runs.rsplit('.', 1)[0]}")
        for table, schema in ((tables.runs, RUNS_SCHEMA), (tables.timeline_state, TIMELINE_STATE_SCHEMA)):
            ensure_table(spark, table, schema, _FEWEST_FILES)

    guarded("cannot make the tables", tables.runs, create)


_BELOW_INT = re.compile(r"\b(tinyint|smallint)\b(?!:)")


def held_as(kind: t.DataType) -> str:
    """The name of the type as which an Iceberg table holds such values: it has no whole numbers shorter than INT."""
    return _BELOW_INT.sub("int", kind.simpleString())


def ensure_table(spark: SparkSession, table: str, schema: t.StructType, own: Mapping[str, str] = FEW_FILES) -> None:
    """Make the table, or add the columns that it lacks. Raises CatalogError where a column has another type.

    `own`: Iceberg's properties of a new table, beside those that all have or in their place.
    """
    if not spark.catalog.tableExists(table):
        columns = ", ".join(f"`{f.name}` {held_as(f.dataType)}" for f in schema)
        chosen = {**_PROPERTIES, LAYOUT_PROPERTY: str(LAYOUT), **own, **(_BY_RUN if "run_id" in schema.names else {})}
        properties = ", ".join(f"'{name}'='{value}'" for name, value in chosen.items())
        spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
    refuse_other_layout(spark, table)
    known = {f.name: f.dataType for f in spark.table(table).schema}
    for field in schema:
        if field.name not in known:
            spark.sql(f"ALTER TABLE {table} ADD COLUMNS (`{field.name}` {held_as(field.dataType)})")
        elif known[field.name].simpleString() != held_as(field.dataType):
            raise CatalogError(
                f"column {field.name} is {known[field.name].simpleString()} in the table "
                f"and {field.dataType.simpleString()} in this run",
                table,
                f"Write CAST(... AS {known[field.name].simpleString().upper()}) in its expression, give it another "
                "name, or write to another output table. Columns of folders `k=v` are text unless value.schema says "
                "otherwise.",
            )


def refuse_other_layout(spark: SparkSession, table: str) -> None:
    """Raises CatalogError where a table says that it has another layout than those of this version."""
    layout = loaded_iceberg_table(spark, table).properties().get(LAYOUT_PROPERTY)
    if layout not in (None, str(LAYOUT)):
        raise CatalogError(
            f"the table has layout {layout}, and this version of Rewindow reads and writes layout {LAYOUT}",
            table,
            "Use the version of Rewindow that made it, or name another namespace under `output`.",
        )


def drop_table(spark: SparkSession, table: str) -> None:
    """Drop a table of the catalog `rewindow` and its files, also those that no metadata names: of commits that failed.

    Through Iceberg itself: Spark's `DROP TABLE ... PURGE` finds the files of the smallest table by Spark jobs.
    """

    def drop() -> None:
        name, _, identifier = table.partition(".")
        catalog = iceberg_catalog(spark, name)
        known = jvm(spark).org.apache.iceberg.catalog.TableIdentifier.parse(identifier)
        there = catalog.loadTable(known)
        files, location = there.io(), there.location()
        catalog.dropTable(known, True)
        if is_instance_of(spark, files, "org.apache.iceberg.io.SupportsPrefixOperations"):
            files.deletePrefix(location.rstrip("/") + "/")

    guarded("cannot drop", table, drop)


def aligned(spark: SparkSession, table: str, rows: DataFrame, more: Iterable[str] = ()) -> DataFrame:
    """The rows in the table's columns, and `more` of their own; what they lack is null."""
    given = set(rows.columns)
    return rows.select(
        *(
            F.col(f"`{f.name}`") if f.name in given else F.lit(None).cast(f.dataType).alias(f.name)
            for f in spark.table(table).schema
        ),
        *quoted(more),
    )


def literal(text: object) -> str:
    """A text as SQL; NULL for None."""
    if text is None:
        return "NULL"
    escaped = str(text).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def quoted(columns: Iterable[str]) -> list[Column]:
    """Columns by their names, whatever characters these have."""
    return [F.col(f"`{c}`") for c in columns]
