"""The branches on which a run writes the future states of the published tables, and the commit that makes them present.

One is the future `main`, one the future `revisions`. The new rows are written to the latter; both share the files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition.instants import format_instant
from spark_jobs.lakehouse.change import REMOVED
from spark_jobs.lakehouse.commits import fast_forward, heads_of, retried
from spark_jobs.lakehouse.difference import Difference
from spark_jobs.lakehouse.publication import FACTS, RANGE, REVISIONS, Publication
from spark_jobs.lakehouse.published_state import PROPERTY, RUN_ID, state_at
from spark_jobs.lakehouse.side_tables import Side, SideTable
from spark_jobs.lakehouse.tables import aligned, quoted, start_bounds
from spark_jobs.spark.cached import as_values, viewed
from spark_jobs.spark.gateway import JavaObject, elements, loaded_iceberg_table
from spark_jobs.spark.parallel import run_parallel

_IN_ONE_FILE = 10_000
"""So few windows go into one file: a night's would otherwise leave one for each task."""


class _Superseded(NamedTuple):
    """A view of the windows whose last revision ends, and their first and last start (epoch ms)."""

    view: str
    low: int
    high: int


@dataclass(frozen=True)
class PublicationBranches:
    """The branches of one publication in the table of windows."""

    spark: SparkSession
    table: str
    publication: Publication

    def write(self, difference: Difference, heads: dict[str, int], sides: dict[Side, int]) -> dict[Side, int]:
        """What changes, on branches of its own; the future snapshots of the side tables that change."""
        spark, table, changes = self.spark, self.table, difference.changes
        _, history = self._names
        self._branch_off(heads)
        written = changes.where(~F.col("rw_change").isin(*REMOVED)).select(*quoted(_changed_columns(changes)))
        if sum(difference.counts.values()) <= _IN_ONE_FILE:
            written = written.coalesce(1)
        with ExitStack() as views:
            ended = self._superseded(changes, views) if difference.supersedes else None
            steps: list[Callable[[], object]] = [lambda: self.stage_sides(sides)]
            if ended is not None:
                steps.append(lambda: self._take_out(ended))

            def add_revisions() -> None:
                # One after the other: Iceberg refuses a MERGE into a branch that changes meanwhile.
                if ended is not None:
                    self._end_revisions(ended)
                self.append(aligned(spark, table, written), history)

            return run_parallel(spark, *steps, add_revisions)[0]

    def _branch_off(self, heads: dict[str, int]) -> None:
        """Make the branches of a publication in one commit, or bring them back to where they begin."""
        ours, history = self._names

        def branch_off() -> None:
            table = self._java()
            there, change = {name for name, _ in table.refs().items()}, table.manageSnapshots()
            for name, source in ((ours, "main"), (history, REVISIONS)):
                make = change.replaceBranch if name in there else change.createBranch
                change = make(name, heads[source])
            change.commit()

        retried(branch_off)

    def share(self, difference: Difference, heads: dict[str, int], sides: dict[Side, int]) -> None:
        """Both future states: the same files belong to them, what is written once is read from either.

        Without changes `main` gets a snapshot that names the side tables' snapshots, and no more.
        """
        ours, history = self._names
        if not difference.counts:
            self._branch_off(heads)
            self.share_append(None, ours, sides)
            return
        self.share_append(history, ours, sides)
        if any(difference.counts.get(change) for change in REMOVED):
            retracted = difference.changes.where(F.col("rw_change").isin(*REMOVED))
            retracted = retracted.select(*quoted(_changed_columns(retracted)))
            self.append(aligned(self.spark, self.table, retracted), history)

    def stage_sides(self, sides: dict[Side, int], *, compared: bool = False) -> dict[Side, int]:
        """Stage the side tables' future states; their snapshots, without those of tables that stay as they are."""
        found = {
            change.side: SideTable(self.spark, self.table, change.side).stage(
                change, sides.get(change.side), self.publication.branch, compared=compared
            )
            for change in self.publication.sides
        }
        return {side: snapshot for side, snapshot in found.items() if snapshot is not None}

    def _take_out(self, ended: _Superseded) -> None:
        """Take the superseded windows from the future `main`."""
        ours, _ = self._names
        merge = f"MERGE INTO {self.table}.branch_{ours} t USING {ended.view} s ON {self._same(ended)}"
        self.spark.sql(f"{merge} WHEN MATCHED THEN DELETE")

    def _end_revisions(self, ended: _Superseded) -> None:
        """End the revisions of the superseded windows in the future `revisions`."""
        _, history = self._names
        last = f"{self._same(ended)} AND t.valid_to IS NULL"
        merge = f"MERGE INTO {self.table}.branch_{history} t USING {ended.view} s ON {last}"
        self.spark.sql(f"{merge} WHEN MATCHED THEN UPDATE SET valid_to = s.valid_from")

    def _same(self, ended: _Superseded) -> str:
        same = " AND ".join(f"t.`{c}` <=> s.`{c}`" for c in self.publication.row_identity)
        if self.publication.repairs:  # somebody else may have written a row without a start
            return same
        low, high = (f"TIMESTAMP '{format_instant(bound)}'" for bound in (ended.low, ended.high))
        return f"t.window_start BETWEEN {low} AND {high} AND {same}"

    def _superseded(self, changes: DataFrame, views: ExitStack) -> _Superseded:
        """The windows whose last revision ends; the view of them is there until the end of `views`.

        A few go to every task in the plan; more are joined as Spark sees fit.
        """
        rows = changes.where("revision > 1 OR rw_change <> 'inserted'")
        rows = rows.select(*quoted(self.publication.row_identity), "valid_from")
        values = as_values(rows)
        rows = rows if values is None else values
        low, high = start_bounds(rows)
        return _Superseded(views.enter_context(viewed(rows)), low or 0, high or 0)

    def append(self, rows: DataFrame, branch: str) -> None:
        writer = rows.writeTo(f"{self.table}.branch_{branch}")
        for name, value in self._summary.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()

    def share_append(self, source: str | None, target: str, sides: dict[Side, int]) -> None:
        """Add the files of the last snapshot of the branch `source` to `target`; None: a snapshot without files."""
        table = self._java()
        append = table.newFastAppend().toBranch(target)
        for name, value in (self._summary | _named(sides)).items():
            append = append.set(name, value)
        if source is not None:
            for file in elements(table.snapshot(source).addedDataFiles(table.io())):
                append = append.appendFile(file)
        append.commit()

    def move(self, heads: dict[str, int], sides: dict[Side, int]) -> bool:
        """Move `main` and `revisions` together, and name the side tables' snapshots, in one commit.

        False if one of the branches is no longer where the difference was made.
        """
        ours, history = self._names
        ours_at = heads_of(self._java())[ours]

        def properties() -> dict[str, str]:
            return {PROPERTY: self.state_at(ours_at), **_named(sides)}

        branches = {"main": ours, REVISIONS: history}
        if fast_forward(self.spark, self.table, branches, heads, properties):
            return True
        drop_branches(self.spark, self.table, self.publication.branch)
        return False

    def state_at(self, head: int) -> str:
        """What the property `PROPERTY` says once the run is published, with `main` at `head`."""
        publication = self.publication
        columns = (*publication.columns, *FACTS.names)
        of_all = publication.is_everything
        return state_at(self._java(), head, publication.identity, columns, is_everything=of_all).to_json()

    @property
    def _names(self) -> tuple[str, str]:
        """The future `main`, and the future `revisions`."""
        return _branches(self.publication.branch)

    @property
    def _summary(self) -> dict[str, str]:
        span = self.publication.span
        return {RUN_ID: self.publication.run_id, RANGE: f"{span.start},{span.end}"}

    def _java(self) -> JavaObject:
        """Iceberg's own handle of the table, as it is now."""
        return loaded_iceberg_table(self.spark, self.table)


def drop_branches(spark: SparkSession, table: str, branch: str) -> None:
    """Drop what a process that was killed while it published has left; `branch`: see `Publication`."""
    for name in _branches(branch):
        retried(lambda: spark.sql(f"ALTER TABLE {table} DROP BRANCH IF EXISTS {name}"))  # noqa: B023
    for side in Side:
        SideTable(spark, table, side).follow(None, branch)


def _branches(name: str) -> tuple[str, str]:
    return name, f"{name}_revisions"


def _named(sides: dict[Side, int]) -> dict[str, str]:
    return {side.property: str(snapshot) for side, snapshot in sides.items()}


def _changed_columns(changes: DataFrame) -> list[str]:
    return [column for column in changes.columns if column != "rw_change"]
