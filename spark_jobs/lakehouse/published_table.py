"""The published windows: `main` holds the current values, the branch `revisions` every value a window ever had.

Both move in one commit, so a reader of the table sees the old run or the new one, and needs none of our code. The same
commit names the snapshots of the side tables that belong to it (`side_tables`).
A row of either is one revision of one window: `revision` 1, 2, ...; `cause`; `run_id`; `as_of`; `valid_from`;
`valid_to` (null: valid now). On `revisions` a window that vanished ends in a row with cause `retraction` and no values.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.branches import PublicationBranches, drop_branches
from spark_jobs.lakehouse.commits import heads_of, retried
from spark_jobs.lakehouse.difference import Comparison, Difference
from spark_jobs.lakehouse.publication import FACTS, RANGE, REVISIONS, Cause, Publication, TableAt
from spark_jobs.lakehouse.published_state import (
    PROPERTY,
    RUN_ID,
    PublishedState,
    foreign_change,
    foreign_commits,
    published_state,
    rows_of,
    set_properties,
    since_last_run,
)
from spark_jobs.lakehouse.side_tables import Side, SideTable, published_sides
from spark_jobs.lakehouse.tables import ensure_table, guarded
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import snapshots_back

_ATTEMPTS = 5


class PublishedTable:
    """The table of one pipeline's windows."""

    def __init__(self, spark: SparkSession, table: str) -> None:
        self._spark = spark
        self.table = table

    def prepare(self, staged: StructType) -> None:
        """Make the table, or give it the columns of `staged` that it lacks.

        Raises CatalogError for a table of another layout, or that another tool has made.
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
                    f"the table has no column {', '.join(lacks)}: another tool made it",
                    table,
                    "Name another table under `output`.",
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

    def last_published(self) -> DataFrame:
        """The windows as the last run of each has left them, also where somebody else has changed `main` since."""
        return self.revisions().where(f"valid_to IS NULL AND cause <> '{Cause.RETRACTION.value}'")

    def published_runs(self) -> set[str]:
        """The runs whose windows readers see or have seen: those in the past of `main`.

        A run that was killed while it published has left snapshots too, on branches that lead nowhere.
        """
        runs = (snapshot.summary().get(RUN_ID) for snapshot in snapshots_back(self._java()))
        return {run for run in runs if run is not None}

    def rows_at(self, snapshot: int) -> int:
        """The rows that readers saw at a snapshot; where that does not say it, those of now."""
        there = self._java().snapshot(snapshot)
        rows = None if there is None else rows_of(there)
        return self.current().count() if rows is None else rows

    def foreign_commits_before(self, snapshot: int) -> int:
        """The commits of others that change rows, up to a snapshot, since the last one of a run."""
        return len(since_last_run(self._java(), snapshot)[1])

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
        return self._comparison(publication).changes(at)[0]

    def compared_changes(self, publication: Publication, at: datetime) -> DataFrame:
        """The changes, found without the short cut: every staged window is compared with what is published."""
        return self._comparison(publication).compared_changes(at)

    def difference(self, publication: Publication, at: datetime) -> Difference:
        """`changes`, kept to be read more than once; release it."""
        return self._comparison(publication).difference(at, self._refs())

    def _comparison(self, publication: Publication) -> Comparison:
        return Comparison(self._spark, self.table, publication)

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
        branches = PublicationBranches(self._spark, self.table, publication)
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
                staged = {} if counts else branches.stage_sides(sides, compared=True)
                if not counts and not staged:
                    if publication.repairs:
                        self._vouch(branches, heads["main"])
                    return counts
                named = sides | (branches.write(difference, heads, sides) if counts else staged)
                branches.share(difference, heads, named)
                if branches.move(heads, named):
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

    def _vouch(self, branches: PublicationBranches, head: int) -> None:
        """Write down that the table is as this run would have left it."""

        def vouch() -> None:
            self._java().updateProperties().set(PROPERTY, branches.state_at(head)).commit()

        retried(vouch)

    def _refuse_rival(self, run_id: str) -> None:
        raise CatalogError(
            f"run {run_id} has published windows of the same range meanwhile",
            self.table,
            "Nothing was published; run again to compare with what is there now.",
        )

    def _sides(self) -> dict[Side, int]:
        """The published snapshots of the side tables."""
        return published_sides(dict(self._java().properties()))

    def follow(self, branch: str | None = None) -> None:
        """Bring `main` of the side tables to what the windows name; drop the `branch` of whoever published."""
        sides = self._sides()
        for side in Side:
            SideTable(self._spark, self.table, side).follow(sides.get(side), branch)

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

    def vouch_as_it_is(self) -> None:
        """Name the present snapshots as the published ones, after this process has deleted rows of them."""
        table, named = self._java(), {}
        state, head = published_state(table), table.currentSnapshot()
        if state is not None:
            named[PROPERTY] = replace(state, head=head.snapshotId(), sequence=head.sequenceNumber()).to_json()
        for side in self._sides():
            snapshot = SideTable(self._spark, self.table, side).head()
            if snapshot is not None:
                named[side.property] = str(snapshot)
        if not any(set_properties(self._spark, self._java(), named) for _ in range(_ATTEMPTS)):
            raise CatalogError("other programs keep changing the table", self.table, "Try again in a minute.")
        self.follow()

    def alter(self, change: str) -> None:
        """Carry out `ALTER TABLE ... <change>`, again if another process has changed the table meanwhile."""
        retried(lambda: self._spark.sql(f"ALTER TABLE {self.table} {change}"))

    def drop_branches(self, branch: str) -> None:
        """Drop what a process that was killed while it published has left; `branch`: see `Publication`."""
        drop_branches(self._spark, self.table, branch)

    def _refs(self) -> dict[str, int]:
        return heads_of(self._java())

    def _java(self) -> JavaObject:
        """Iceberg's own handle of the table, as it is now."""
        return loaded_iceberg_table(self._spark, self.table)


def _is_as_published(table: JavaObject, state: PublishedState) -> bool:
    return foreign_commits(table, state.head, state.sequence) is None
