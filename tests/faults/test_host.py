"""The host around a night: a disk that is full from a step on, and a clock that jumps by an hour at a step.

Whatever happens, the night ends well or with one sentence; the same night again gives the tables of one that nobody
disturbed, and no claim is left behind.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.errors import RewindowError
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.life.status import RunStatus
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.session import spark_session
from tests.faults.boundaries import STEPS, watched_steps
from tests.runs.small_nights import log_of, pipeline, tables_of
from tests.runs.small_runs import write
from tests.services.small_disk import fill, small_file_system

BEFORE = list(dict.fromkeys(f"before {name.lstrip('_')}" for _, name in STEPS))
ENDED = {RunStatus.PUBLISHED, RunStatus.FAILED, RunStatus.ABANDONED}


@pytest.fixture(scope="module")
def right(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The tables after two nights that nobody disturbs."""
    folder = tmp_path_factory.mktemp("undisturbed")
    defined = _first_night(spark, folder, "undisturbed_host")
    reconcile(spark, defined, NoProgress())
    return tables_of(spark, defined)


def _first_night(spark: SparkSession, folder: Path, name: str):
    """A pipeline with one night behind it, and records of the next."""
    records = log_of(23, count=120)
    defined = pipeline(folder, name, "sliding, lateness, frozen")
    write(folder / "data", records[:60], "part-0.json")
    reconcile(spark, defined, NoProgress())
    write(folder / "data", records[60:], "part-1.json")
    return defined


def _disturbed(
    spark: SparkSession,
    folder: Path,
    right: list[list[str]],
    disturb: Callable[[str], None],
    heal: Callable[[], object] = lambda: None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> RewindowError | None:
    """A night in which `disturb` is called at each step, and what must be true after it and a repetition."""
    defined = _first_night(spark, folder, f"disturbed_{folder.name}".replace("-", "_"))
    problem = None
    try:
        with watched_steps(disturb):
            reconcile(spark, defined, NoProgress(), now=now)
    except RewindowError as said:
        problem = said
    finally:
        heal()
    for _ in range(2):
        reconcile(spark, defined, NoProgress(), now=now)
        assert tables_of(spark, defined) == right
    statuses = [row["status"] for row in Ledger(spark, Tables.of(defined)).runs().collect()]
    assert statuses.count(RunStatus.PUBLISHED) == 2, "nothing is published twice"
    assert set(statuses) <= ENDED, "no claim is left behind"
    return problem


@pytest.mark.long
@pytest.mark.parametrize("step", BEFORE)
def test_a_disk_that_is_full_from_a_step_on_loses_nothing(tmp_path: Path, right: list[list[str]], step: str) -> None:
    with small_file_system(tmp_path / "disk", mebibytes=16) as disk:
        session = spark_session("tests", home=disk)
        filler = disk / "filler"

        def boundary(name: str) -> None:
            if name == step and not filler.exists():
                fill(filler)

        problem = _disturbed(session, tmp_path, right, boundary, lambda: filler.unlink(missing_ok=True))
        if problem is not None:
            assert "the disk is full" in str(problem) and "\n" not in str(problem) and problem.hint


@pytest.mark.long
@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("step", BEFORE)
def test_a_clock_that_jumps_by_an_hour_changes_nothing(
    spark: SparkSession, tmp_path: Path, right: list[list[str]], step: str, hours: int
) -> None:
    jumped = timedelta(0)

    def boundary(name: str) -> None:
        nonlocal jumped
        if name == step:
            jumped = timedelta(hours=hours)

    assert _disturbed(spark, tmp_path, right, boundary, now=lambda: datetime.now(UTC) + jumped) is None
