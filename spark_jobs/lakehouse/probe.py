"""Whether the catalog can do what publishing needs: move two branches of a table, and set a property, in one commit."""

from __future__ import annotations

import re
import secrets

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.errors import CatalogError
from spark_jobs.lakehouse.tables import drop_table
from spark_jobs.spark.catalog import CATALOG
from spark_jobs.spark.gateway import loaded_iceberg_table
from spark_jobs.spark.java import java_reason

_NO_LOCK = re.compile("Failed to find lock|Failed to create lock|LockException|acquire the lock")
"""What Iceberg says where a Hive metastore does not lock the table that it commits to."""

NAMESPACE = f"{CATALOG}.rewindow_doctor"


def check_branches(spark: SparkSession) -> None:
    """Make a table of one column and no rows, commit to two branches of it at once, and drop it.

    Raises CatalogError where the catalog refuses a step, or where the commit has moved one branch and not the other.
    """
    table = f"{NAMESPACE}.probe_{secrets.token_hex(4)}"
    try:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
        spark.sql(f"CREATE TABLE {table} (n BIGINT) USING iceberg")
        try:
            _commit_to_two_branches(spark, table)
        finally:
            drop_table(spark, table)
            spark.sql(f"DROP NAMESPACE IF EXISTS {NAMESPACE}")
    except (PySparkException, Py4JError) as problem:
        if _NO_LOCK.search(str(problem)):
            raise CatalogError(
                f"the metastore gives no lock for a commit: {java_reason(problem)[:300]}",
                table,
                "Its database lacks the tables of locks (HIVE_LOCKS and others), which Hive's `schematool -initSchema` "
                "makes; or another process holds a lock: see `SHOW LOCKS` in Hive.",
            ) from problem
        raise CatalogError(
            f"the catalog cannot move two branches of a table in one commit: {java_reason(problem)[:300]}",
            table,
            "Readers could see a part of a run. Use another catalog: type=hive, type=rest or type=jdbc.",
        ) from problem


def _commit_to_two_branches(spark: SparkSession, table: str) -> None:
    iceberg = loaded_iceberg_table(spark, table)
    iceberg.newFastAppend().commit()
    iceberg.manageSnapshots().createBranch("revisions", iceberg.currentSnapshot().snapshotId()).commit()
    for branch, source in (("ours", "main"), ("history", "revisions")):
        iceberg.refresh()
        iceberg.manageSnapshots().createBranch(branch, iceberg.refs()[source].snapshotId()).commit()
        iceberg.newFastAppend().toBranch(branch).commit()
    iceberg = loaded_iceberg_table(spark, table)
    change = iceberg.newTransaction()
    move = change.manageSnapshots()
    for branch, source in (("main", "ours"), ("revisions", "history")):
        move = move.fastForwardBranch(branch, source)
    move.removeBranch("ours").removeBranch("history").commit()
    change.updateProperties().set("rewindow.probe", "1").commit()
    before = {name: ref.snapshotId() for name, ref in iceberg.refs().items()}
    change.commitTransaction()
    moved = loaded_iceberg_table(spark, table)
    after = {name: ref.snapshotId() for name, ref in moved.refs().items()}
    wanted = {"main": before["ours"], "revisions": before["history"]}
    if after != wanted or "rewindow.probe" not in dict(moved.properties()):
        raise CatalogError(
            "the catalog does not move two branches of a table in one commit",
            table,
            "Readers could see a part of a run. Use another catalog: type=hive, type=rest or type=jdbc.",
        )
