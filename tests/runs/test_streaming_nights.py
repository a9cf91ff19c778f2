"""Nights of a Structured Streaming query, cut anywhere: the tables of one full run at the same end."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.definition import Pipeline
from spark_jobs.lakehouse.checkpoint_archive import archived_names
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning import kept_batches
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import spool
from tests.faults.boundaries import stopped_at
from tests.faults.forked import forked, kill_this_process
from tests.runs.small_nights import assert_history_is_whole, tables_of
from tests.runs.small_runs import T0
from tests.runs.streaming_nights import SECOND, Planned, WrittenQuery, batches_of, defined, records_of
from tests.sampling import first_of

CASES = [
    ("tumbling", "append", "last"),
    ("sliding", "update", "all"),
    ("sliding", "append", "last"),
    ("tumbling", "complete", "last"),
    ("tumbling", "update", "last"),
    ("tumbling", "append", "all"),
    ("sliding", "complete", "all"),
]


def full_run(spark: SparkSession, pipeline: Pipeline) -> RunResult:
    with planned_records(spark, pipeline) as (plan, records):
        return execute(spark, pipeline, plan, NoProgress(), records=records)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_batches_of_nights_that_are_killed_are_kept_once(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = random.Random(f"killed nights {seed}")
    records = records_of(draw, 90)
    query = WrittenQuery(tmp_path, records, batches_of(draw, records, 10 * SECOND))
    nightly = defined(query, f"streaming_killed_{seed}", "tumbling", "append", "last")
    cuts = [*sorted(draw.sample(range(2, len(query.batches)), 2)), len(query.batches)]

    def killed(at: int) -> None:
        with stopped_at(at, stop=kill_this_process):
            reconcile(spark, nightly, NoProgress())

    for cut in cuts:
        query.go_on(cut, pending=draw.random() < 0.5, ahead=5)
        forked(spark, partial(killed, draw.randrange(1, 50)))
        reconcile(spark, nightly, NoProgress())
        query.forget(2)
    kept = [row["file"] for row in spark.table(Tables.of(nightly).checkpoint).collect()]
    files = [f"{part}/{number}" for part in ("offsets", "commits") for number in range(len(query.batches))]
    assert sorted(kept) == sorted(files)
    query.remember()
    full = defined(query, f"streaming_killed_full_{seed}", "tumbling", "append", "last")
    full_run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full), cuts


@pytest.mark.parametrize("seed", first_of(range(42), 0))
def test_nights_of_a_query_end_in_the_tables_of_one_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    draw = random.Random(f"streaming nights {seed}")
    case = CASES[seed % len(CASES)]
    records = records_of(draw, draw.randrange(120, 240))
    batches = batches_of(draw, records, 10 * SECOND)
    query = WrittenQuery(tmp_path, records, batches)
    nightly = defined(query, f"streaming_{seed}", *case)
    cuts = [*sorted(draw.sample(range(2, len(batches)), draw.randrange(2, 4))), len(batches)]
    notes = []
    for number, cut in enumerate(cuts):
        query.go_on(cut, pending=draw.random() < 0.5, ahead=draw.choice((0, 0, 7)))
        result = reconcile(spark, nightly, NoProgress())
        notes.append(result.note)
        assert ("a full run" in result.note) == (number == 0), notes
        query.forget(draw.choice((1, 5, 100)))
    again = reconcile(spark, nightly, NoProgress())
    assert "nothing has arrived" in again.note
    full = defined(query, f"streaming_full_{seed}", *case)
    query.remember()
    full_run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full), (case, cuts, notes)
    if nightly.panes == "last":
        assert_history_is_whole(spark, nightly)


@pytest.mark.long
def test_a_night_of_batches_without_data_lets_windows_out_and_until_takes_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [
        {"p": p, "o": o, "a": T0 + a * SECOND, "k": "a", "t": T0 + t * SECOND, "v": 1}
        for p, o, a, t in ((0, 0, 1, 1), (1, 0, 80, 80), (0, 1, 82, 5), (0, 2, 90, 90))
    ]
    planned = [(81, 0, (1, 1)), (83, 70, (1, 1)), (85, 70, (2, 1)), (95, 70, (3, 1))]
    batches = [Planned(T0 + at * SECOND, T0 + mark * SECOND if mark else 0, ends) for at, mark, ends in planned]
    query = WrittenQuery(tmp_path, records, batches)
    nightly = defined(query, "streaming_no_data", "tumbling", "append", "last")

    def states() -> list[tuple]:
        rows = spark.table(nights[-1].tables.windows).orderBy("window_start").collect()
        return [(row["state"], row["records_on_time"], row["records_dropped"]) for row in rows]

    looks = []
    monkeypatch.setattr(kept_batches, "archived_names", lambda *its: looks.append(its) or archived_names(*its))
    query.go_on(1, pending=True, ahead=3)
    nights = [reconcile(spark, nightly, NoProgress())]
    assert len(looks) == 1, "a full night looks once which batches are kept"
    assert states() == [("open", 1, 0), ("open", 1, 0)]
    query.go_on(2, pending=False, ahead=3)
    nights.append(reconcile(spark, nightly, NoProgress()))
    assert states() == [("closed", 1, 0), ("open", 1, 0)]
    assert "compared only" in reconcile(spark, nightly, NoProgress(), until=T0 + 82 * SECOND).note
    assert states() == [("closed", 1, 0), ("open", 1, 0)]
    query.go_on(4, pending=False, ahead=0)
    nights.append(reconcile(spark, nightly, NoProgress(), until=T0 + 95 * SECOND))
    assert states() == [("closed", 1, 1), ("open", 1, 0)]
    assert "nothing has arrived" in reconcile(spark, nightly, NoProgress(), until=T0 + 95 * SECOND).note
    nights.append(reconcile(spark, nightly, NoProgress()))
    assert states() == [("closed", 1, 1), ("open", 2, 0)]
    first, *others = (night.note for night in nights)
    assert first.startswith("a full run") and not any(others)
    back = reconcile(spark, nightly, NoProgress(), until=T0 + 90 * SECOND)
    assert "compared only" in back.note
    assert states() == [("closed", 1, 1), ("open", 2, 0)]
