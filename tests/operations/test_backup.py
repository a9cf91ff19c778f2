"""What docs/operations.md says of backup and restore, tried: a copy brought back, and the nights go on."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.nightly import reconcile
from spark_jobs.runs.progress import NoProgress
from spark_jobs.runs.store import RunStore
from spark_jobs.spark.session import spark_session
from tests.faults.boundaries import Stopped, stopped_at
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of, write

pytestmark = pytest.mark.long


def test_a_restored_copy_goes_on_with_what_has_arrived_since(spark, tmp_path: Path) -> None:
    """The copy is made while a run is at work; the warehouse and the run store first, the catalog last."""
    home, copy = tmp_path / "home", tmp_path / "copy"
    home.mkdir()
    session = spark_session("tests", home=home)
    store = RunStore(str(home / "runs"))
    records = log_of(5, count=200)
    write(tmp_path / "data", records[:100], "part-0.json")
    defined = pipeline(tmp_path, "backed_up", "tumbling, per event")
    reconcile(session, defined, NoProgress(), store=store)
    write(tmp_path / "data", records[100:], "part-1.json")
    with stopped_at(name="before move"), pytest.raises(Stopped):
        reconcile(session, defined, NoProgress(), store=store)
    for name in ("warehouse", "runs"):
        shutil.copytree(home / name, copy / name)
    shutil.copy(home / "catalog.db", copy / "catalog.db")
    reconcile(session, defined, NoProgress(), store=store)
    expected = tables_of(session, defined)

    shutil.rmtree(home)
    shutil.copytree(copy, home)
    session = spark_session("tests", home=home)
    tables = Tables.of(defined)
    done = maintain(session, defined, NoProgress(), now=datetime.now(UTC), store=store)
    assert len(done.abandoned) == 1, "the run that was at work"
    assert not session.sql("SHOW TABLES IN rewindow.nightly_tests LIKE 'backed_up__staging*'").collect()
    night = reconcile(session, defined, NoProgress(), store=store)
    assert night.continued_from is not None
    assert tables_of(session, defined) == expected
    assert_history_is_whole(session, defined)
    assert {row[0] for row in session.sql(f"SELECT name FROM {tables.windows}.refs").collect()} == {"main", "revisions"}
