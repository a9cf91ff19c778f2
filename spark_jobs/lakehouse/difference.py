"""The difference between what a run has staged and what is published: new revisions of windows.

Behind the last published window there is nothing to compare with; the rest is one join by window.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, partial

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.change import BOOKKEEPING_COLUMNS, WindowChange
from spark_jobs.lakehouse.publication import FACTS, LIVE, REVISIONS, Cause, Publication
from spark_jobs.lakehouse.tables import aligned, quoted, start_bounds
from spark_jobs.replay.columns import DROPPED, HISTORY_GONE, LATE, NOT_COUNTED, ON_TIME, STATE
from spark_jobs.replay.rounding import rounded_columns
from spark_jobs.spark.joins import others, same
from spark_jobs.spark.parallel import run_parallel

_OLD = "old_"
"""Before the names of what is published."""
_KEPT_COLUMNS = frozenset(FACTS.names)


@dataclass(frozen=True)
class Difference:
    """`changes` of a publication, and the snapshots of the branches that they were made against.

    `kept` is the part of them that costs a join, cached.
    """

    changes: DataFrame
    heads: dict[str, int]
    kept: DataFrame | None = None

    @cached_property
    def _counted(self) -> list[Row]:
        counted = (
            F.count("*").alias("count"),
            F.max("revision").alias("revision"),
            F.unix_millis(F.min("window_start")).alias("start"),
            F.unix_millis(F.max("window_end")).alias("end"),
        )
        hour = F.date_trunc("hour", "window_start").cast("timestamp_ntz").alias("hour")
        return self.changes.groupBy("rw_change", "cause", hour).agg(*counted).collect()

    @property
    def counts(self) -> dict[str, int]:
        """How many windows there are of each `WindowChange`; none of a kind: the kind is left out."""
        counts: dict[str, int] = {}
        for row in self._counted:
            counts[row["rw_change"]] = counts.get(row["rw_change"], 0) + row["count"]
        return counts

    @property
    def causes(self) -> dict[str, int]:
        """How many windows change for readers, by cause."""
        counts: dict[str, int] = {}
        for causes in self.causes_by_change.values():
            for cause, count in causes.items():
                counts[cause] = counts.get(cause, 0) + count
        return counts

    @property
    def causes_by_change(self) -> dict[str, dict[str, int]]:
        """How many windows change for readers, by `WindowChange` and then by cause."""
        counts: dict[str, dict[str, int]] = {}
        for row in self._counted:
            if row["rw_change"] != WindowChange.BOOKKEEPING:
                of = counts.setdefault(row["rw_change"], {})
                of[row["cause"]] = of.get(row["cause"], 0) + row["count"]
        return counts

    @property
    def hours(self) -> list[datetime]:
        """The hours (UTC, without a zone) in which a window starts that changes for readers, in order."""
        seen = (row["hour"] for row in self._counted if row["rw_change"] != WindowChange.BOOKKEEPING)
        return sorted({hour for hour in seen if hour is not None})

    @property
    def span(self) -> TimeRange | None:
        """From the start of the first window that changes for readers to the end of the last; None: none changes.

        Rows that somebody else has added can lack a start or an end.
        """
        seen = [row for row in self._counted if row["rw_change"] != WindowChange.BOOKKEEPING]
        instants = [row[name] for row in seen for name in ("start", "end") if row[name] is not None]
        return TimeRange(min(instants), max(instants)) if instants else None

    @property
    def supersedes(self) -> bool:
        """Whether a window had a revision before; a retraction is one too."""
        return any(row["revision"] > 1 or row["rw_change"] != WindowChange.INSERTED for row in self._counted)

    def release(self) -> None:
        if self.kept is not None:
            self.kept.unpersist()


@dataclass(frozen=True)
class Comparison:
    """A publication beside what the table of windows has."""

    spark: SparkSession
    table: str
    publication: Publication

    def difference(self, at: datetime, heads: dict[str, int]) -> Difference:
        """The changes against the branches `heads`, kept to be read more than once; release it."""
        changes, compared = self.changes(at)
        # The rest is staged rows and constants: cheaper to read again than to keep.
        return Difference(changes, heads, compared and compared.persist(StorageLevel.MEMORY_AND_DISK))

    def compared_changes(self, at: datetime) -> DataFrame:
        """The changes, found without the short cut: every staged window is compared with what is published."""
        return _with_run(self._compared(self.publication.staged), self.publication, at)

    def changes(self, at: datetime) -> tuple[DataFrame, DataFrame | None]:
        """The changes, and the part of them that costs a join; None: no part does.

        Behind the last published window there is nothing to compare with.
        """
        publication, compared = self.publication, None
        staged = publication.staged
        if publication.may_repeat:
            compared = self._compared(staged)
            return _with_run(compared, publication, at), compared
        published = self._revisions().where(publication.in_span)
        bounds = (partial(start_bounds, windows) for windows in (published, staged))
        (_, last), (_, last_staged), _ = run_parallel(self.spark, *bounds, publication.cause)
        if last is None:
            changes = self._inserted(staged)
        elif (last_staged or last) <= last:
            changes = compared = self._compared(staged)
        else:
            is_behind = F.col("window_start") > F.timestamp_millis(F.lit(last))
            compared = self._compared(staged.where(~is_behind))
            changes = compared.unionByName(self._inserted(staged.where(is_behind)))
        return _with_run(changes, publication, at), compared

    def _inserted(self, staged: DataFrame) -> DataFrame:
        """The changes where there is nothing to compare with: every staged window."""
        identity, values = self._columns()
        staged = self._staged(staged)
        placed = staged.withColumns({"rw_start": F.col("window_start"), "old_run_id": F.lit(None).cast("string")})
        return placed.select(
            F.lit("inserted").alias("rw_change"),
            *quoted([*identity, *values]),
            F.lit(1).alias("revision"),
            F.when(F.col(LIVE), Cause.LIVE.value).otherwise(self.publication.cause()).alias("cause"),
        )

    def _staged(self, staged: DataFrame) -> DataFrame:
        """Staged windows in the table's columns, the bounds of those that are rounded, and `LIVE`."""
        rows = aligned(self.spark, self.table, staged, rounded_columns(staged.columns).values())
        return (
            rows.withColumn(LIVE, F.lit(False))
            if self.publication.with_live is None
            else self.publication.with_live(rows)
        )

    def _columns(self) -> tuple[list[str], list[str]]:
        """The columns that tell one window from another, and those of its values."""
        identity = list(self.publication.row_identity)
        columns = self.spark.table(self.table).columns
        return identity, [c for c in columns if c not in _KEPT_COLUMNS and c not in identity]

    def _compared(self, staged: DataFrame) -> DataFrame:
        """The changes against what is published."""
        identity, values = self._columns()
        bounds = rounded_columns(staged.columns)
        new = self._staged(staged).select(*quoted([*identity, *bounds.values()]), _packed(values, "rw_new"), LIVE)
        old = self._published(identity, values)
        joined = _without_rounding(new.join(old, same(identity, _OLD), "full_outer"), values, bounds)
        was = F.coalesce(F.col("old_rows") > 0, F.lit(False))
        there = F.col("rw_new").isNotNull()
        seen = [c for c in values if c not in BOOKKEEPING_COLUMNS]
        is_one = F.col("old_rows") == 1
        # A kept window has the values that it had, unless somebody else has changed it; its state and counts differ.
        numbers = [c for c in seen if c not in (STATE, ON_TIME, LATE, DROPPED, NOT_COUNTED)]
        is_kept = F.col(f"rw_new.{STATE}").eqNullSafe(HISTORY_GONE) if STATE in values else F.lit(False)
        is_kept = is_kept & _part("rw_new", numbers).eqNullSafe(_part("rw_old", numbers))
        was_open = F.coalesce(_state("rw_old") == "open", F.lit(False)) if STATE in values else F.lit(False)
        is_same = _part("rw_new", seen).eqNullSafe(_part("rw_old", seen))
        change = (
            F.when(there & ~was, WindowChange.INSERTED.value)
            .when(
                there & is_one & is_kept & ~F.col("rw_new").eqNullSafe(F.col("rw_old")), WindowChange.BOOKKEEPING.value
            )
            .when(there & ~(is_one & is_same) & was_open, WindowChange.WAS_OPEN.value)
            .when(there & ~(is_one & is_same), WindowChange.UPDATED.value)
            .when(
                there & ~(F.col("old_is_whole") & F.col("rw_new").eqNullSafe(F.col("rw_old"))),
                WindowChange.BOOKKEEPING.value,
            )
            .when(~there & was & was_open, WindowChange.OUTGROWN.value)
            .when(~there & (was | ~F.col("old_is_whole")), WindowChange.RETRACTED.value)
        )
        whole = [F.coalesce(f"`{c}`", f"`{_OLD}{c}`").alias(c) for c in identity]
        start = F.coalesce("window_start", "old_window_start")
        cause = (
            F.when(~there, F.lit(Cause.RETRACTION.value))
            .when(F.col("rw_change") == WindowChange.BOOKKEEPING.value, F.col("old_cause"))  # that of its value
            .when(F.col("old_run_id").isNull() & F.col(LIVE), Cause.LIVE.value)
            .otherwise(self.publication.cause())
        )
        if STATE in values:
            of_open = F.when(_state("rw_new") == "open", Cause.OPEN.value).otherwise(Cause.CLOSED.value)
            by_itself = (F.col("rw_change") == WindowChange.WAS_OPEN.value) & (cause != Cause.LOGIC_CHANGE.value)
            cause = F.when(by_itself, of_open).otherwise(cause)
        revision = F.coalesce("old_revision", F.lit(0)) + 1
        return (
            joined.withColumn("rw_change", change)
            .where("rw_change IS NOT NULL")
            .withColumn("rw_start", start)
            .select(
                "rw_change",
                *whole,
                *(F.col(f"rw_new.`{c}`").alias(c) for c in values),
                revision.cast("int").alias("revision"),
                cause.alias("cause"),
            )
        )

    def _published(self, identity: Sequence[str], values: Sequence[str]) -> DataFrame:
        """What is published of each window in scope, by `old_` and the column's name.

        `old_rows`: how many rows readers see of it. `rw_old`: the values of any one of these rows. `old_is_whole`: the
        revisions say the same as readers see.
        """
        rows = [
            *others(identity, _OLD),
            _packed(values, "rw_old"),
            F.col("revision").alias("old_revision"),
            F.col("cause").alias("old_cause"),
            F.col("run_id").alias("old_run_id"),
        ]
        revisions = self.publication.in_scope(self._revisions().where("valid_to IS NULL")).select(*rows)
        is_seen = F.col("old_cause") != Cause.RETRACTION
        if not self.publication.may_repeat:
            return revisions.select(
                "*", F.when(is_seen, 1).otherwise(0).alias("old_rows"), F.lit(True).alias("old_is_whole")
            )
        revisions = revisions.withColumns({"in_main": F.lit(False), "in_history": F.coalesce(is_seen, F.lit(True))})
        seen = revisions.withColumn("in_main", F.col("in_history"))
        if self.publication.repairs:
            main = self.publication.in_scope(self.spark.table(self.table)).select(*rows)
            main = main.withColumns({"in_main": F.lit(True), "in_history": F.lit(False)})
            seen = revisions.unionByName(main)
        last = F.coalesce("old_revision", F.lit(0))
        value_in = "filter (where {0})"
        grouped = seen.groupBy(*(f"`{_OLD}{c}`" for c in identity)).agg(
            F.count_if("in_main").alias("old_rows"),
            F.count_if("in_history").alias("in_history"),
            F.expr(f"any_value(rw_old) {value_in.format('in_main')}").alias("rw_old"),
            F.expr(f"any_value(rw_old) {value_in.format('in_history')}").alias("rw_history"),
            F.max(last).alias("old_revision"),
            F.max_by("old_cause", last).alias("old_cause"),
            F.max_by("old_run_id", last).alias("old_run_id"),
        )
        is_whole = (F.col("in_history") == F.col("old_rows")) & F.col("rw_history").eqNullSafe(F.col("rw_old"))
        return grouped.withColumn("old_is_whole", is_whole).drop("in_history", "rw_history")

    def _revisions(self) -> DataFrame:
        return self.spark.table(f"{self.table}.branch_{REVISIONS}")


def _without_rounding(joined: DataFrame, values: Sequence[str], bounds: Mapping[str, str]) -> DataFrame:
    """`rw_new` with the published value where a new one may differ from it by the order of additions alone.

    Two runs can add the records of a window in different orders. A bound that is infinite or NaN allows nothing.
    """
    if not bounds:
        return joined

    def value(column: str) -> Column:
        new, old = F.col(f"rw_new.`{column}`"), F.col(f"rw_old.`{column}`")
        if column not in bounds:
            return new.alias(column)
        bound = F.col(f"`{bounds[column]}`")
        is_near = (bound < F.lit(float("inf"))) & (F.abs(new.cast("double") - old.cast("double")) <= bound)
        return F.when(is_near, old).otherwise(new).alias(column)

    there = F.when(F.col("rw_new").isNotNull(), F.struct(*map(value, values)))
    return joined.withColumn("rw_new", there).drop(*bounds.values())


def _with_run(changes: DataFrame, publication: Publication, at: datetime) -> DataFrame:
    """The changes with what their run says of all of them; constants, which are not kept in memory."""
    as_of = _as_json(publication.as_of)
    if publication.kept_as_of is not None and STATE in changes.columns:
        as_of = F.when(F.col(STATE) == HISTORY_GONE, _as_json(publication.kept_as_of)).otherwise(as_of)
    return changes.select(
        "*",
        F.lit(publication.run_id).alias("run_id"),
        as_of.alias("as_of"),
        F.lit(at).cast("timestamp").alias("valid_from"),
        F.lit(None).cast("timestamp").alias("valid_to"),
    )


def _as_json(offsets: Mapping[int, int]) -> Column:
    return F.lit(json.dumps(dict(sorted(offsets.items())), separators=(",", ":")))


def _packed(columns: Sequence[str], name: str) -> Column:
    return F.struct(*quoted(columns)).alias(name)


def _state(struct: str) -> Column:
    return F.col(f"{struct}.{STATE}")


def _part(struct: str, fields: Sequence[str]) -> Column:
    """Some fields of a struct, as a struct."""
    return F.struct(*(F.col(f"{struct}.`{c}`") for c in fields))
