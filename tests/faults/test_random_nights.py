"""Any arrivals, cut into nights anywhere, runs that are killed in the middle among them: the tables of one full run.

One example in `make test`; 50 in `make test-long`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.faults.boundaries import Stopped, stopped_at
from tests.faults.forked import forked, kill_this_process
from tests.runs.small_nights import CASES, assert_history_is_whole, log_of, pipeline, tables_of
from tests.runs.small_runs import T0, write
from tests.sampling import seeds

BOUNDARIES = 50
"""About as many as a night has; a number beyond its last stops nothing."""
WEEK = 7 * 24 * 3_600_000
CASE_NAMES = tuple(CASES)
SEEDS = seeds(1, 50)


def arrivals(draw: random.Random) -> list[dict]:
    """A log of two partitions: pauses up to a week, equal arrivals, keys that come once, records late by up to days."""
    count = draw.randrange(120, 260)
    paces = [draw.choice(((0, 1000), (500, 3000), (0, 60_000))) for _ in range(3)]
    share_late = draw.choice((0.0, 0.03, 0.2))
    rows, arrival, offsets = [], T0, [0, 0]
    for number in range(count):
        arrival += draw.randrange(*paces[number * 3 // count])
        if draw.random() < 0.01:
            arrival += draw.choice((600_000, WEEK))
        partition = 0 if draw.random() < 0.3 else draw.randrange(2)
        behind = draw.randrange(1, draw.choice((60_000, 900_000, 3 * WEEK // 7)))
        time = arrival - (behind if draw.random() < share_late else draw.randrange(0, 11_000))
        key = draw.choice(("a", "b", None, f"once {number}"))
        rows.append({"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": max(T0, time), "v": number})
        offsets[partition] += 1
    return rows


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_nights_end_in_the_tables_of_one_full_run(spark, tmp_path: Path, seed: int) -> None:
    draw = random.Random(f"nights {seed}")
    records = arrivals(draw)
    case = CASE_NAMES[seed % len(CASE_NAMES)]
    nightly = pipeline(tmp_path, f"random_{seed}", case)
    cuts = [*sorted(draw.sample(range(1, len(records)), draw.randrange(2, 4))), len(records)]
    done, stops, nights = 0, 0, [case]
    for number, cut in enumerate(cuts):
        write(tmp_path / "data", records[done:cut], f"part-{number}.json")
        # Not every night reads all that lies there.
        until = draw.choice(records[done:cut])["a"] if draw.random() < 0.3 and number < len(cuts) - 1 else None
        done = cut
        if draw.random() < 0.6 or (number == len(cuts) - 1 and not stops):
            stops += 1
            nights.append(f"night {number} until {until}, {_killed(spark, nightly, draw, until)}")
            if draw.random() < 0.4 and number < len(cuts) - 1:
                continue  # nobody runs it again; the next night does
        result = reconcile(spark, nightly, NoProgress(), until=until)
        nights.append(f"night {number} until {until}: {result.note or 'from ' + str(result.continued_from)}")
    reconcile(spark, nightly, NoProgress())
    full = pipeline(tmp_path, f"random_full_{seed}", case)
    execute(spark, full, make_plan(spark, full), NoProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full), nights
    assert_history_is_whole(spark, nightly)
    assert_all_is_settled(spark, nightly)


def _killed(spark, nightly: Pipeline, draw: random.Random, until: int | None) -> str:
    """A reconciliation in a process of its own, killed at a random boundary."""
    at = draw.randrange(1, BOUNDARIES)

    def night() -> None:
        with stopped_at(at, stop=kill_this_process):
            reconcile(spark, nightly, NoProgress(), until=until)

    return f"killed at boundary {at}, exit code {forked(spark, night)}"


def assert_all_is_settled(spark, defined: Pipeline) -> None:
    """No staging, no branch and no pending run is left."""
    tables = Tables.of(defined)
    left = spark.sql(f"SHOW TABLES IN rewindow.nightly_tests LIKE '{defined.output.table}__staging*'").collect()
    refs = spark.sql(f"SELECT name FROM {tables.windows}.refs").collect()
    assert not left and sorted(row[0] for row in refs) == ["main", "revisions"]
    statuses = {row["run_id"]: (row["status"], row["reason"]) for row in Ledger(spark, tables).runs().collect()}
    assert {status for status, _ in statuses.values()} <= {"published", "abandoned"}, statuses


@pytest.mark.parametrize("at", ["after move", "after drop"])
@pytest.mark.long
def test_a_full_run_that_ended_behind_its_commit_leaves_each_late_record_once(spark, tmp_path, at) -> None:
    """Another definition is a full run: its late records take the place of all that earlier runs wrote."""
    records = log_of(17, count=200)
    name = f"ended_{at.replace(' ', '_')}"
    write(tmp_path / "data", records[:100], "part-0.json")
    first = reconcile(spark, pipeline(tmp_path, name, CASE_NAMES[0]), NoProgress())
    assert first.counts.records_late > 0
    path = tmp_path / f"{name}.yaml"
    path.write_text(path.read_text().replace("bound: 10 s", "bound: 2 s"))
    changed = load_pipeline(path)
    with stopped_at(name=at), pytest.raises(Stopped):
        reconcile(spark, changed, NoProgress())
    write(tmp_path / "data", records[100:], "part-1.json")
    reconcile(spark, changed, NoProgress())
    full = tmp_path / f"{name}_full.yaml"
    full.write_text(path.read_text().replace(f"name: {name}", f"name: {name}_full"))
    whole = load_pipeline(full)
    execute(spark, whole, make_plan(spark, whole), NoProgress())
    assert tables_of(spark, changed) == tables_of(spark, whole)
    assert_all_is_settled(spark, changed)
