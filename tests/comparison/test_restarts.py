"""A restarted job's watermark begins from nothing: what was closed stays closed, the rest closes later."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.work.progress import NoProgress
from tests.comparison.flink_restarts import LATENESS, RestartedJob, log_of
from tests.runs.small_runs import BOUNDED, definition_text, write
from tests.sampling import first_of, in_turn, seeds

SIZE, BOUND = 10, 4
STRATEGY = WatermarkStrategy(BoundedOutOfOrderness(BOUND), partitions=(0, 1), subtasks=((0, 1),))


def small_log(seed: int) -> list[tuple[int, int, int, int]]:
    """(partition, offset, arrival, event time), in order of arrival."""
    dice = random.Random(seed)
    offsets = [0, 0]
    records = []
    for i in range(60):
        partition = dice.randrange(2)
        records.append((partition, offsets[partition], 1000 + i, max(0, i + dice.randint(-12, 6))))
        offsets[partition] += 1
    return records


def in_time_by_hand(records, restarts) -> dict[int, tuple[int, int]]:
    """By window start: records in time and records dropped, one record after the other."""
    closed: set[int] = set()
    counts: dict[int, tuple[int, int]] = {}
    highest: dict[int, int] = {}
    pending = list(restarts)
    for partition, _, arrival, ts in records:
        while pending and pending[0] <= arrival:
            pending.pop(0)
            highest = {}
        start = ts - ts % SIZE
        kept, dropped = counts.get(start, (0, 0))
        counts[start] = (kept, dropped + 1) if start in closed else (kept + 1, dropped)
        highest[partition] = max(highest.get(partition, -1), ts)
        if len(highest) == 2:
            watermark = min(highest.values()) - BOUND - 1
            closed |= {s for s in range(0, 100, SIZE) if s + SIZE - 1 <= watermark}
    return counts


@pytest.mark.parametrize(
    ("seed", "restarts"), first_of([(1, (1030,)), (2, (1015, 1040)), (3, (990, 1059)), (4, (1020, 1021))], 2)
)
def test_windows_around_restarts_are_as_one_record_after_the_other_gives_them(spark, seed, restarts) -> None:
    records = small_log(seed)
    schema = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT"
    frame = spark.createDataFrame(records, schema)
    spec = ReplaySpec(FLINK, STRATEGY, TumblingWindows(SIZE), 0, (), {"n": "count(*)"}, flush=False, restarts=restarts)
    with Replay(History(frame, TimeRange(0, 100), 1059), spec) as replay:
        rows = replay.windows(TimeRange(0, 100)).select(
            "window_start", F.col("records_on_time") + F.col("records_late"), "records_dropped"
        )
        ours = {row[0]: (row[1], row[2]) for row in rows.collect()}
    assert ours == in_time_by_hand(records, restarts)


SCHEMA = pa.schema(
    {
        "k": pa.string(),
        **dict.fromkeys(("s", "e", "n", "total", "at", "number"), pa.int64()),
        "last": pa.map_(pa.int32(), pa.int64()),
    }
)
LIVE = """
live:
  source: {{kind: files, path: {folder}, format: parquet}}
  window: {{start: s, end: e, unit: ms}}
  pane: number
  emitted_at: at
  emitted_at_unit: ms
  restarts: [{restarts}]
{evidence}
"""


def compared_with(spark, folder: Path, kind: str, records, restarts, rows, *, evidence: bool) -> Counter:
    """The verdicts of a comparison of these emitted rows, and the labels of those that differ."""
    write(folder / "data", records)
    windows = "{type: session, gap: 2 s}" if kind == "sessions" else "{type: sliding, size: 2 min, slide: 30 s}"
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), folder / "emitted.parquet")
    defined = definition_text(
        "restarted",
        folder / "data",
        end="freeze",
        window=f"window: {windows}\nallowed_lateness: {LATENESS} ms",
        watermark=f"{BOUNDED}, emission: per_event",
    )
    times = ", ".join(f"'{format_instant(at)}'" for at in restarts)
    last = "  last_offsets: last" if evidence else ""
    path = folder / "restarted.yaml"
    path.write_text(defined + LIVE.format(folder=folder / "emitted.parquet", restarts=times, evidence=last))
    report = run_compare(spark, load_pipeline(path), NoProgress(), limit=100_000)
    return Counter((row["verdict"], row["label"]) for row in report.top)


def plan_of(seed: int) -> tuple[list[dict], list[int]]:
    records = log_of(seed)
    draw = random.Random(seed)
    return records, sorted(records[draw.randrange(60, 240)]["a"] for _ in range(draw.choice((2, 3))))


@pytest.mark.parametrize("seed", seeds(1, 8))
@pytest.mark.parametrize(("kind", "evidence"), first_of(in_turn(product(("sliding", "sessions"), (True, False)))))
def test_windows_that_came_out_anew_are_in_no_doubt(spark, tmp_path, seed, evidence, kind) -> None:
    records, restarts = plan_of(seed)
    rows = RestartedJob(restarts, 2_000 if kind == "sessions" else None).run(records)
    found = compared_with(spark, tmp_path, kind, records, restarts, rows, evidence=evidence)
    assert {verdict for verdict, _ in found} <= {"match", "late_arrivals", "all_late", "not_closed"}, found


def test_a_wrong_row_that_came_out_anew_is_found(spark, tmp_path) -> None:
    """One record too many in it: with evidence it differs, since nothing that the restart let in explains it."""
    records, restarts = plan_of(0)
    rows = RestartedJob(restarts).run(records)
    most, last = Counter[tuple](), dict[tuple, dict]()
    for row in rows:
        window = (row["k"], row["s"])
        most[window], last[window] = max(most[window], row["n"]), row
    wrong = next(row for window, row in last.items() if row["n"] < most[window])
    wrong["n"] += 1
    found = compared_with(spark, tmp_path, "sliding", records, restarts, rows, evidence=True)
    assert sum(n for (verdict, _), n in found.items() if verdict == "mismatch") == 1, found
    assert found["late_arrivals", "emitted_again_after_restart"] > 0, found
