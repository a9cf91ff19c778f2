"""Hosts whose clocks differ: whether a process works on a run is seen by its signs of life, not by their times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest

from spark_jobs.definition.policy import Policy
from spark_jobs.errors import HistoryError, RunStateError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.backfill import EndPolicy, execute
from spark_jobs.runs.documents import Outcome
from spark_jobs.runs.lifecycle import Event, RunLife
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress
from spark_jobs.runs.recovery import recover
from spark_jobs.runs.status import RunStatus
from spark_jobs.runs.store import RunStore
from tests.runs.small_runs import pipeline, record, write

ELSEWHERE = "elsewhere/1/2:7:8"
WATCHED = timedelta(seconds=6)


def now() -> datetime:
    return datetime.now(UTC)


@contextmanager
def working_elsewhere(ledger: Ledger, run_id: str, clock: timedelta) -> Iterator[None]:
    """A process of another host, whose clock differs by `clock`, gives signs of life."""
    attempt = (ledger.row(run_id) or {})["attempt"]
    life = RunLife(
        ledger, run_id, attempt, now=lambda: now() + clock, process=ELSEWHERE, heartbeat=timedelta(seconds=0.5)
    )
    with life.beating():
        yield


def put(ledger: Ledger, run_id: str, status: str, at: datetime) -> None:
    """The run as a process of another host has left it."""
    columns = {"status": status, "process": ELSEWHERE, "heartbeat_at": at, "finished_at": None}
    ledger.change(run_id, lambda row: columns)


@pytest.mark.long
def test_a_host_with_another_clock_works_on_and_is_cleared_up_once_it_is_silent(spark, tmp_path) -> None:
    write(tmp_path / "data", [record(i) for i in range(60)])
    defined = pipeline(tmp_path, "clocks")
    tables = Tables.of(defined)
    execute(
        spark,
        defined,
        make_plan(spark, defined),
        NoProgress(),
        run_id="clocks",
        end_policy=EndPolicy(policy=Policy.ON_APPROVAL),
        in_stages=True,
    )
    ledger = Ledger(spark, tables)
    for clock in (timedelta(hours=-1), timedelta(days=2)):
        put(ledger, "clocks", "running", now() + clock)
        life = RunLife(ledger, "clocks", None, now=now, heartbeat=WATCHED)
        with working_elsewhere(ledger, "clocks", clock):
            assert recover(spark, tables, now(), heartbeat=WATCHED) == []
            with pytest.raises(RunStateError, match="another process works on this run: elsewhere"):
                life.apply(Event.BEGIN)
        assert (ledger.row("clocks") or {})["status"] == "running"
    assert recover(spark, tables, now(), heartbeat=timedelta(seconds=1)) == ["clocks"], "silent: it is gone"
    put(ledger, "clocks", "running", now() + timedelta(days=2))
    gone = RunLife(ledger, "clocks", None, now=now, heartbeat=timedelta(seconds=1))
    gone.apply(Event.BEGIN, attempt="another")
    assert (ledger.row("clocks") or {})["attempt"] == "another"


def test_a_run_that_fails_before_it_has_begun_says_why(spark, tmp_path) -> None:
    """An arrival that no calendar has, in microseconds for one: not that the ledger has no such run."""
    write(tmp_path / "data", [record(i) for i in range(60)])
    defined = pipeline(tmp_path, "never_begun")
    plan = make_plan(spark, defined).model_copy(update={"processing_time_end": 10**15})
    with pytest.raises(HistoryError, match="beyond the years 1 to 9999"):
        execute(spark, defined, plan, NoProgress(), run_id="never-begun")
    outcome = Outcome.read(RunStore.configured().folder("never-begun"))
    assert outcome is not None and outcome.status is RunStatus.FAILED
    assert "beyond the years" in outcome.message
