"""Killed anywhere, and run again: the tables are those of a run that nobody disturbed.

A SIGKILL of driver and JVM costs the start of a JVM, so `make test` has few of them; the driver's Python alone is
killed at every twelfth boundary, and at a random moment. `make test-long` kills 120 JVMs, and Python at
every boundary.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.faults.boundaries import stopped_at
from tests.faults.forked import forked, kill_this_process
from tests.runs.small_nights import assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import write
from tests.sampling import IN_FULL, sample

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
KILLS = sample(2, 120)
"""Kills of a driver with its JVM."""
STEP = sample(12, 1)
"""The driver's Python is killed at the first boundary and at each that is a multiple of it further."""
MOMENTS = sample(1, 40)
"""Kills of the driver's Python at any moment."""
CASE = "tumbling, per event"


def child(yaml: Path, kill_at: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.faults.child", str(yaml), str(kill_at)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


@pytest.mark.timeout(sample(900, 4 * 3600))
def test_killed_anywhere_and_run_again_the_tables_are_those_of_an_undisturbed_run(
    spark: SparkSession, tmp_path
) -> None:
    draw = random.Random(20)
    records = log_of(11, count=40 * (KILLS + 4))
    defined = pipeline(tmp_path, "killed_nights", CASE)
    yaml = tmp_path / "killed_nights.yaml"
    batch = iter(range(0, len(records), 40))

    def night() -> None:
        start = next(batch)
        write(tmp_path / "data", records[start : start + 40], f"part-{start:06}.json")

    night()
    reconcile(spark, defined, NoProgress())
    night()
    first = child(yaml, 0)
    output, errors = first.communicate()
    boundaries = output.split("\n")[:-1]
    assert first.returncode == 0, errors
    assert len(boundaries) > 20

    killed = 0
    # Every boundary in turn, from a random one on; every fourth kill comes at any moment instead.
    offset = draw.randrange(len(boundaries))
    for number in range(KILLS):
        if number % 5 != 4:  # now and then two kills in a row find the same new records
            night()
        if IN_FULL and number % 4 == 3:
            process = child(yaml, 0)
            time.sleep(draw.uniform(2, 12))
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        else:
            process = child(yaml, 1 + (offset + number * 7) % len(boundaries))
            process.communicate()
        killed += process.returncode == -signal.SIGKILL
        windows = PublishedTable(spark, Tables.of(defined).windows)
        assert windows.current().select("k", "window_start").distinct().count() == windows.current().count()
    assert killed >= KILLS * 2 // 3

    night()
    reconcile(spark, defined, NoProgress())
    assert_as_if_undisturbed(spark, tmp_path, defined)


@pytest.mark.timeout(sample(1800, 4 * 3600))
def test_killed_at_boundaries_the_tables_are_those_of_an_undisturbed_run(spark, tmp_path) -> None:
    """And at any moment. Each run finds what all before it have left behind, and mostly new records."""
    records = log_of(12, count=12 * 120)
    defined = pipeline(tmp_path, "ended_nights", CASE)
    windows = PublishedTable(spark, Tables.of(defined).windows)
    batch = iter(range(0, len(records), 12))
    draw = random.Random(21)

    def arrive() -> None:
        start = next(batch)
        write(tmp_path / "data", records[start : start + 12], f"part-{start:06}.json")

    def night(kill_at: int = 0) -> list[str]:
        with stopped_at(kill_at, stop=kill_this_process) as passed:
            reconcile(spark, defined, NoProgress())
        return passed

    arrive()
    night()
    arrive()
    began = time.monotonic()
    boundaries = len(night())
    took = time.monotonic() - began
    ended = []
    chosen = range(1, boundaries + 1, STEP)
    for number, boundary in enumerate(chosen, start=1):
        if number % 5:  # now and then two kills in a row find the same new records
            arrive()
        ended.append(forked(spark, partial(night, boundary)))
    # A night that has less to clear up has fewer boundaries.
    assert ended.count(-signal.SIGKILL) > len(chosen) * 9 // 10 - 1, (1, ended)
    for _ in range(MOMENTS):
        arrive()
        ended.append(forked(spark, partial(night), draw.uniform(0, took)))
        assert windows.current().select("k", "window_start").distinct().count() == windows.current().count()
    assert ended.count(-signal.SIGKILL) > len(ended) * 8 // 10, (1, ended)
    arrive()
    night()
    assert_as_if_undisturbed(spark, tmp_path, defined)


def assert_as_if_undisturbed(spark: SparkSession, folder: Path, defined: Pipeline) -> None:
    """The tables are those of one full run, nothing is left behind, and the ledger is right."""
    windows = PublishedTable(spark, Tables.of(defined).windows)
    full = pipeline(folder, f"undisturbed_{defined.name}", CASE)
    execute(spark, full, make_plan(spark, full), NoProgress())
    assert tables_of(spark, defined) == tables_of(spark, full)
    assert_history_is_whole(spark, defined)
    assert not spark.sql(f"SHOW TABLES IN rewindow.nightly_tests LIKE '{defined.name}__staging*'").collect()
    refs = spark.sql(f"SELECT name FROM {Tables.of(defined).windows}.refs").collect()
    assert sorted(row[0] for row in refs) == ["main", "revisions"]
    ledger = Ledger(spark, Tables.of(defined)).runs().collect()
    statuses = {row["run_id"]: row["status"] for row in ledger}
    assert set(statuses.values()) <= {"published", "abandoned"}, [
        (r["run_id"], r["status"], r["reason"]) for r in ledger
    ]
    done = windows.published_runs()
    assert {run for run, status in statuses.items() if status == "published"} >= done
    assert all(status == "abandoned" for run, status in statuses.items() if run not in done), "the table runs is right"
