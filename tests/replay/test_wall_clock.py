"""Windows in a wall clock's time: Spark's columns against the plain rules, and sessions against the operator."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import HOUR, MINUTE
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Lag
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, fires_at
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import closing
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.spec import Mode, ReplaySpec
from tests.sampling import seeds
from tests.sequential.flink import LiveJob, Record

CHANGES = [
    ("Europe/Berlin", "2024-10-27T01:00+00:00"),
    ("Europe/Berlin", "2024-03-31T01:00+00:00"),
    ("America/New_York", "2024-11-03T06:00+00:00"),
    ("America/Havana", "2024-03-10T05:00+00:00"),
    ("Australia/Lord_Howe", "2024-04-06T15:00+00:00"),
    ("Australia/Lord_Howe", "2024-10-05T15:30+00:00"),
    ("America/Sao_Paulo", "2018-11-04T03:00+00:00"),
    ("America/Sao_Paulo", "2018-02-18T02:00+00:00"),
    ("Asia/Kolkata", "2024-03-01T00:00+00:00"),
]
GAP = 20 * MINUTE
STRATEGY = WatermarkStrategy(Lag(0), (0, 1), ((0,), (1,)))
RECORDS = "rw_partition INT, rw_offset BIGINT, rw_arrival BIGINT, rw_event_time BIGINT, k STRING"


def instant(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def test_spark_closes_each_window_where_the_rules_do(quick_spark) -> None:
    for zone, change in CHANGES:
        windows, at = WallClockSessions(GAP, ZoneInfo(zone)), instant(change)
        ahead = ZoneInfo(zone).utcoffset(datetime.fromtimestamp(at / 1000, ZoneInfo(zone)))
        assert ahead is not None
        shown = at + round(ahead.total_seconds() * 1000)
        ends = [end + ms for end in range(shown - 3 * HOUR, shown + 3 * HOUR, 5 * MINUTE) for ms in (0, 1)]
        frame = quick_spark.createDataFrame([(end,) for end in ends], "e BIGINT")
        found = frame.select(closing(windows, F.col("e"))).collect()
        assert [close for (close,) in found] == [fires_at(end - 1, windows.zone) for end in ends], zone


def log_around(change: int, draw: random.Random, count: int = 120) -> list[Record]:
    """Records over ten hours around a change; some of them hours late."""
    line, rows = change - 5 * HOUR, []
    for number in range(count):
        line += draw.choice((0, 2, 5, 9, 25)) * MINUTE * 60 // count * 2
        late = draw.choice((0, 0, 0, 0, 3, 12, 40, 75, 130)) * MINUTE
        partition = draw.randrange(2)
        offset = sum(row.partition == partition for row in rows)
        rows.append(Record(partition, offset, line + number, draw.choice("ab"), line - late + draw.randrange(-1, 2)))
    return rows


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_sessions_in_a_wall_clocks_time_are_those_of_the_operator(quick_spark, monkeypatch, seed: int) -> None:
    draw = random.Random(seed)
    zone, change = CHANGES[seed % len(CHANGES)]
    records, windows = log_around(instant(change), draw), WallClockSessions(GAP, ZoneInfo(zone))
    flush = draw.random() < 0.7
    live = LiveJob(STRATEGY, windows, 0).run(records, flush=flush)
    wanted = Counter((f.key, f.window.start, f.window.end, f.count) for _, f in live.firings)
    late = sorted((records[one.record].partition, records[one.record].offset) for one in live.late)
    monkeypatch.setattr("spark_jobs.replay.sessions._CELLS", draw.choice((3, 40, 200_000)))
    monkeypatch.setattr("spark_jobs.replay.sessions._GAPS_AROUND", 1)
    times = [record.timestamp for record in records]
    history = TimeRange(min(times), max(times) + 1)
    span = windows.covering(history)
    cut = draw.randrange(span.start + 1, span.end)
    rows = [(r.partition, r.offset, r.arrival, r.timestamp, r.key) for r in records]
    spec = ReplaySpec(FLINK, STRATEGY, windows, 0, ("k",), {"n": "count(*)"}, mode=Mode.FAITHFUL, flush=flush)
    frame = quick_spark.createDataFrame(rows, RECORDS)
    with Replay(History(frame, history, records[-1].arrival), spec) as replay:
        parts = [TimeRange(span.start, cut), TimeRange(cut, span.end)]
        fired = [row for part in parts for row in replay.windows(part).where("n IS NOT NULL").collect()]
        found = Counter((row["k"], row["window_start"], row["window_end"], row["n"]) for row in fired)
        lost = [row for part in parts for row in replay.late(part).collect()]
    assert found == wanted, zone
    assert sorted((row["rw_partition"], row["rw_offset"]) for row in lost) == late
    assert {row["rw_event_time"] for row in lost} <= set(times)
