"""The tables of verdicts on the live job's windows.

`<table>__verdicts` has the life of each window that was ever not `match`: one row for as long as its values and verdict
stay the same. Columns: the keys; `window_start`, `window_end`; for each compared aggregate `<a>__emitted`, `<a>`
(faithful), `<a>__complete`; `verdict`, `label`, `basis`, `records_undecided`, `emitted_rows`, `emitted_at`,
`live_deployment` (of the live job's deployments the one that it is of; null where there is only one); and

| column | meaning |
| --- | --- |
| `run_id`, `as_of` | the run that found it, and its end offsets (JSON) |
| `first_seen` | since when the window has had this verdict, whatever its values |
| `last_seen` | when a run last found it so |
| `valid_from`, `valid_to` | from when to when the row was true; `valid_to` null: it is true now |

`<table>__comparisons` counts all verdicts of each run, by day. Its `final_before`: windows that end before it are
closed for good, the live job does not touch them any more. Where the live job has several deployments, each has
rows of its own, by `live_deployment`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.commits import retried
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import AS_OF, aligned, ensure_table, guarded, starts_within
from spark_jobs.lakehouse.verdict import Verdict
from spark_jobs.spark.cached import CachedFrames, viewed
from spark_jobs.spark.gateway import loaded_iceberg_table
from spark_jobs.spark.joins import OTHER, others, same
from spark_jobs.spark.texts import as_text

VERDICT_FACTS = t.StructType(
    [
        t.StructField("run_id", t.StringType()),
        t.StructField("as_of", t.StringType()),
        *(t.StructField(name, t.TimestampType()) for name in ("first_seen", "last_seen", "valid_from", "valid_to")),
    ]
)
"""The columns of `<table>__verdicts` that say when a row was true."""
COMPARISON_COLUMNS = t.StructType(
    [
        t.StructField("run_id", t.StringType()),
        t.StructField("compared_at", t.TimestampType()),
        t.StructField("as_of", AS_OF),
        t.StructField("is_complete", t.BooleanType()),
        t.StructField("emitted_until", t.TimestampType()),
        t.StructField("emitted_offsets", AS_OF),
        t.StructField("day", t.DateType()),
        t.StructField("verdicts", t.MapType(t.StringType(), t.LongType())),
        t.StructField("lag_mean_ms", t.DoubleType()),
        t.StructField("lag_largest_ms", t.LongType()),
        t.StructField("final_before", t.TimestampType()),
        t.StructField("live_deployment", t.StringType()),
    ]
)
"""The columns of `<table>__comparisons`."""
_FLEETING = frozenset({"basis", "records_undecided"})
"""Columns that say how sure a verdict is: it is the same verdict where only they change."""
_CHANGE, _SEEN_BEFORE = "rw_change", "rw_first_seen"


class VerdictChange(StrEnum):
    """What a comparison does to a window's row: a new one, the same again, another one, or none any more."""

    OPENED = "opened"
    SEEN = "seen"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class ComparingRun:
    """The run that compares: its id, its end offsets as JSON, and the time of the comparison."""

    run_id: str
    as_of: str
    at: datetime


@dataclass(frozen=True, slots=True)
class LastComparison:
    """The last comparison of all that had changed by then.

    `emitted_until` (epoch ms) and `emitted_offsets` (by partition, of a topic) say how much of the emitted rows it has
    seen; None: not known. `final_before` (epoch ms): windows that end before were closed for good.
    """

    run_id: str
    as_of: dict[int, int]
    emitted_until: int | None
    emitted_offsets: dict[int, int] | None
    final_before: int | None = None


class VerdictTable:
    """The verdicts of one output table. `keys` are the pipeline's."""

    def __init__(self, spark: SparkSession, table: str, keys: Sequence[str]) -> None:
        self._spark = spark
        self.table = table
        self._identity = (*keys, "window_start", "window_end")

    def current(self) -> DataFrame | None:
        """The rows that are true now; None where there is no table."""
        if not self._spark.catalog.tableExists(self.table):
            return None
        return self._spark.table(self.table).where("valid_to IS NULL")

    def emitted_otherwise(self, span: TimeRange) -> DataFrame | None:
        """The windows of a range for which the live job has not emitted the faithful value: keys, start and end.

        Windows that match, or will once late records count, are not among them. None where there is no table.
        """
        current = self.current()
        if current is None:
            return None
        others = current.where(starts_within(span)).where(F.col("verdict") != Verdict.LATE_ARRIVALS.value)
        return others.select(*(f"`{c}`" for c in self._identity))

    def record(
        self, found: DataFrame, in_scope: Callable[[DataFrame], DataFrame], span: TimeRange, run: ComparingRun
    ) -> dict[str, int]:
        """Write what a comparison has found, in one commit; how many rows it has opened, seen, changed, closed.

        `found`: the compared windows that are not as they should be, in the columns that the module lists up to
        `emitted_at`. `in_scope` keeps of earlier rows those whose windows were compared: such a row that is not found
        any more is closed. All of them start in `span`. Writing the same again changes nothing but `last_seen`.
        """
        guarded("cannot make", self.table, lambda: self._prepare(found.schema))
        if loaded_iceberg_table(self._spark, self.table).currentSnapshot() is None:
            return guarded("cannot write", self.table, lambda: self._record_first(found, run))
        return guarded(
            "cannot write",
            self.table,
            lambda: retried(lambda: self._record(found, in_scope, span, run)),
        )

    def _prepare(self, found: t.StructType) -> None:
        there = {}
        if self._spark.catalog.tableExists(self.table):
            there = {field.name: field.dataType for field in self._spark.table(self.table).schema}
        # The live job may write a value in another type than before; the table keeps the type that it has.
        kept = [t.StructField(field.name, there.get(field.name, field.dataType)) for field in found]
        ensure_table(self._spark, self.table, t.StructType([*kept, *VERDICT_FACTS]))

    def _record_first(self, found: DataFrame, run: ComparingRun) -> dict[str, int]:
        """Into a table that was never written: every row is a new one."""
        at = F.lit(run.at.astimezone(UTC)).cast("timestamp")
        facts = {
            **dict.fromkeys(("first_seen", "last_seen", "valid_from"), at),
            "run_id": F.lit(run.run_id),
            "as_of": F.lit(run.as_of),
            "valid_to": F.lit(None).cast("timestamp"),
        }
        aligned(self._spark, self.table, found.withColumns(facts)).writeTo(self.table).append()
        snapshot = loaded_iceberg_table(self._spark, self.table).currentSnapshot()
        added = None if snapshot is None else snapshot.summary().get("added-records")
        return {VerdictChange.OPENED.value: int(added)} if added else {}

    def _record(
        self, found: DataFrame, in_scope: Callable[[DataFrame], DataFrame], span: TimeRange, run: ComparingRun
    ) -> dict[str, int]:
        with CachedFrames() as cache:
            changes = cache.keep(self._changes(found, in_scope, run))
            counts = {row[0]: row[1] for row in changes.groupBy(_CHANGE).count().collect()}
            if set(counts) == {VerdictChange.OPENED.value}:
                self._new_rows(changes).writeTo(self.table).append()
            elif counts:
                self._merge(changes, span)
        return counts

    def _changes(self, found: DataFrame, in_scope: Callable[[DataFrame], DataFrame], run: ComparingRun) -> DataFrame:
        """One row for each row to write or to change, in the table's columns, with what becomes of it."""
        table = self._spark.table(self.table)
        values = [f.name for f in table.schema if f.name not in (*VERDICT_FACTS.names, *self._identity)]
        given = set(found.columns)
        kinds = {f.name: f.dataType for f in table.schema}

        def packed(frame: DataFrame) -> Column:
            cells = [F.col(f"`{v}`") if v in frame.columns else F.lit(None).cast(kinds[v]) for v in values]
            return F.struct(*(cell.cast(kinds[v]).alias(v) for v, cell in zip(values, cells, strict=True)))

        new = found.select(
            *(F.col(f"`{c}`").cast(kinds[c]).alias(c) for c in self._identity), packed(found).alias("rw_new")
        )
        old = in_scope(table.where("valid_to IS NULL")).select(
            *others(self._identity),
            packed(table).alias("rw_old"),
            F.col("first_seen").alias(_SEEN_BEFORE),
        )
        compared = [v for v in values if v in given and v not in _FLEETING]

        def text(side: str) -> Column:
            return as_text(*(F.col(f"{side}.`{v}`").alias(v) for v in compared))

        joined = new.join(old, same(self._identity), "full")
        change = (
            F.when(F.col("rw_old").isNull(), VerdictChange.OPENED)
            .when(F.col("rw_new").isNull(), VerdictChange.CLOSED)
            .when(text("rw_new").eqNullSafe(text("rw_old")), VerdictChange.SEEN)
            .otherwise(VerdictChange.CHANGED)
        )
        at = F.lit(run.at.astimezone(UTC)).cast("timestamp")
        stays = F.col("rw_new.verdict").eqNullSafe(F.col("rw_old.verdict"))
        return joined.select(
            change.alias(_CHANGE),
            *(F.coalesce(f"`{c}`", f"`{OTHER}{c}`").alias(c) for c in self._identity),
            *(F.col(f"rw_new.`{v}`").alias(v) for v in values),
            F.lit(run.run_id).alias("run_id"),
            F.lit(run.as_of).alias("as_of"),
            F.when(stays, F.col(_SEEN_BEFORE)).otherwise(at).alias("first_seen"),
            at.alias("last_seen"),
            at.alias("valid_from"),
            F.lit(None).cast("timestamp").alias("valid_to"),
        )

    def _new_rows(self, changes: DataFrame) -> DataFrame:
        return changes.select(*(f"`{c}`" for c in self._spark.table(self.table).columns))

    def _merge(self, changes: DataFrame, span: TimeRange) -> None:
        """Rows that are true no more are closed, rows seen again say so, new ones are added: one commit."""
        is_new = F.col(_CHANGE).isin(VerdictChange.OPENED.value, VerdictChange.CHANGED.value)
        is_old = F.col(_CHANGE) != VerdictChange.OPENED.value
        # A row that changes is two: the old one is closed, the new one matches none and is added.
        ends = changes.where(is_old).withColumn("rw_adds", F.lit(False))
        source = ends.unionByName(changes.where(is_new).withColumn("rw_adds", F.lit(True)))
        same = " AND ".join(f"t.`{c}` <=> s.`{c}`" for c in self._identity)
        bounds = f"t.window_start >= timestamp_millis({span.start}) AND t.window_start < timestamp_millis({span.end})"
        columns = self._spark.table(self.table).columns
        names, given = (", ".join(f"{prefix}`{c}`" for c in columns) for prefix in ("", "s."))
        with viewed(source) as view:
            self._spark.sql(
                f"MERGE INTO {self.table} t USING {view} s "
                f"ON {same} AND {bounds} AND t.valid_to IS NULL AND NOT s.rw_adds "
                f"WHEN MATCHED AND s.{_CHANGE} = '{VerdictChange.SEEN}' THEN UPDATE SET last_seen = s.last_seen "
                "WHEN MATCHED THEN UPDATE SET valid_to = s.last_seen "
                f"WHEN NOT MATCHED AND s.rw_adds THEN INSERT ({names}) VALUES ({given})"
            )


def record_counts(
    spark: SparkSession, ledger: Ledger, table: str, run: ComparingRun, rows: Sequence[Mapping[str, Any]]
) -> None:
    """Write a run's counts, in the place of those that it has there. `rows`: the columns from `as_of` on, by day."""
    guarded("cannot make", table, lambda: ensure_table(spark, table, COMPARISON_COLUMNS))
    shared = {"run_id": run.run_id, "compared_at": run.at.astimezone(UTC)}
    ledger.put_rows(table, run.run_id, [{**shared, **row} for row in rows])


def last_comparison(spark: SparkSession, table: str, deployment: str | None = None) -> LastComparison | None:
    """The last complete comparison of a deployment of the live job; None where there has been none."""
    frame = _of_deployment(spark, table, deployment)
    if frame is None:
        return None
    rows = (
        frame.where("is_complete")
        .orderBy(F.desc("compared_at"))
        .select("run_id", "as_of", F.unix_millis("emitted_until"), "emitted_offsets", F.unix_millis("final_before"))
        .limit(1)
        .collect()
    )
    return None if not rows else LastComparison(*rows[0])


def _of_deployment(spark: SparkSession, table: str, deployment: str | None) -> DataFrame | None:
    """The counts of one deployment; None where there are none."""
    if not spark.catalog.tableExists(table):
        return None
    return spark.table(table).where(F.col("live_deployment").eqNullSafe(F.lit(deployment)))


def final_before(spark: SparkSession, table: str, deployment: str | None = None) -> int | None:
    """The live job does not touch windows any more that end before this instant (epoch ms), as far as comparisons know.

    `deployment`: the one that runs now. None: no comparison says so.
    """
    frame = _of_deployment(spark, table, deployment)
    if frame is None:
        return None
    return frame.agg(F.max(F.unix_millis("final_before"))).collect()[0][0]
