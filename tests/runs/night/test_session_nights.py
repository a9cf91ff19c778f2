"""Nights of sessions: what new records reach is computed, and the tables are those of a full run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import spool
from tests.runs.accounts import check_account
from tests.runs.night.shapes import sessions
from tests.runs.small_nights import AHEAD, assert_history_is_whole, log_of, reconciled_in_parts, tables_of
from tests.runs.small_runs import BOUNDED, MINUTE, T0, record, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.runs.streaming_nights import WrittenQuery, batches_of, defined, records_of
from tests.sampling import IN_FULL, seeds


def nights_and_one_run(spark: SparkSession, nightly: Pipeline, full: Pipeline, results: list[RunResult]) -> None:
    """The tables of the nights are those of one full run, and nights that computed everything say why."""
    whole = [one.note for one in results[1:] if one.continued_from is None]
    assert all(AHEAD in note for note in whole), whole
    with planned_records(spark, full) as (plan, planned):
        execute(spark, full, plan, LogProgress(), records=planned)
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert_history_is_whole(spark, nightly, ("pane",))


@pytest.mark.parametrize("seed", seeds(1, 30))
def test_every_night_of_sessions_ends_in_the_tables_of_a_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    records, draw = log_of(seed, 400 if IN_FULL else 200), random.Random(seed + 100)
    nights = draw.choice((1, 3)) if IN_FULL else 1
    cuts = sorted([*(draw.randrange(60, len(records) - 10) for _ in range(nights)), len(records)])
    nightly = sessions(tmp_path, f"sessions_{seed}", seed)
    results = reconciled_in_parts(spark, tmp_path, nightly, records, cuts)
    nights_and_one_run(spark, nightly, sessions(tmp_path, f"sessions_full_{seed}", seed), results)


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_every_night_of_a_querys_sessions_ends_in_the_tables_of_a_full_run(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    draw = random.Random(f"sessions of a query {seed}")
    records = records_of(draw, draw.randrange(100, 180))
    query = WrittenQuery(tmp_path, records, batches := batches_of(draw, records, 10_000))
    output, mode = ("session", draw.choice(("append", "complete")), "last"), draw.random()
    nightly = defined(query, f"query_sessions_{seed}", *output)
    results = list[RunResult]()
    for cut in [*sorted(draw.sample(range(2, len(batches)), 2)), len(batches)]:
        query.go_on(cut, pending=mode < 0.5, ahead=draw.choice((0, 7)))
        results.append(reconcile(spark, nightly, LogProgress()))
        check_account(results[-1])
    nights_and_one_run(spark, nightly, defined(query, f"query_sessions_full_{seed}", *output), results)


def test_a_night_reads_the_sessions_that_a_late_record_joins(spark, tmp_path, monkeypatch) -> None:
    """Ten sessions of two records, ten seconds long; a record in the middle of two of them makes one of both."""
    window = "window: {type: session, gap: 30 s}"
    defined = small_pipeline(tmp_path, "joined", window=window, watermark=BOUNDED, end="freeze")
    times = [T0 + number * MINUTE + second * 1000 for number in range(10) for second in (0, 10)]
    first = [record(i, k="a", t=at, a=at) for i, at in enumerate(times)]
    write(tmp_path / "data", first, "part-0.json")
    reconcile(spark, defined, LogProgress())
    write(tmp_path / "data", [record(20, k="a", t=T0 + 3 * MINUTE - 25_000, a=T0 + 20 * MINUTE)], "part-1.json")
    read: list[int] = []
    monkeypatch.setattr(Replay, "__enter__", lambda replay: (read.append(replay.history.records.count()), replay)[1])
    night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None
    assert read[0] == 7  # it, the two sessions that it joins, and the last one, which was open
    assert night.counts.records_late == 1
