"""Nights behind a deduplication: what new copies touch is computed, and the tables are those of a full run."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.deduplication import KEPT, FirstByProcessingTime, FirstByRowTime, without
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.night.affected import affected_windows
from spark_jobs.runs.night.duplicates import deciding_records
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan, planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import spool
from spark_jobs.spark.cached import CachedFrames
from tests.runs.accounts import check_account
from tests.runs.night.shapes import deduplicated, with_copies
from tests.runs.small_nights import (
    AHEAD,
    assert_history_is_whole,
    log_of,
    reconciled_in_parts,
    tables_of,
)
from tests.runs.small_runs import BOUNDED, MINUTE, T0, record, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.runs.streaming_nights import Planned, WrittenQuery, batches_of, defined, records_of
from tests.sampling import IN_FULL, seeds
from tests.tiers import turn


def _assert_copies_are_counted_once(nights: list[RunResult], whole_run: RunResult) -> None:
    """Each night that goes on counts the copies among new records; a full run counts all of them anew."""
    since = max(number for number, one in enumerate(nights) if one.continued_from is None)
    counted = [one.counts.records_duplicate for one in nights[since:]]
    assert sum(counted) == whole_run.counts.records_duplicate > 0, counted


@pytest.mark.parametrize("seed", seeds(1, 30))
def test_every_night_behind_a_deduplication_ends_in_the_tables_of_a_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    records = with_copies(random.Random(seed), log_of(seed, 350 if IN_FULL else 150))
    draw = random.Random(seed + 100)
    cuts = sorted([*(draw.randrange(60, len(records) - 10) for _ in range(draw.choice((1, 3)))), len(records)])
    nightly = deduplicated(tmp_path, f"copies_{seed}", seed)
    results = reconciled_in_parts(spark, tmp_path, nightly, records, cuts)
    whole = [one.note for one in results[1:] if one.continued_from is None]
    assert all("comes before one of its id" in note or AHEAD in note for note in whole), whole
    full = deduplicated(tmp_path, f"copies_full_{seed}", seed)
    whole_run = execute(spark, full, make_plan(spark, full), LogProgress())
    _assert_copies_are_counted_once(results, whole_run)
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert_history_is_whole(spark, nightly)


OF_QUERIES = (
    {"by": ["v"]},
    {"by": ["v"], "kind": "drop_duplicates"},
    {"by": ["v"], "kind": "drop_duplicates", "event_time": True},
    {"by": ["v"], "delays": [{"first_batch": 0, "delay": "40 s"}, {"first_batch": 4, "delay": "5 s"}]},
)
OUTPUTS = [("tumbling", "append", "last"), ("sliding", "update", "last"), ("sliding", "append", "last")]


@pytest.mark.parametrize("seed", seeds(1, 24))
def test_every_night_of_a_query_that_drops_duplicates_ends_in_the_tables_of_a_full_run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    if seed % 2:
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    draw = random.Random(f"copies of a query {seed}")
    records = with_copies(draw, records_of(draw, draw.randrange(100, 180)), without_time=0.1)
    query = WrittenQuery(tmp_path, records, batches := batches_of(draw, records, 10_000))
    case, kind = OUTPUTS[seed % len(OUTPUTS)], OF_QUERIES[seed % len(OF_QUERIES)]
    nightly = defined(query, f"query_copies_{seed}", *case, deduplicate=kind)
    cuts, results = [*sorted(draw.sample(range(2, len(batches)), 2)), len(batches)], list[RunResult]()
    for cut in cuts:
        query.go_on(cut, pending=draw.random() < 0.5, ahead=draw.choice((0, 7)))
        results.append(reconcile(spark, nightly, LogProgress()))
        check_account(results[-1])
    whole = [one.note for one in results[1:] if one.continued_from is None]
    assert all("for a late one" in note for note in whole), whole
    full = defined(query, f"query_copies_full_{seed}", *case, deduplicate=kind)
    with planned_records(spark, full) as (plan, planned):
        whole_run = execute(spark, full, plan, LogProgress(), records=planned)
    _assert_copies_are_counted_once(results, whole_run)
    assert tables_of(spark, nightly) == tables_of(spark, full), (case, kind, cuts)
    assert_history_is_whole(spark, nightly)


def test_a_copy_without_a_time_takes_the_place_of_a_late_record(spark: SparkSession, tmp_path: Path) -> None:
    """It is in time wherever the watermark is: the late one is a duplicate then, and no late record any more."""
    rows = ((1, 1, 0), (80, 80, 1), (82, 5, 2), (90, None, 2), (91, 91, 3))
    records = [
        {"p": 0, "o": o, "a": T0 + a * 1000, "k": "a", "t": None if t is None else T0 + t * 1000, "v": v}
        for o, (a, t, v) in enumerate(rows)
    ]
    planned = ((81, 0, 2), (82, 70, 2), (83, 70, 3), (95, 70, 5))
    batches = [Planned(T0 + at * 1000, T0 + mark * 1000 if mark else 0, (end, 0)) for at, mark, end in planned]
    query = WrittenQuery(tmp_path, records, batches)
    kind = {"by": ["v"], "kind": "drop_duplicates"}
    nightly = defined(query, "query_copy_without_time", "tumbling", "append", "last", deduplicate=kind)
    for until, late in ((3, 1), (4, 0)):
        query.go_on(until, pending=False, ahead=0)
        reconcile(spark, nightly, LogProgress())
        assert spark.table(Tables.of(nightly).late).count() == late
    full = defined(query, "query_copy_without_time_full", "tumbling", "append", "last", deduplicate=kind)
    with planned_records(spark, full) as (plan, planned_frame):
        execute(spark, full, plan, LogProgress(), records=planned_frame)
    assert tables_of(spark, nightly) == tables_of(spark, full)


def test_a_copy_touches_the_window_of_the_record_that_was_first(spark, tmp_path, monkeypatch) -> None:
    """A copy with another time, within the same id's: its own window stays empty, and other windows are not read."""
    one_minute = "window: {type: tumbling, size: 1 min}\ndeduplicate: {by: v, kind: processing_time}"
    defined = small_pipeline(tmp_path, "copy", window=one_minute, watermark=BOUNDED)
    first = [record(i, k="a", t=T0 + i * MINUTE, a=T0 + i * MINUTE) for i in range(8)]
    write(tmp_path / "data", first, "part-0.json")
    reconcile(spark, defined, LogProgress())
    write(tmp_path / "data", [record(8, k="a", v=1, t=T0 + 3 * MINUTE, a=T0 + 9 * MINUTE)], "part-1.json")
    read: list[int] = []
    monkeypatch.setattr(Replay, "__enter__", lambda replay: (read.append(replay.history.records.count()), replay)[1])
    night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None
    # The copy and its first; what is in the copy's window; the four that the last arrival may close.
    assert read[0] == 7
    assert not night.changes.get("updated")


DEDUPLICATIONS = {
    "processing time": FirstByProcessingTime(("v",)),
    "within": FirstByProcessingTime(("v",), 30_000, renews=True),
    "row time": FirstByRowTime(("v",), 30_000),
}


def closes(records: DataFrame, time: str, prefix: str) -> DataFrame:
    """A watermark ten seconds behind the clock."""
    close = F.col(time) + F.lit(10_000)
    return records.withColumns({f"{prefix}_{part}": close for part in ("arrival", "major", "minor")})


@pytest.mark.parametrize("name", DEDUPLICATIONS)
def test_windows_that_a_new_copy_changes_are_touched_and_records_with_their_ids_decide_them(
    spark, tmp_path, name: str
) -> None:
    """Many ids at once; what gets through of the whole log, and of what a night reads."""
    spec, deduplication = spec_of(small_pipeline(tmp_path, "touched"), [0, 1]), DEDUPLICATIONS[name]
    draw, rows = random.Random(turn()), []
    for number in range(1200):
        arrival = T0 + number * 1000
        of_these = number // 40 * 30 + draw.randrange(30)
        rows.append(("ab"[number % 2], of_these, arrival - draw.randrange(20_000), arrival, 0, number))
    columns = "k STRING, v BIGINT, rw_event_time BIGINT, rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT"
    records = spark.createDataFrame(rows, columns)
    old, new = records.where("rw_offset < 1180"), records.where("rw_offset >= 1180")
    before = SimpleNamespace(steps=SimpleNamespace(never_from=T0 + 1_179_000 - 10_000 + 1))

    def kept(some: DataFrame) -> set[tuple]:
        aside = deduplication.set_aside(some, None, closes)
        entering = without(some, aside).where(KEPT)
        return {(row["k"], row["rw_event_time"] // MINUTE * MINUTE, row["rw_offset"]) for row in entering.collect()}

    with CachedFrames() as cache:
        published = TimeRange(T0 - MINUTE, T0 + 1200 * 1000)
        touched = affected_windows(new, spec, before, published, cache)
        decide = kept(deciding_records(records, new, touched, spec, deduplication, cache))
        pairs = {(row["k"], row["window_start"]) for row in touched.pairs.collect()}
    whole, then = kept(records), kept(old)

    def is_touched(one: tuple) -> bool:
        return one[:2] in pairs or one[1] >= touched.recent.start

    assert whole - then and all(map(is_touched, whole ^ then))
    assert set(filter(is_touched, decide)) == set(filter(is_touched, whole))
    assert not all(map(is_touched, whole))
