"""Runs of a Flink SQL job: chunks, ranges and nights give what the live job gave, record by record."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import HOUR
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.defined_windows import slices_of, windows_of
from spark_jobs.replay.from_pipeline import strategy_of
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_nights import log_of, tables_of
from tests.runs.small_runs import pipeline, run, write
from tests.sequential.flink import LiveJob, Record

SUBTASKS = "generator: lag, lag: 0 s, subtasks: [[0], [1]]"
MINUTES = "window: {type: tumbling, size: 1 min}"
SLIDING = "window: {type: sliding, size: 2 min, slide: 30 s}"


def job(tmp_path: Path, name: str, window: str = MINUTES, section: str = "{}") -> Pipeline:
    return pipeline(tmp_path, name, watermark=SUBTASKS, window=f"{window}\nflink_sql: {section}")


def in_time(defined: Pipeline, records: list[dict]) -> Counter[tuple[int, int]]:
    """How many records the live job counts in each window, by the engine that takes one record at a time."""
    ordered = sorted(records, key=lambda r: (r["a"], r["p"], r["o"]))
    live = LiveJob(strategy_of(defined, [0, 1]), windows_of(defined), 0, slices=slices_of(defined))
    given = [Record(r["p"], r["o"], r["a"], r["k"], r["t"]) for r in ordered]
    result = live.run(given, flush=True)
    found: Counter[tuple[int, int]] = Counter()
    for _, firing in result.firings:
        found[firing.window.start, firing.window.end] += firing.count
    return found


def counted(spark, defined: Pipeline) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for row in spark.table(Tables.of(defined).windows).where("n IS NOT NULL").collect():
        found[_ms(row["window_start"]), _ms(row["window_end"])] += row["n"]
    return found


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@pytest.mark.parametrize("window", [MINUTES, SLIDING], ids=["minutes", "sliding"])
def test_chunks_in_two_phases_give_what_the_live_job_gave(spark, tmp_path: Path, window: str) -> None:
    records = log_of(7)
    write(tmp_path / "data", records)
    name = f"sql_chunks_{window.count('slide')}"
    whole, cut = job(tmp_path, name, window), job(tmp_path, f"{name}_cut", window)
    run(spark, whole)
    run(spark, cut, chunks=5)
    assert tables_of(spark, whole) == tables_of(spark, cut)
    wanted = in_time(whole, records)
    assert counted(spark, whole) == wanted
    one = job(tmp_path, f"{name}_one", window, "{aggregation: one_phase}")
    assert in_time(one, records) != wanted, "the records show nothing: two phases give what one gives"


def test_a_night_in_two_phases_gives_what_a_run_gives(spark, tmp_path: Path) -> None:
    records = log_of(8)
    nightly, full = job(tmp_path, "sql_nights"), job(tmp_path, "sql_full")
    for night, part in enumerate((records[:300], records[300:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        reconcile(spark, nightly, LogProgress())
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full)


def test_a_range_in_a_wall_clocks_time_gives_what_the_live_job_gave(spark, tmp_path: Path) -> None:
    change = 1_729_990_800_000 - 4 * HOUR  # four hours before clocks in Berlin are put back
    drawn = log_of(9)
    began = drawn[0]["a"]
    records = [r | {name: change + (r[name] - began) * 60 for name in ("t", "a")} for r in drawn]
    write(tmp_path / "data", records)
    window = "window: {type: tumbling, size: 30 min}"
    defined = job(tmp_path, "sql_zone", window, "{time_zone: Europe/Berlin}")
    run(spark, defined, chunks=3)
    wanted = in_time(defined, records)
    assert counted(spark, defined) == wanted
    starts = sorted(start for start, _ in wanted)
    part = job(tmp_path, "sql_zone_part", window, "{time_zone: Europe/Berlin}")
    low, high = starts[len(starts) // 3], starts[2 * len(starts) // 3]
    execute(spark, part, make_plan(spark, part, start=low, end=high), LogProgress())
    assert counted(spark, part) == Counter({w: n for w, n in wanted.items() if low <= w[0] < high})


def records_start() -> int:
    return log_of(9)[0]["a"]
