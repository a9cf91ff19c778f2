"""The published windows: `main` holds the current values, the branch `revisions` every value a window ever had.

Both move in one commit, so a reader of the table sees the old run or the new one, and needs none of our code. The same
commit names the snapshots of the side tables that belong to it (`side_tables`).
A row of either is one revision of one window: `revision` 1, 2, ...; `cause`; `run_id`; `as_of`; `valid_from`;
`valid_to` (null: valid now). On `revisions` a window that vanished ends in a row with cause `retraction` and no values.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property, partial

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from spark_jobs.definition.instants import format_instant
from spark_jobs.errors import CatalogError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.change import BOOKKEEPING_COLUMNS, WindowChange
from spark_jobs.lakehouse.commits import fast_forward, heads_of, retried
from spark_jobs.lakehouse.published_state import (
    PROPERTY,
    RUN_ID,
    PublishedState,
    foreign_change,
    foreign_commits,
    published_state,
    set_properties,
    state_at,
)
from spark_jobs.lakehouse.side_tables import Side, SideChange, SideTable, published_sides
from spark_jobs.lakehouse.tables import aligned, ensure_table, guarded, snapshots_back, start_bounds, starts_within
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table
from spark_jobs.spark.joins import others, same
from spark_jobs.spark.parallel import run_parallel

REVISIONS = "revisions"
RANGE = "rewindow.range"
"""A property in the summary of the snapshot that published a run, beside `RUN_ID`."""

FACTS = StructType(
    [
        StructField("revision", IntegerType()),
        StructField("cause", StringType()),
        StructField("run_id", StringType()),
        StructField("as_of", StringType()),
        StructField("valid_from", TimestampType()),
        StructField("valid_to", TimestampType()),
    ]
)
"""The columns that every revision has beside the window, its values and its counts."""
_ATTEMPTS = 5
LIVE = "rw_live"
"""The column that says of a staged window whether the live job has emitted its value."""
PANE_COLUMN = "pane"
_STATE, _KEPT_STATE = "state", "history_gone"
_KEPT_COLUMNS = frozenset(FACTS.names)
_MAX_SENT = 100_000
"""Windows that go to every task as they are."""


class Cause(StrEnum):
    """Why a window has the value that it has."""

    LIVE = "live"
    BACKFILL = "backfill"
    LATE_ARRIVALS = "late_arrivals"
    LOGIC_CHANGE = "logic_change"
    SOURCE_REPAIR = "source_repair"
    RETRACTION = "retraction"


@dataclass(frozen=True, slots=True)
class TableAt:
    """The table at a moment: the snapshot of its windows, its id, and the sequence number of its last commit.

    All are None where there was no table, `snapshot` also where it was empty.
    """

    snapshot: int | None = None
    table_id: str | None = None
    sequence: int | None = None


@dataclass(frozen=True)
class Publication:
    """What is to be published. `identity` names the columns that tell one window (or pane) from another.

    `began`: the table when the run began; None: an earlier version did not write it down. `in_scope` keeps of earlier
    windows those that the staged ones stand for: one of them that is not staged is retracted. `cause()` gives the cause
    of a change from the columns `old_run_id` (null: no window before) and `rw_start` (the window's start). `branch`
    names the branches that this process writes on. `rivals()` names the runs that the ledger says were published in the
    same range since this one began; it is called where the table's history does not reach back so far. `sides` says
    what changes in the side tables with the same commit. `with_live` adds the column `LIVE` to staged windows: whether
    the live job has emitted this value; None: nothing is known about that. `is_everything`: all that is published is in
    scope, and any other run is a rival. `former`: columns that told windows apart under earlier definitions and do not
    any more. `repairs`: somebody else has changed the table, so the staged windows are compared with what readers see,
    and not only with the branch of revisions.
    """

    run_id: str
    span: TimeRange
    staged: DataFrame
    identity: tuple[str, ...]
    in_scope: Callable[[DataFrame], DataFrame]
    cause: Callable[[], Column]
    as_of: dict[int, int]
    branch: str
    rivals: Callable[[], Sequence[str]]
    sides: tuple[SideChange, ...] = ()
    with_live: Callable[[DataFrame], DataFrame] | None = None
    began: TableAt | None = None
    is_everything: bool = False
    former: tuple[str, ...] = ()
    repairs: bool = False

    @property
    def row_identity(self) -> tuple[str, ...]:
        """The columns that tell one published row from another, former keys too: those are null in new rows.

        A pane is a number of a window: where only the last one is published, it is a value.
        """
        return (*self.identity, *(c for c in self.former if c != PANE_COLUMN))

    @property
    def may_repeat(self) -> bool:
        """Whether several published rows can have one identity: panes of before, or what somebody else has added."""
        return self.repairs or (PANE_COLUMN in self.former and PANE_COLUMN not in self.identity)

    @property
    def in_span(self) -> Column:
        """A condition on windows: those in scope have it, others may."""
        return F.lit(True) if self.is_everything else starts_within(self.span)


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
        return self.changes.groupBy("rw_change", "cause").agg(*counted).collect()

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
                counts.setdefault(row["rw_change"], {})[row["cause"]] = row["count"]
        return counts

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


_OLD = "old_"


class PublishedTable:
    """The table of one pipeline's windows."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self.table = table

    def prepare(self, staged: StructType) -> None:
        """Make the table, or give it the columns of `staged` that it lacks.

        Raises CatalogError for a table that an earlier layout of Rewindow, or somebody else, has made.
        """
        guarded("cannot make", self.table, lambda: self._prepare(staged))

    def _prepare(self, staged: StructType) -> None:
        spark, table = self._spark, self.table
        is_there = spark.catalog.tableExists(table)
        if is_there:
            there = {f"{field.name} {field.dataType.simpleString()}" for field in spark.table(table).schema}
            lacks = sorted({f"{field.name} {field.dataType.simpleString()}" for field in FACTS} - there)
            if lacks:
                raise CatalogError(
                    f"the table has no column {', '.join(lacks)}: an earlier version or another tool made it",
                    table,
                    "`rewindow upgrade PIPELINE` adds them. Or name another table under `output`.",
                )
        ensure_table(spark, table, StructType([*staged, *FACTS]))
        if not is_there:  # ordered by time within a file: a query for few windows, as of each night, reads little
            self.alter("WRITE LOCALLY ORDERED BY window_start")
        if not self._refs():
            self._java().newFastAppend().commit()  # a branch needs a snapshot to start from
        if REVISIONS not in self._refs():
            self.alter(f"CREATE BRANCH IF NOT EXISTS {REVISIONS}")

    def head(self) -> int | None:
        """The snapshot of the current windows; None where the table has none yet, or is not there."""
        return self._refs().get("main") if self._spark.catalog.tableExists(self.table) else None

    def state(self) -> PublishedState | None:
        """What the last publication left; None where that is not known, see `published_state`."""
        return published_state(self._java()) if self._spark.catalog.tableExists(self.table) else None

    def foreign_change(self) -> str | None:
        """What somebody else has done since the last publication, see `published_state.foreign_change`.

        To this table, or to a side table. Raises CatalogError where one cannot be read.
        """
        return guarded("cannot read", self.table, self._foreign_change)

    def _foreign_change(self) -> str | None:
        if (changed := foreign_change(self._java())) is not None:
            return changed
        for side, published in self._sides().items():
            changed = SideTable(self._spark, self.table, side).foreign_change(published)
            if changed is not None:
                return changed
        return None

    def sequence_of(self, run_id: str) -> int:
        """The sequence number of the commit that published a run; where it changed nothing, that of the last commit.

        A number belongs to one commit of the table, and later commits have higher ones.
        """
        table = self._java()
        commits = (s for s in snapshots_back(table) if s.summary().get(RUN_ID) == run_id)
        commit = next(commits, None)
        return table.operations().current().lastSequenceNumber() if commit is None else commit.sequenceNumber()

    def is_empty(self) -> bool:
        """Whether the table has no data files."""
        snapshot = self._java().currentSnapshot()
        return snapshot is None or snapshot.summary().get("total-records") == "0"

    def now(self) -> TableAt:
        """The table as it is now."""
        if not self._spark.catalog.tableExists(self.table):
            return TableAt()
        table = self._java()
        snapshot = table.currentSnapshot()
        at = None if snapshot is None else snapshot.snapshotId()
        return TableAt(at, str(table.uuid()), table.operations().current().lastSequenceNumber())

    def current(self) -> DataFrame:
        """The current windows."""
        return self._spark.table(self.table)

    def revisions(self) -> DataFrame:
        """Every revision of every window, retractions too."""
        return self._spark.table(f"{self.table}.branch_{REVISIONS}")

    def published_runs(self) -> set[str]:
        """The runs whose windows readers see or have seen: those in the past of `main`.

        A run that was killed while it published has left snapshots too, on branches that lead nowhere.
        """
        return {summary[RUN_ID] for summary in self._past(self.head()) if RUN_ID in summary}

    def _past(self, head: int | None) -> Iterator[dict[str, str]]:
        """The summaries of the snapshots from `head` back to the first one that has not expired."""
        return (summary for _, summary in self._snapshots_from(head))

    def _snapshots_from(self, head: int | None) -> Iterator[tuple[int, dict[str, str]]]:
        rows = self._spark.sql(f"SELECT snapshot_id, parent_id, summary FROM {self.table}.snapshots").collect()
        known = {row[0]: row for row in rows}
        snapshot = known.get(head)
        while snapshot is not None:
            yield snapshot[0], snapshot[2]
            snapshot = known.get(snapshot[1])

    def _latest_snapshots(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The snapshots of `main`, latest first, each looked up when it is reached; their runs and ranges."""
        if not self._spark.catalog.tableExists(self.table):
            return
        for snapshot in snapshots_back(self._java()):
            summary = snapshot.summary()
            known = {name: summary.get(name) for name in (RUN_ID, RANGE)}
            yield snapshot.snapshotId(), {name: value for name, value in known.items() if value is not None}

    def changes(self, publication: Publication, at: datetime) -> DataFrame:
        """What publishing would change: new revisions with `rw_change`, a `WindowChange`."""
        return self._changes(publication, at)[0]

    def compared_changes(self, publication: Publication, at: datetime) -> DataFrame:
        """The same changes, found without the short cut: every staged window is compared with what is published."""
        return _with_run(self._compared(publication, publication.staged), publication, at)

    def _changes(self, publication: Publication, at: datetime) -> tuple[DataFrame, DataFrame | None]:
        """The changes, and the part of them that costs a join; None: no part does.

        Behind the last published window there is nothing to compare with.
        """
        staged, compared = publication.staged, None
        if publication.may_repeat:
            compared = self._compared(publication, staged)
            return _with_run(compared, publication, at), compared
        published = self.revisions().where(publication.in_span)
        bounds = (partial(start_bounds, windows) for windows in (published, staged))
        (_, last), (_, last_staged), _ = run_parallel(self._spark, *bounds, publication.cause)
        if last is None:
            changes = self._inserted(publication, staged)
        elif (last_staged or last) <= last:
            changes = compared = self._compared(publication, staged)
        else:
            is_behind = F.col("window_start") > F.timestamp_millis(F.lit(last))
            compared = self._compared(publication, staged.where(~is_behind))
            changes = compared.unionByName(self._inserted(publication, staged.where(is_behind)))
        return _with_run(changes, publication, at), compared

    def _inserted(self, publication: Publication, staged: DataFrame) -> DataFrame:
        """The changes where there is nothing to compare with: every staged window."""
        identity, values = self._columns(publication)
        staged = self._staged(publication, staged)
        placed = staged.withColumns({"rw_start": F.col("window_start"), "old_run_id": F.lit(None).cast("string")})
        return placed.select(
            F.lit("inserted").alias("rw_change"),
            *_quoted([*identity, *values]),
            F.lit(1).alias("revision"),
            F.when(F.col(LIVE), Cause.LIVE.value).otherwise(publication.cause()).alias("cause"),
        )

    def _staged(self, publication: Publication, staged: DataFrame) -> DataFrame:
        """Staged windows in the table's columns, and `LIVE`."""
        rows = aligned(self._spark, self.table, staged)
        return rows.withColumn(LIVE, F.lit(False)) if publication.with_live is None else publication.with_live(rows)

    def _columns(self, publication: Publication) -> tuple[list[str], list[str]]:
        """The columns that tell one window from another, and those of its values."""
        identity = list(publication.row_identity)
        columns = self._spark.table(self.table).columns
        return identity, [c for c in columns if c not in _KEPT_COLUMNS and c not in identity]

    def _compared(self, publication: Publication, staged: DataFrame) -> DataFrame:
        """The changes against what is published."""
        identity, values = self._columns(publication)
        new = self._staged(publication, staged).select(*_quoted(identity), _packed(values, "rw_new"), LIVE)
        old = self._published(publication, identity, values)
        joined = new.join(old, same(identity, _OLD), "full_outer")
        was = F.coalesce(F.col("old_rows") > 0, F.lit(False))
        there = F.col("rw_new").isNotNull()
        seen = [c for c in values if c not in BOOKKEEPING_COLUMNS]
        is_one = F.col("old_rows") == 1
        # A kept window has the values that it had; only its state is another one.
        is_kept = F.col(f"rw_new.{_STATE}").eqNullSafe(_KEPT_STATE) if _STATE in values else F.lit(False)
        change = (
            F.when(there & ~was, WindowChange.INSERTED.value)
            .when(
                there & is_one & is_kept & ~F.col("rw_new").eqNullSafe(F.col("rw_old")), WindowChange.BOOKKEEPING.value
            )
            .when(
                there & ~(is_one & _part("rw_new", seen).eqNullSafe(_part("rw_old", seen))), WindowChange.UPDATED.value
            )
            .when(
                there & ~(F.col("old_is_whole") & F.col("rw_new").eqNullSafe(F.col("rw_old"))),
                WindowChange.BOOKKEEPING.value,
            )
            .when(~there & (was | ~F.col("old_is_whole")), WindowChange.RETRACTED.value)
        )
        whole = [F.coalesce(f"`{c}`", f"`{_OLD}{c}`").alias(c) for c in identity]
        start = F.coalesce("window_start", "old_window_start")
        cause = (
            F.when(~there, F.lit(Cause.RETRACTION.value))
            .when(F.col("rw_change") == WindowChange.BOOKKEEPING.value, F.col("old_cause"))  # that of its value
            .when(F.col("old_run_id").isNull() & F.col(LIVE), Cause.LIVE.value)
            .otherwise(publication.cause())
        )
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

    def _published(self, publication: Publication, identity: Sequence[str], values: Sequence[str]) -> DataFrame:
        """What is published of each window in scope, by `old_` and the column's name.

        `old_rows`: how many rows readers see of it. `rw_old`: their values, of one of them. `old_is_whole`: the
        revisions say the same as readers see.
        """
        rows = [
            *others(identity, _OLD),
            _packed(values, "rw_old"),
            F.col("revision").alias("old_revision"),
            F.col("cause").alias("old_cause"),
            F.col("run_id").alias("old_run_id"),
        ]
        revisions = publication.in_scope(self.revisions().where("valid_to IS NULL")).select(*rows)
        is_seen = F.col("old_cause") != Cause.RETRACTION
        if not publication.may_repeat:
            return revisions.select(
                "*", F.when(is_seen, 1).otherwise(0).alias("old_rows"), F.lit(True).alias("old_is_whole")
            )
        revisions = revisions.withColumns({"in_main": F.lit(False), "in_history": F.coalesce(is_seen, F.lit(True))})
        seen = revisions.withColumn("in_main", F.col("in_history"))
        if publication.repairs:
            main = publication.in_scope(self.current()).select(*rows)
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

    def difference(self, publication: Publication, at: datetime) -> Difference:
        """`changes`, kept to be read more than once; release it."""
        heads = self._refs()
        changes, compared = self._changes(publication, at)
        # The rest is staged rows and constants: cheaper to read again than to keep.
        return Difference(changes, heads, compared and compared.persist(StorageLevel.MEMORY_AND_DISK))

    def publish(
        self, publication: Publication, base: int | None, at: datetime, made: Difference | None = None
    ) -> dict[str, int]:
        """Publish in one commit; how many windows were inserted, updated, retracted.

        `base` is the head that the run started from (None: there was no table). `made` is the difference, if it has
        been made. Where the table has changed since, it is computed again; where another run has published windows of
        the same range, CatalogError says so and nothing is published.
        """
        return guarded("cannot publish", self.table, lambda: self._publish(publication, base, at, made))

    def _publish(
        self, publication: Publication, base: int | None, at: datetime, made: Difference | None
    ) -> dict[str, int]:
        counts = {} if made is None else made.counts
        for attempt in range(_ATTEMPTS):
            heads = self._refs()
            if self._refuse_rivals(publication, base):  # an earlier try was committed, and its answer was lost
                return counts
            self._refuse_foreign(publication, base)
            is_usable = made is not None and all(made.heads[name] == heads[name] for name in ("main", REVISIONS))
            difference = made if made is not None and is_usable else self.difference(publication, at)
            try:
                counts = difference.counts
                sides = self._sides()
                staged = {} if counts else self._stage_sides(publication, sides, compared=True)
                if not counts and not staged:
                    if publication.repairs:
                        self._vouch(publication, heads["main"])
                    return counts
                named = sides | (self._write(publication, difference, heads, sides) if counts else staged)
                self._share(publication, difference, heads, named)
                if self.move(publication, heads, named):
                    return counts
            finally:
                difference.release()
            time.sleep(0.2 * 2**attempt)
        raise CatalogError(
            "other runs keep publishing to this table", self.table, "Nothing was published; run again later."
        )

    def _refuse_rivals(self, publication: Publication, base: int | None) -> bool:
        """Refuse where another run has published the range since `base`. True: this run itself is published."""
        has_reached_base = False
        for snapshot, summary in self._latest_snapshots():
            if snapshot == base:
                has_reached_base = True
                break
            if summary.get(RUN_ID) == publication.run_id:
                return True
            if RUN_ID in summary and RANGE in summary:
                start, end = (int(part) for part in summary[RANGE].split(","))
                overlaps = start < publication.span.end and publication.span.start < end
                if overlaps or publication.is_everything:
                    self._refuse_rival(summary[RUN_ID])
        if base is not None and not has_reached_base:  # snapshots in between have expired: the ledger knows
            for rival in publication.rivals():
                self._refuse_rival(rival)
        return False

    def _refuse_foreign(self, publication: Publication, base: int | None) -> None:
        """Refuse where somebody else has changed the table; where the run repairs that: has changed it since `base`."""
        began, now = publication.began or TableAt(), self.now()
        if began.table_id not in (None, now.table_id) or (began.sequence or 0) > (now.sequence or 0):
            changed = "it was dropped and made anew, or is an older copy"
        elif not publication.repairs:
            changed = self._foreign_change()
        else:
            changed = None if base is None else foreign_commits(self._java(), base)
        if changed is not None:
            raise CatalogError(
                f"another program than Rewindow has changed the table: {changed}",
                self.table,
                "Nothing was published; start a run over the whole history, which compares with what is there.",
            )

    def _state_at(self, publication: Publication, head: int) -> str:
        """What the property `PROPERTY` says once the run is published, with `main` at `head`."""
        columns = (*publication.staged.columns, *FACTS.names)
        of_all = publication.is_everything
        return state_at(self._java(), head, publication.identity, columns, is_everything=of_all).to_json()

    def _vouch(self, publication: Publication, head: int) -> None:
        """Write down that the table is as this run would have left it."""

        def vouch() -> None:
            self._java().updateProperties().set(PROPERTY, self._state_at(publication, head)).commit()

        retried(vouch)

    def _refuse_rival(self, run_id: str) -> None:
        raise CatalogError(
            f"run {run_id} has published windows of the same range meanwhile",
            self.table,
            "Nothing was published; run again to compare with what is there now.",
        )

    def _write(
        self, publication: Publication, difference: Difference, heads: dict[str, int], sides: dict[Side, int]
    ) -> dict[Side, int]:
        """What changes, on branches of its own; the future snapshots of the side tables that change."""
        spark, table, changes = self._spark, self.table, difference.changes
        _, _, added = _branches(publication.branch)
        self._branch_off(publication.branch, heads)
        written = changes.where("rw_change <> 'retracted'").select(*_quoted(_changed_columns(changes)))
        steps: list[Callable[[], object]] = [
            lambda: self._stage_sides(publication, sides),
            lambda: self._append(aligned(spark, table, written), added, publication),
        ]
        if difference.supersedes:
            steps.append(lambda: self._end_revisions(publication, changes))
        return run_parallel(spark, *steps)[0]

    def _branch_off(self, branch: str, heads: dict[str, int]) -> None:
        """Make the branches of a publication in one commit, or bring them back to where they begin."""
        ours, history, added = _branches(branch)

        def branch_off() -> None:
            table = self._java()
            there, change = {name for name, _ in table.refs().items()}, table.manageSnapshots()
            for name, source in ((ours, "main"), (history, REVISIONS), (added, "main")):
                make = change.replaceBranch if name in there else change.createBranch
                change = make(name, heads[source])
            change.commit()

        retried(branch_off)

    def _share(
        self, publication: Publication, difference: Difference, heads: dict[str, int], sides: dict[Side, int]
    ) -> None:
        """Both future states: the same files belong to them, what is written once is read from either.

        Without changes `main` gets a snapshot that names the side tables' snapshots, and no more.
        """
        ours, history, added = _branches(publication.branch)
        if not difference.counts:
            self._branch_off(publication.branch, heads)
            self._share_last_append(None, ours, publication, sides)
            return
        for branch in (ours, history):
            self._share_last_append(added, branch, publication, sides)
        if difference.counts.get("retracted"):
            retracted = difference.changes.where("rw_change = 'retracted'")
            retracted = retracted.select(*_quoted(_changed_columns(retracted)))
            self._append(aligned(self._spark, self.table, retracted), history, publication)

    def _stage_sides(
        self, publication: Publication, sides: dict[Side, int], *, compared: bool = False
    ) -> dict[Side, int]:
        """Stage the side tables' future states; their snapshots, without those of tables that stay as they are."""
        found = {
            change.side: SideTable(self._spark, self.table, change.side).stage(
                change, sides.get(change.side), publication.branch, compared=compared
            )
            for change in publication.sides
        }
        return {side: snapshot for side, snapshot in found.items() if snapshot is not None}

    def _sides(self) -> dict[Side, int]:
        """The published snapshots of the side tables."""
        return published_sides(dict(self._java().properties()))

    def follow(self, branch: str | None = None) -> None:
        """Bring `main` of the side tables to what the windows name; drop the `branch` of whoever published."""
        sides = self._sides()
        for side in Side:
            SideTable(self._spark, self.table, side).follow(sides.get(side), branch)

    def _end_revisions(self, publication: Publication, changes: DataFrame) -> None:
        """Take the superseded windows from the future `main`, and end their revisions in the future `revisions`."""
        spark, table = self._spark, self.table
        ours, history, _ = _branches(publication.branch)
        superseded, low, high = self._superseded(publication, changes)
        superseded.createOrReplaceTempView("rw_superseded")
        is_same = " AND ".join(f"t.`{c}` <=> s.`{c}`" for c in publication.row_identity)
        within = f"t.window_start BETWEEN TIMESTAMP '{format_instant(low)}' AND TIMESTAMP '{format_instant(high)}'"
        within = "TRUE" if publication.repairs else within  # somebody else may have written a row without a start
        merge = f"USING rw_superseded s ON {within} AND {is_same}"
        ended = f"{merge} AND t.valid_to IS NULL WHEN MATCHED THEN UPDATE SET valid_to = s.valid_from"
        try:
            run_parallel(
                spark,
                lambda: spark.sql(f"MERGE INTO {table}.branch_{ours} t {merge} WHEN MATCHED THEN DELETE"),
                lambda: spark.sql(f"MERGE INTO {table}.branch_{history} t {ended}"),
            )
        finally:
            spark.catalog.dropTempView("rw_superseded")

    def _superseded(self, publication: Publication, changes: DataFrame) -> tuple[DataFrame, int, int]:
        """The windows whose last revision ends, and their first and last start (epoch ms).

        A few go to every task in the plan; more are joined as Spark sees fit.
        """
        rows = changes.where("revision > 1 OR rw_change <> 'inserted'")
        rows = rows.select(*_quoted(publication.row_identity), "valid_from")
        few = rows.limit(_MAX_SENT + 1).toArrow()
        if few.num_rows <= _MAX_SENT:
            rows = self._spark.createDataFrame(few)
        low, high = start_bounds(rows)
        return rows, low or 0, high or 0

    def _append(self, rows: DataFrame, branch: str, publication: Publication) -> None:
        writer = rows.writeTo(f"{self.table}.branch_{branch}")
        for name, value in _summary(publication).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()

    def settle(self) -> None:
        """Name the present snapshots as the published ones, where nothing but files was rewritten since.

        For maintenance: the snapshots in between can then expire. Where another process commits meanwhile, nothing is
        done: it has named newer ones.
        """
        table, named = self._java(), {}
        state, head = published_state(table), table.currentSnapshot()
        if state is not None and head.snapshotId() != state.head and _is_as_published(table, state):
            named[PROPERTY] = replace(state, head=head.snapshotId(), sequence=head.sequenceNumber()).to_json()
        for side, published in self._sides().items():
            rewritten = SideTable(self._spark, self.table, side).rewritten_since(published)
            if rewritten is not None:
                named[side.property] = str(rewritten)
        if named and set_properties(self._spark, table, named):
            self.follow()

    def _share_last_append(
        self, source: str | None, target: str, publication: Publication, sides: dict[Side, int]
    ) -> None:
        """Add the files of the last snapshot of the branch `source` to `target`; None: a snapshot without files."""
        table = self._java()
        append = table.newFastAppend().toBranch(target)
        for name, value in (_summary(publication) | _named(sides)).items():
            append = append.set(name, value)
        if source is not None:
            files = table.snapshot(source).addedDataFiles(table.io()).iterator()
            while files.hasNext():
                append = append.appendFile(files.next())
        append.commit()

    def move(self, publication: Publication, heads: dict[str, int], sides: dict[Side, int] | None = None) -> bool:
        """Move `main` and `revisions` together, and name the side tables' snapshots, in one commit.

        False if one of the branches is no longer where the difference was made.
        """
        ours, history, added = _branches(publication.branch)
        ours_at = self._refs()[ours]

        def properties() -> dict[str, str]:
            return {PROPERTY: self._state_at(publication, ours_at), **_named(sides or {})}

        branches = {"main": ours, REVISIONS: history}
        if fast_forward(self._spark, self.table, branches, heads, properties, drop=(added,)):
            return True
        self.drop_branches(publication.branch)
        return False

    def alter(self, change: str) -> None:
        """Carry out `ALTER TABLE ... <change>`, again if another process has changed the table meanwhile."""
        retried(lambda: self._spark.sql(f"ALTER TABLE {self.table} {change}"))

    def drop_branches(self, branch: str) -> None:
        """Drop what a process that was killed while it published has left; `branch`: see `Publication`."""
        for name in _branches(branch):
            self.alter(f"DROP BRANCH IF EXISTS {name}")
        for side in Side:
            SideTable(self._spark, self.table, side).follow(None, branch)

    def _refs(self) -> dict[str, int]:
        return heads_of(self._java())

    def _java(self) -> JavaObject:
        """Iceberg's own handle of the table, as it is now."""
        return loaded_iceberg_table(self._spark, self.table)


def _is_as_published(table: JavaObject, state: PublishedState) -> bool:
    return foreign_commits(table, state.head, state.sequence) is None


def _branches(name: str) -> tuple[str, str, str]:
    """The future `main`, the future `revisions`, and the one on which the rows of both are written."""
    return name, f"{name}_revisions", f"{name}_added"


def _with_run(changes: DataFrame, publication: Publication, at: datetime) -> DataFrame:
    """The changes with what their run says of all of them; constants, which are not kept in memory."""
    as_of = json.dumps(dict(sorted(publication.as_of.items())), separators=(",", ":"))
    return changes.select(
        "*",
        F.lit(publication.run_id).alias("run_id"),
        F.lit(as_of).alias("as_of"),
        F.lit(at).cast("timestamp").alias("valid_from"),
        F.lit(None).cast("timestamp").alias("valid_to"),
    )


def _summary(publication: Publication) -> dict[str, str]:
    return {RUN_ID: publication.run_id, RANGE: f"{publication.span.start},{publication.span.end}"}


def _named(sides: dict[Side, int]) -> dict[str, str]:
    return {side.property: str(snapshot) for side, snapshot in sides.items()}


def _changed_columns(changes: DataFrame) -> list[str]:
    return [column for column in changes.columns if column != "rw_change"]


def _packed(columns: Sequence[str], name: str) -> Column:
    return F.struct(*_quoted(columns)).alias(name)


def _part(struct: str, fields: Sequence[str]) -> Column:
    """Some fields of a struct, as a struct."""
    return F.struct(*(F.col(f"{struct}.`{c}`") for c in fields))


def _quoted(columns: Sequence[str]) -> list[Column]:
    return [F.col(f"`{c}`") for c in columns]
