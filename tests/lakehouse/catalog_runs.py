"""What every catalog must do: a run is published as a whole, once, by one of two rivals, also after a kill.

In this process with a session of the catalog, or as a process of its own: `python -m tests.lakehouse.catalog_runs
FOLDER`, with the catalog in `REWINDOW_CATALOG_CONF`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import load_pipeline
from spark_jobs.definition.output import Policy
from spark_jobs.errors import CatalogError, RunStateError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.probe import check_branches
from spark_jobs.lakehouse.side_tables import Side
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.life.reopening import publish_staged
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.progress import NoProgress
from tests.faults.boundaries import Stopped, stopped_at
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline
from tests.runs.small_runs import write


def dropped_and_missed(spark: SparkSession, tables: Tables) -> tuple[int, int]:
    """The dropped pairs of the windows, and those of the late records that the windows name."""
    dropped = spark.table(tables.windows).agg({"records_dropped": "sum"}).collect()[0][0]
    rows = spark.sql(f"SHOW TBLPROPERTIES {tables.windows} ('{Side.LATE.property}')").collect()
    late = spark.sql(f"SELECT sum(windows_missed) FROM {tables.late} VERSION AS OF {rows[0]['value']}")
    return dropped, late.collect()[0][0]


def check_catalog_runs(spark: SparkSession, folder: Path) -> None:
    check_branches(spark)
    records = log_of(17, count=160)
    write(folder / "data", records[:100], "part-0.json")
    defined = pipeline(folder, "any_catalog", "tumbling, per event")
    tables = Tables.of(defined)
    first = execute(spark, defined, make_plan(spark, defined), NoProgress())
    assert first.counts.records_late > 0 and first.changes == {"inserted": first.counts.windows}
    write(folder / "data", records[100:], "part-1.json")
    with stopped_at(name="after move"), pytest.raises(Stopped):
        reconcile(spark, defined, NoProgress())
    assert len(set(dropped_and_missed(spark, tables))) == 1, "windows and late records are of one run"

    path = folder / "any_catalog.yaml"
    path.write_text(path.read_text().replace("sum(v)", "sum(v) + 1"))
    changed = load_pipeline(path)
    waiting = EndPolicy(policy=Policy.ON_APPROVAL)
    rivals = [execute(spark, changed, make_plan(spark, changed), NoProgress(), end_policy=waiting) for _ in range(2)]
    publish_staged(lambda _: spark, rivals[0].run_id, NoProgress(), "first")
    with pytest.raises(CatalogError, match="has published windows of the same range meanwhile"):
        publish_staged(lambda _: spark, rivals[1].run_id, NoProgress(), "second")
    statuses = {row["run_id"]: row["status"] for row in Ledger(spark, tables).runs().collect()}
    assert sorted(statuses.values()) == ["failed", "published", "published", "published"], statuses
    with pytest.raises(RunStateError):
        Ledger(spark, tables).change(first.run_id, _refuse)
    later = datetime.now(UTC) + timedelta(days=1)
    maintain(spark, changed, NoProgress(), now=later, keep_snapshots=timedelta(0))
    assert len(set(dropped_and_missed(spark, tables))) == 1
    assert_history_is_whole(spark, changed)
    refs = {row[0] for row in spark.sql(f"SELECT name FROM {tables.windows}.refs").collect()}
    assert refs == {"main", "revisions"}


def _refuse(_: object) -> dict:
    raise RunStateError("not this one", "a test")


if __name__ == "__main__":
    from spark_jobs.spark.session import spark_session

    session = spark_session("catalogs", master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    check_catalog_runs(session, Path(sys.argv[1]))
    session.stop()
