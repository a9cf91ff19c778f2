"""Nights of sessions: only those that new records can reach are computed, and the tables are those of a full run."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.night import sessions
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import spool
from spark_jobs.spark.cached import CachedFrames
from tests.runs.accounts import check_account
from tests.runs.small_nights import TICKS, assert_history_is_whole, log_of, tables_of
from tests.runs.small_runs import BOUNDED, MINUTE, T0, record, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.sampling import IN_FULL, seeds
from tests.tiers import turn

AHEAD = "the saved watermark state is ahead of new records"
"""Why a night may compute everything: a tick has come between records that arrived at one time."""


def drawn_sessions(tmp_path: Path, name: str, seed: int) -> Pipeline:
    """Sessions with a gap, a lateness and panes that the seed chooses."""
    draw = random.Random(seed)
    gap = draw.choice(("5 s", "15 s", "40 s"))
    lateness = draw.choice(("0 s", "0 s", "25 s"))
    defined = small_pipeline(
        tmp_path,
        name,
        end=draw.choice(("flush", "freeze")),
        window=f"window: {{type: session, gap: {gap}}}\nallowed_lateness: {lateness}",
        watermark=f"{BOUNDED}, {draw.choice(('emission: per_event', TICKS))}",
        aggregates="n: count(*), total: sum(v), top: max(v)",
        namespace="session_nights",
    )
    text = Path(defined.file).read_text()
    text += f"mode: {draw.choice(('both', 'faithful'))}\npanes: {draw.choice(('last', 'all'))}\n"
    Path(defined.file).write_text(text)
    return load_pipeline(defined.file)


@pytest.mark.parametrize("seed", seeds(1, 24))
def test_every_night_of_sessions_ends_in_the_tables_of_a_full_run(spark, tmp_path, monkeypatch, seed) -> None:
    if seed % 2:  # these nights read their files each time, as they do with large ones
        monkeypatch.setattr(spool, "SMALL_BYTES", 0)
    if seed % 3:  # sessions go on beyond what is read first
        monkeypatch.setattr(sessions, "_GAPS_IN_A_CELL", 1)
    records = log_of(seed, 500 if IN_FULL else 250)
    draw = random.Random(seed + 100)
    cuts = sorted([*(draw.randrange(60, len(records) - 10) for _ in range(draw.choice((1, 3)))), len(records)])
    nightly, done = drawn_sessions(tmp_path, f"sessions_{seed}", seed), 0
    for night, cut in enumerate(cuts):
        write(tmp_path / "data", records[done:cut], f"part-{night}.json")
        done = cut
        result = reconcile(spark, nightly, LogProgress())
        goes_on = result.continued_from is not None or night == 0
        assert goes_on or "nothing has arrived" in result.note or AHEAD in result.note, result.note
        check_account(result)
    full = drawn_sessions(tmp_path, f"sessions_full_{seed}", seed)
    execute(spark, full, make_plan(spark, full), LogProgress())
    assert tables_of(spark, nightly) == tables_of(spark, full)
    if "panes: last" in Path(nightly.file).read_text():
        assert_history_is_whole(spark, nightly)
    assert "nothing has arrived" in reconcile(spark, nightly, LogProgress()).note


def test_a_late_record_touches_the_sessions_that_it_joins_and_no_other(spark, tmp_path, monkeypatch) -> None:
    """Two closed sessions of `a` that it bridges; one of `b` at the same time, and an earlier one of `a`, stay."""
    defined = small_pipeline(tmp_path, "bridge", window="window: {type: session, gap: 30 s}", watermark=BOUNDED)
    at = [("a", 0), ("a", 60), ("a", 100), ("b", 70), ("c", 400), ("c", 401)]
    first = [
        record(i, k=k, t=T0 + s * 1000, a=T0 + s * 1000 + i) for i, (k, s) in enumerate(sorted(at, key=lambda r: r[1]))
    ]
    write(tmp_path / "data", first, "part-0.json")
    reconcile(spark, defined, LogProgress())
    late = [record(6, k="a", t=T0 + 80_000, a=T0 + 10 * MINUTE), record(7, k="c", t=T0 + 420_000, a=T0 + 10 * MINUTE)]
    write(tmp_path / "data", late, "part-1.json")
    read: list[int] = []
    monkeypatch.setattr(Replay, "__enter__", lambda replay: (read.append(replay.history.records.count()), replay)[1])
    night = reconcile(spark, defined, LogProgress())
    assert night.continued_from is not None
    assert read[0] == 6  # two of `a` and the late one; those of `c`, which were open, with theirs
    assert night.counts.records_late == 1  # it is in the complete session alone


def complete_sessions(times: list[tuple[int, bool]], gap: int) -> list[tuple[int, int, bool]]:
    """Start, end, and whether a new record is in it, of the sessions of one key."""
    found: list[tuple[int, int, bool]] = []
    for at, is_new in sorted(times):
        if found and at <= found[-1][1]:
            found[-1] = (found[-1][0], at + gap, found[-1][2] or is_new)
        else:
            found.append((at, at + gap, is_new))
    return found


@pytest.mark.parametrize("cell", [1, 8])
def test_all_sessions_that_new_records_reach_are_found_and_no_other(spark, tmp_path, monkeypatch, cell: int) -> None:
    """The histories of many keys at once: their sessions with a new record, and those that were not closed."""
    monkeypatch.setattr(sessions, "_GAPS_IN_A_CELL", cell)
    spec = spec_of(drawn_sessions(tmp_path, "reached", 4), [0])
    open_from, draw = T0 + 550_000, random.Random(turn())
    histories = {
        None if key == 0 else str(key): [
            (T0 + 1000 * draw.randrange(600 * (1 + key % 20)), draw.random() < 0.03)
            for _ in range(draw.randrange(1, 160))
        ]
        for key in range(200)
    }
    expected = {
        (key, start, end)
        for key, times in histories.items()
        for start, end, has_new in complete_sessions(times, gap=5000)
        if has_new or end >= open_from
    }
    rows = [(key, at, at, 0, n, new) for key, times in histories.items() for n, (at, new) in enumerate(times)]
    columns = "k STRING, rw_event_time BIGINT, rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT, is_new BOOLEAN"
    records = spark.createDataFrame(rows, columns)
    before = SimpleNamespace(steps=SimpleNamespace(never_from=open_from))
    with CachedFrames() as cache:
        old, new = records.where("NOT is_new"), records.where("is_new")
        found = sessions.affected_sessions(old, new, spec, before, TimeRange(T0, T0 + 1), cache)
        assert {tuple(row) for row in found.pairs.collect()} == expected
        inside = sessions.within_sessions(records, F.col("rw_event_time"), found.pairs, spec.keys).count()
    assert inside == sum(any(k == key and s <= at < e for k, s, e in expected) for key, at, *_ in rows)
    assert found.older == TimeRange(min(start for _, start, _ in expected), max(end for _, _, end in expected))
