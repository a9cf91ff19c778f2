"""The tables beside the windows: late and quarantined records. They change in the commit that publishes the windows.

Iceberg commits one table at a time. So a run writes the future state of a side table on a branch of it, which readers
do not look at. The commit that publishes the windows names the snapshot of that state: in a property of the windows'
table, and in the summary of the windows' snapshot. From then on that state is the published one. `main` of the side
table follows at once; if the process is killed in between, with the next run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.lakehouse.commits import heads_of, may_be_in_past, retried
from spark_jobs.lakehouse.published_state import foreign_commits
from spark_jobs.lakehouse.tables import aligned, ensure_table
from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at

PUBLISHED_TAG = "published"
"""A tag on the published snapshot of a side table: it does not expire while the windows name it."""


class Side(StrEnum):
    """The side tables. The value is the suffix of the table's name."""

    LATE = "__late"
    QUARANTINE = "__quarantine"

    @property
    def property(self) -> str:
        """The property of the windows' table, and of its snapshots, that names the published snapshot of this table."""
        return f"rewindow.{self.value.strip('_')}-snapshot"


@dataclass(frozen=True)
class SideChange:
    """What a run changes in a side table: the rows that a condition in SQL selects go, `rows` come (None: none)."""

    side: Side
    rows: DataFrame | None
    replaced: str = "FALSE"


class SideTable:
    """A side table of the windows' table `windows`."""

    def __init__(self, spark: SparkSession, windows: str, side: Side) -> None:
        self._spark = spark
        self.side = side
        self.table = f"{windows}{side.value}"

    def exists(self) -> bool:
        return self._spark.catalog.tableExists(self.table)

    def stage(self, change: SideChange, published: int | None, branch: str, *, compared: bool = False) -> int | None:
        """Write the future state on `branch`; its snapshot. None: the table stays as it is.

        `published` is the snapshot that the windows name now. With `compared`, rows that are equal but for their run
        are no change.
        """
        if not self.exists() and change.rows is None:
            return None
        if change.rows is not None:
            ensure_table(self._spark, self.table, change.rows.schema)
        self.follow(published)
        table = self._java()
        if table.currentSnapshot() is None:
            table.newFastAppend().commit()  # a branch needs a snapshot to start from
            table = self._java()
        base = table.currentSnapshot().snapshotId()
        rows = None if change.rows is None else aligned(self._spark, self.table, change.rows)
        gone = rows_at(self._spark, self.table, base).where(change.replaced)
        is_empty = table.currentSnapshot().summary().get("total-records") == "0"
        replaces = change.replaced != "FALSE" and not is_empty and not gone.isEmpty()
        is_lost = published is not None and table.snapshot(published) is None
        if rows is None and not replaces:
            return base if is_lost else None
        if compared and rows is not None and _are_equal(gone.drop("run_id"), rows.drop("run_id")):
            return None
        retried(
            lambda: self._spark.sql(f"ALTER TABLE {self.table} CREATE OR REPLACE BRANCH {branch} AS OF VERSION {base}")
        )
        if replaces:
            retried(lambda: self._spark.sql(f"DELETE FROM {self.table}.branch_{branch} WHERE {change.replaced}"))
        if rows is not None:
            rows.writeTo(f"{self.table}.branch_{branch}").append()
        return heads_of(self._java())[branch]

    def follow(self, published: int | None, branch: str | None = None) -> None:
        """Bring `main` to the snapshot that the windows name, and drop `branch`. What is so already stays."""
        if not self.exists():
            return

        def follow() -> None:
            table = self._java()
            refs = heads_of(table)
            change, is_changed = table.manageSnapshots(), False
            if published is not None and table.snapshot(published) is not None:
                if not may_be_in_past(table, refs.get("main"), published):  # else `main` is there, compacted perhaps
                    change, is_changed = change.replaceBranch("main", published), True
                if refs.get(PUBLISHED_TAG) != published:
                    tag = change.replaceTag if PUBLISHED_TAG in refs else change.createTag
                    change, is_changed = tag(PUBLISHED_TAG, published), True
            if branch is not None and branch in refs:
                change, is_changed = change.removeBranch(branch), True
            if is_changed:
                change.commit()

        retried(follow)

    def foreign_change(self, published: int) -> str | None:
        """What somebody else has done since the snapshot `published` that the windows name; None: nothing.

        A rollback of `main` is none: `follow` brings it back.
        """
        if not self.exists():
            return f"{self.table} was dropped"
        table = self._java()
        if table.snapshot(published) is None:
            return f"{self.table} was made anew, or its published snapshot {published} has expired"
        head = table.currentSnapshot()
        if head is None or not may_be_in_past(table, head.snapshotId(), published):
            return None
        changed = foreign_commits(table, published)
        return None if changed is None else f"{self.table}: {changed}"

    def rewritten_since(self, published: int) -> int | None:
        """The snapshot of `main`, where it has the rows of the snapshot `published` in other files; else None."""
        table = self._java() if self.exists() else None
        head = None if table is None else table.currentSnapshot()
        if table is None or head is None or head.snapshotId() == published:
            return None
        return head.snapshotId() if foreign_commits(table, published) is None else None

    def head(self) -> int | None:
        """The snapshot of `main`; None where there is none."""
        snapshot = self._java().currentSnapshot() if self.exists() else None
        return None if snapshot is None else snapshot.snapshotId()

    def _java(self) -> JavaObject:
        return loaded_iceberg_table(self._spark, self.table)


def published_sides(properties: Mapping[str, str]) -> dict[Side, int]:
    """The published snapshots of the side tables, from the properties of the windows' table or of its snapshot."""
    return {side: int(properties[side.property]) for side in Side if side.property in properties}


def _are_equal(one: DataFrame, other: DataFrame) -> bool:
    """Whether both have the same rows, each as often."""
    columns = sorted(one.columns)
    signed = one.select(*columns, F.lit(1).alias("rw_sign")).unionByName(
        other.select(*columns, F.lit(-1).alias("rw_sign"))
    )
    names = [F.col(f"`{name}`") for name in columns]
    return signed.groupBy(*names).agg(F.sum("rw_sign").alias("rw_sum")).where("rw_sum <> 0").isEmpty()
