"""Nights of sessions: only those that new records can reach are computed, and the tables are those of a full run."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.replay.engine import Replay
from spark_jobs.runs.night import sessions
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from spark_jobs.sources import spool
from tests.runs.accounts import check_account
from tests.runs.small_nights import TICKS, assert_history_is_whole, log_of, tables_of
from tests.runs.small_runs import BOUNDED, MINUTE, T0, record, write
from tests.runs.small_runs import pipeline as small_pipeline
from tests.sampling import IN_FULL, seeds


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
        assert (result.continued_from is None) == (night == 0) or "nothing has arrived" in result.note, result.note
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
