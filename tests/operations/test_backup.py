"""What docs/operations.md says of backup and restore, tried: a copy brought back, and the nights go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spark_jobs.lakehouse.tables import Tables
from spark_jobs.operations.maintain import maintain
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.session import spark_session
from tests.faults.boundaries import Stopped, stopped_at
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import write

pytestmark = pytest.mark.long

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def written(language: str) -> str:
    """What the page says in this language on backup and restore, word by word."""
    section = PAGE.read_text().partition("## Backup and restore")[2].partition("\n## ")[0]
    return section.partition(f"```{language}\n")[2].partition("```")[0]


def test_a_restored_copy_goes_on_with_what_has_arrived_since(spark, tmp_path: Path) -> None:
    """The copy is made while a run is at work; the warehouse and the run store first, the catalog last."""
    home, copy = tmp_path / "home", tmp_path / "backup"
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
    environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "REWINDOW_HOME": str(home)}
    subprocess.run(["bash", "-e", "-c", written("bash")], cwd=tmp_path, env=environment, check=True, timeout=60)
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

    # Another catalog takes the tables over, where they lie.
    where, begin, register = (statement.strip() for statement in written("sql").split(";")[:3])
    own = [row["tableName"] for row in session.sql("SHOW TABLES IN rewindow.nightly_tests").collect()]
    assert {"runs", "timeline_state", "backed_up", "backed_up__late", "backed_up__quarantine"} == set(own)

    def said(statement: str, table: str, file: str = "") -> str:
        return statement.replace("<namespace>", "nightly_tests").replace("<table>", table).replace("<file>", file)

    files = {table: session.sql(said(where, table)).collect()[0][0] for table in own}
    moved = tmp_path / "moved"
    moved.mkdir()
    session = spark_session("tests", home=moved)
    session.sql(said(begin, ""))
    for table, file in files.items():
        session.sql(said(register, table, file))
    assert tables_of(session, defined) == expected
    write(tmp_path / "data", log_of(5, count=220)[200:], "part-2.json")
    last = reconcile(session, defined, NoProgress(), store=store)
    assert last.continued_from == night.run_id
    assert_history_is_whole(session, defined)
