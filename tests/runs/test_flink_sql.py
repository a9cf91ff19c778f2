"""Runs of a Flink SQL job: chunks, ranges and nights give what the live job gave, record by record."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import HOUR
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.replay.defined_windows import losing_slices_of, slices_of, windows_of
from spark_jobs.replay.from_pipeline import strategy_of
from spark_jobs.runs.night.nightly import reconcile
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.runs.small_nights import log_of, tables_of
from tests.runs.small_runs import pipeline, run, write
from tests.sampling import one_of, seeds
from tests.sequential.flink import LiveJob, Record

SUBTASKS = "generator: lag, lag: 0 s, subtasks: [[0], [1]]"
MINUTES = "window: {type: tumbling, size: 1 min}"
SLIDING = "window: {type: sliding, size: 2 min, slide: 30 s}"


def job(tmp_path: Path, name: str, window: str = MINUTES, section: str = "{}") -> Pipeline:
    return pipeline(tmp_path, name, watermark=SUBTASKS, window=f"{window}\nflink_sql: {section}")


def in_time(defined: Pipeline, records: list[dict], *, loses: bool = True) -> Counter[tuple[int, int]]:
    """How many records the live job counts in each window, by the engine that takes one record at a time."""
    ordered = sorted(records, key=lambda r: (r["a"], r["p"], r["o"]))
    gathered = losing_slices_of(defined) if loses else None
    live = LiveJob(strategy_of(defined, [0, 1]), windows_of(defined), 0, slices=slices_of(defined), gathered=gathered)
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


@one_of(2, 0)
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


@one_of(2, 1)
def test_a_night_in_two_phases_gives_what_a_run_gives(spark, tmp_path: Path) -> None:
    records = log_of(8)
    nightly, full = job(tmp_path, "sql_nights"), job(tmp_path, "sql_full")
    for night, part in enumerate((records[:300], records[300:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        reconcile(spark, nightly, LogProgress())
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full)


def test_a_range_in_a_wall_clocks_time_gives_what_the_live_job_gave(spark, tmp_path: Path) -> None:
    records = slowly(log_of(9), 1_729_990_800_000 - 4 * HOUR)  # four hours before clocks in Berlin are put back
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


@one_of(2, 3)
def test_buffers_in_a_wall_clocks_time_are_looked_at_when_a_slice_ends_alone(spark, tmp_path: Path) -> None:
    records = slowly(log_of(9), 1_729_990_800_000 - 4 * HOUR)
    write(tmp_path / "data", records)
    window = "window: {type: tumbling, size: 1 h}"
    section = "flink_sql: {time_zone: Europe/Berlin}"
    defined = pipeline(tmp_path, "sql_looked_at", watermark=SUBTASKS, window=f"{window}\n{section}")
    run(spark, defined)
    assert counted(spark, defined) == in_time(defined, records)


def slowly(records: list[dict], began: int, factor: int = 60) -> list[dict]:
    """The records with so many times the time between them, from `began` on (epoch ms)."""
    first = records[0]["a"]
    return [r | {name: began + (r[name] - first) * factor for name in ("t", "a")} for r in records]


KOLKATA = "time_zone: Asia/Kolkata"
LOSING = [
    pytest.param("size: 1 h", f"{KOLKATA}, aggregation: one_phase", "", id="one_phase"),
    pytest.param("size: 1 h", KOLKATA, "", id="two_phases"),
    pytest.param("size: 90 min", KOLKATA, "", id="ninety", marks=pytest.mark.long),
    pytest.param(
        "size: 1 h, offset: 20 min", "windows: table_function", ', flink: "1.20.3"', id="offset", marks=pytest.mark.long
    ),
    pytest.param(
        "size: 1 d, time_zone: Asia/Shanghai", "windows: table_function", "", id="days", marks=pytest.mark.long
    ),
]


@pytest.mark.parametrize(("size", "section", "version"), LOSING)
def test_records_that_flink_itself_loses_are_lost_in_chunks_and_nights(
    spark, tmp_path: Path, size: str, section: str, version: str
) -> None:
    records = slowly(log_of(11), 1_709_290_800_000, 1000 if "1 d" in size else 60)
    name = f"sql_loses_{abs(hash((size, section)))}"
    options = {
        "watermark": SUBTASKS + version,
        "window": f"window: {{type: tumbling, {size}}}\nflink_sql: {{{section}}}",
    }
    whole, nightly = pipeline(tmp_path, name, **options), pipeline(tmp_path, f"{name}_nightly", **options)
    for night, part in enumerate((records[:300], records[300:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        reconcile(spark, nightly, LogProgress())
    run(spark, whole, chunks=3)
    assert tables_of(spark, nightly) == tables_of(spark, whole)
    wanted = in_time(whole, records)
    assert counted(spark, whole) == wanted
    assert wanted != in_time(whole, records, loses=False), "the records show nothing: Flink loses none of them"


@pytest.mark.long
def test_nights_of_subtasks_in_a_wall_clocks_time_give_what_one_run_gives(spark, tmp_path: Path) -> None:
    records = slowly(log_of(12), 1_729_990_800_000 - 4 * HOUR)
    window, section = "window: {type: sliding, size: 2 h, slide: 30 min}", "{time_zone: Europe/Berlin}"
    nightly, full = (job(tmp_path, f"sql_clock_{name}", window, section) for name in ("nights", "full"))
    for night, part in enumerate((records[:200], records[200:300], records[300:])):
        write(tmp_path / "data", part, f"part-{night}.json")
        reconcile(spark, nightly, LogProgress())
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full)
    assert counted(spark, full) == in_time(full, records)


BERLIN = "{time_zone: Europe/Berlin}"
SESSIONS = "window: {type: session, gap: 4 min}"


@one_of(2, 2)
def test_sessions_in_a_wall_clocks_time_are_those_of_the_live_job_in_chunks_and_ranges(spark, tmp_path: Path) -> None:
    records = slowly(log_of(14), 1_729_990_800_000 - 4 * HOUR)
    write(tmp_path / "data", records)
    defined = job(tmp_path, "sql_sessions", SESSIONS, BERLIN)
    run(spark, defined, chunks=3)
    wanted = in_time(defined, records)
    assert counted(spark, defined) == wanted
    utc = job(tmp_path, "sql_sessions_utc", SESSIONS, "{}")
    assert len(in_time(utc, records)) != len(wanted), "the records show nothing: no session joins over the change"
    starts = sorted(start for start, _ in wanted)
    part = job(tmp_path, "sql_sessions_part", SESSIONS, BERLIN)
    low, high = starts[len(starts) // 3], starts[2 * len(starts) // 3]
    execute(spark, part, make_plan(spark, part, start=low, end=high), LogProgress())
    assert counted(spark, part) == Counter({w: n for w, n in wanted.items() if low <= w[0] < high})


@pytest.mark.long
def test_windows_in_a_wall_clocks_time_stay_when_their_records_are_gone(spark, tmp_path: Path) -> None:
    records = slowly(log_of(15), 1_729_990_800_000 - 4 * HOUR)
    defined = job(tmp_path, "sql_gone", "window: {type: tumbling, size: 30 min}", BERLIN)
    for night, part in enumerate((records[:250], records[250:])):
        write(tmp_path / "data", part, f"part-{night}.json")
    reconcile(spark, defined, LogProgress())
    before = counted(spark, defined)
    (tmp_path / "data" / "part-0.json").unlink()
    later = records[-1] | {name: records[-1][name] + 6 * HOUR for name in ("a", "t")}
    write(tmp_path / "data", [later | {"o": records[-1]["o"] + 1}], "part-2.json")
    reconcile(spark, defined, LogProgress())
    after = counted(spark, defined)
    assert {window: after[window] for window in before} == before
    assert sum(after.values()) == sum(before.values()) + 1


ONE_PHASE = [
    ("Europe/Berlin", 1_729_990_800_000, MINUTES.replace("1 min", "30 min")),
    ("America/New_York", 1_730_613_600_000, "window: {type: sliding, size: 2 h, slide: 30 min}"),
    ("Europe/Berlin", 1_711_846_800_000, "window: {type: cumulative, size: 6 h, step: 1 h}"),
]


@pytest.mark.parametrize("seed", seeds(1, 12))
def test_nights_in_a_wall_clocks_time_go_on_and_end_in_the_tables_of_one_run(spark, tmp_path: Path, seed: int) -> None:
    zone, change, window = ONE_PHASE[seed % len(ONE_PHASE)]
    draw = random.Random(seed)
    records = slowly(log_of(20 + seed), change - draw.randrange(2, 7) * HOUR)
    section = f"{{aggregation: one_phase, time_zone: {zone}}}"
    options = {"watermark": SUBTASKS, "window": f"{window}\nflink_sql: {section}", "end": "freeze"}
    nightly, full = (pipeline(tmp_path, f"sql_nights_{name}_{seed}", **options) for name in ("each", "full"))
    cuts = sorted(draw.sample(range(100, 480), 2))
    for night, part in enumerate((records[: cuts[0]], records[cuts[0] : cuts[1]], records[cuts[1] :])):
        write(tmp_path / "data", part, f"part-{night}.json")
        result = reconcile(spark, nightly, LogProgress())
        assert bool(night) == bool(result.continued_from), result.note
    run(spark, full)
    assert tables_of(spark, nightly) == tables_of(spark, full)


def test_a_day_is_complete_when_the_wall_clock_has_passed_it(spark, tmp_path: Path) -> None:
    night = 1_709_337_600_000  # 2024-03-02T00:00Z, seven in the evening in New York
    records = slowly(log_of(16), night - 4 * HOUR, 40)
    write(tmp_path / "data", records)
    section = "{aggregation: one_phase, time_zone: America/New_York}"
    defined = job(tmp_path, "sql_day", MINUTES, section)
    reconcile(spark, defined, LogProgress())
    days = spark.table(f"{Tables.of(defined).windows}__complete").select("day", "is_complete").collect()
    assert [(str(day), is_complete) for day, is_complete in days] == [("2024-03-01", False)]
