"""Snapshots of a real Iceberg table: the way back from one to another, and the rows of one."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import JavaObject, loaded_iceberg_table
from spark_jobs.spark.snapshots import rows_at, way_back


class Commits:
    """A table, and its snapshots by number: each commit has one, from 1."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.ids: list[int] = []
        spark.sql("CREATE NAMESPACE IF NOT EXISTS rewindow.snapshots")
        self.name = f"rewindow.snapshots.{name}"
        spark.sql(f"CREATE TABLE {self.name} (v INT) USING iceberg")
        self.spark = spark

    @property
    def table(self) -> JavaObject:
        return loaded_iceberg_table(self.spark, self.name)

    def commit(self, count: int) -> None:
        for _ in range(count):
            self.table.newFastAppend().commit()
            self.ids.append(self.table.currentSnapshot().snapshotId())

    def expire(self, *numbers: int) -> None:
        change = self.table.expireSnapshots()
        for number in numbers:
            change = change.expireSnapshotId(self.ids[number - 1])
        change.commit()

    def way(
        self, known: int | None, head: int | None = None, sequence: int | None = None
    ) -> tuple[list[int], bool | None]:
        way = way_back(
            self.table,
            None if known is None else self.ids[known - 1],
            None if head is None else self.ids[head - 1],
            sequence,
        )
        return [self.ids.index(snapshot.snapshotId()) + 1 for snapshot in way.later], way.is_past


@pytest.fixture(scope="module")
def commits(spark: SparkSession, rewindow_home: object) -> Commits:
    return Commits(spark, "numbered")


def test_a_snapshot_is_past_not_past_or_nobody_knows(commits: Commits) -> None:
    assert commits.way(None) == ([], True), "nothing was written yet"
    commits.commit(5)
    assert commits.way(5) == ([], True)
    assert commits.way(2) == ([5, 4, 3], True)
    assert commits.way(2, head=4) == ([4, 3], True)
    assert commits.way(None) == ([5, 4, 3, 2, 1], True), "all that ever was written is later than nothing"
    assert commits.way(5, head=4) == ([4, 3, 2, 1], False)

    commits.table.manageSnapshots().rollbackTo(commits.ids[2]).commit()
    commits.commit(1)
    assert commits.way(5) == ([6, 3, 2, 1], False), "it was rolled back"
    assert commits.way(3) == ([6], True)

    commits.expire(1, 2)
    assert commits.way(2) == ([6, 3], True), "its child names it"
    assert commits.way(1) == ([6, 3], None), "what came between has expired"
    assert commits.way(1, sequence=1) == ([6, 3], None)
    assert commits.way(1, sequence=4) == ([6, 3], False), "an expired past does not hold what came later"
    assert commits.way(5) == ([6, 3], False), "it is there, and its number says that it came later"
    assert commits.way(None) == ([6, 3], None)


def test_the_rows_of_a_snapshot_are_in_the_columns_of_today(spark: SparkSession, rewindow_home: object) -> None:
    table = Commits(spark, "renamed")
    spark.sql(f"ALTER TABLE {table.name} ADD COLUMN w INT")
    spark.sql(f"INSERT INTO {table.name} VALUES (1, 2)")
    snapshot = table.table.currentSnapshot().snapshotId()
    assert rows_at(spark, table.name, snapshot).collect() == [(1, 2)]
    for change in ("RENAME COLUMN v TO x", "ALTER COLUMN x TYPE BIGINT", "DROP COLUMN w", "ADD COLUMN w STRING"):
        spark.sql(f"ALTER TABLE {table.name} {change}")
    spark.sql(f"INSERT INTO {table.name} VALUES (3, 'c')")
    rows = rows_at(spark, table.name, snapshot)
    assert (rows.dtypes, rows.collect()) == ([("x", "bigint"), ("w", "string")], [(1, None)])
