"""The late records that belong to the published windows: at any moment, for a reader who knows Iceberg alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from spark_jobs.definition import load_pipeline
from spark_jobs.lakehouse.side_tables import Side
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.faults.boundaries import Stopped, stopped_at, watched_steps
from tests.runs.small_nights import log_of, pipeline
from tests.runs.small_runs import T0, write


def seen_by_a_reader(home: Path, table: str) -> tuple[str, int, int, set[str]]:
    """The newest snapshot, the dropped pairs of the windows, those of the late records, and the runs of the latter."""
    catalog = SqlCatalog("rewindow", uri=f"sqlite:///{home}/catalog.db", warehouse=f"{home}/warehouse")
    windows = catalog.load_table(table)
    dropped = sum(windows.scan().to_arrow()["records_dropped"].to_pylist())
    named = windows.properties.get(Side.LATE.property)
    if named is None:
        return str(windows.metadata.current_snapshot_id), dropped, 0, set()
    late = catalog.load_table(f"{table}__late").scan(snapshot_id=int(named)).to_arrow()
    missed = sum(late["windows_missed"].to_pylist())
    return str(windows.metadata.current_snapshot_id), dropped, missed, set(late["run_id"].to_pylist())


@pytest.mark.long
def test_windows_and_late_records_are_of_one_state_at_every_step_of_a_run(spark, tmp_path, rewindow_home) -> None:
    """Runs that replace what is there, a night that adds to it, one that changes nothing; each may end at any step."""
    records = log_of(17, count=200)
    write(tmp_path / "data", records[:120], "part-0.json")
    first = pipeline(tmp_path, "one_state", "tumbling, per event")
    tables, states = Tables.of(first), []

    def look(boundary: str) -> None:
        if spark.catalog.tableExists(tables.windows) and not boundary.endswith("prepare"):
            states.append((boundary, *seen_by_a_reader(rewindow_home, "nightly_tests.one_state")))

    with watched_steps(look):
        assert reconcile(spark, first, NoProgress()).counts.records_late > 0
        write(tmp_path / "data", records[120:], "part-1.json")
        reconcile(spark, first, NoProgress())
        path = tmp_path / "one_state.yaml"
        path.write_text(path.read_text().replace("bound: 10 s", "bound: 2 s"))
        changed = load_pipeline(path)
        with stopped_at(name="after move"), pytest.raises(Stopped):
            reconcile(spark, changed, NoProgress())
        look("killed behind the commit")
        killed = spark.table(tables.windows).agg({"run_id": "max"}).collect()[0][0]
        assert spark.table(tables.late).where(f"run_id = '{killed}'").isEmpty(), "main of the late table follows later"
        reconcile(spark, changed, NoProgress())
        look("recovered")
    assert all(dropped == missed for _, _, dropped, missed, _ in states), states
    assert len({snapshot for _, snapshot, *_ in states}) >= 4
    assert spark.table(tables.late).select("run_id").distinct().count() == 1
    for side in (tables.late, tables.quarantine):
        refs = {row[0] for row in spark.sql(f"SELECT name FROM {side}.refs").collect()}
        assert refs <= {"main", "published"}


@pytest.mark.long
def test_a_repeated_run_leaves_the_late_records_and_the_table_as_they_are(spark, tmp_path) -> None:
    write(tmp_path / "data", log_of(17, count=120), "part-0.json")
    defined = pipeline(tmp_path, "repeated_late", "tumbling, per event")
    execute(spark, defined, make_plan(spark, defined), NoProgress())
    tables = Tables.of(defined)

    def snapshots() -> list[int]:
        return [spark.sql(f"SELECT * FROM {t}.snapshots").count() for t in (tables.windows, tables.late)]

    before, rows = snapshots(), spark.table(tables.late).collect()
    assert rows
    assert not execute(spark, defined, make_plan(spark, defined), NoProgress()).changes
    assert snapshots() == before and spark.table(tables.late).collect() == rows


@pytest.mark.long
def test_a_night_after_a_run_over_a_part_of_the_range_has_each_late_record_once(spark, tmp_path) -> None:
    """The run over a part has read what arrived; to the night, which goes on from the last whole run, it is new."""
    records = log_of(17, count=200)
    write(tmp_path / "data", records[:100], "part-0.json")
    defined = pipeline(tmp_path, "part_and_night", "tumbling, per event")
    reconcile(spark, defined, NoProgress())
    write(tmp_path / "data", records[100:], "part-1.json")
    part = execute(spark, defined, make_plan(spark, defined, end=T0 + 2 * 60_000), NoProgress())
    assert not spark.table(Tables.of(defined).late).where(f"run_id = '{part.run_id}'").isEmpty()
    assert reconcile(spark, defined, NoProgress()).continued_from is not None
    late = spark.table(Tables.of(defined).late)
    positions = [tuple(row) for row in late.select("partition", "offset").collect()]
    assert len(positions) == len(set(positions))
    dropped = spark.table(Tables.of(defined).windows).agg({"records_dropped": "sum"}).collect()[0][0]
    assert late.agg({"windows_missed": "sum"}).collect()[0][0] == dropped
