"""A restarted job's watermark begins from nothing: what was closed stays closed, the rest closes later."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import ReplaySpec
from tests.sampling import first_of

SIZE, BOUND = 10, 4
STRATEGY = WatermarkStrategy(BoundedOutOfOrderness(BOUND), partitions=(0, 1), subtasks=((0, 1),))


def log(seed: int) -> list[tuple[int, int, int, int]]:
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
    records = log(seed)
    schema = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT"
    frame = spark.createDataFrame(records, schema)
    spec = ReplaySpec(FLINK, STRATEGY, TumblingWindows(SIZE), 0, (), {"n": "count(*)"}, flush=False, restarts=restarts)
    with Replay(History(frame, TimeRange(0, 100), 1059), spec) as replay:
        rows = replay.windows(TimeRange(0, 100)).select(
            "window_start", F.col("records_on_time") + F.col("records_late"), "records_dropped"
        )
        ours = {row[0]: (row[1], row[2]) for row in rows.collect()}
    assert ours == in_time_by_hand(records, restarts)
