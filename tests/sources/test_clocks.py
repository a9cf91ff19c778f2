"""Which arrivals are ahead, against the rule itself; each partition of one frame is a log of its own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition.position import Position
from spark_jobs.errors import HistoryError
from spark_jobs.pins import ClockBound, OffsetRange, PinnedTopic, Pins
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION
from spark_jobs.sources import canonical, clocks_of, inspect_history, open_history, opened_again, quarantined
from spark_jobs.sources.clocks import Clocks, end_offsets_before, judged, pins_without
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import with_arrivals_bounded
from tests.sources.conftest import BASE, MakePipeline, make_pipeline, position, records, write_log

HOUR = 3_600_000
CLOCK = BASE + 300 * HOUR
Log = list[tuple[int, int]]
"""(offset, arrival) in the order of offsets."""


def log_of(draw: random.Random, wobble: int) -> Log:
    """Arrivals that grow, of producers whose clocks differ by up to `wobble`, some of them far ahead."""
    found, now, offset = Log(), BASE, 0
    for _ in range(draw.choice((1, 5, 60))):
        now += draw.choice((0, 1000, 20 * 60_000, 5 * HOUR))
        offset += draw.choice((1, 1, 1, 3, 4000))
        ahead = draw.choice((2, 30, 400)) * HOUR if draw.random() < 0.15 else 0
        found.append((offset, now + draw.randrange(wobble + 1) + ahead))
    return found


def rule(log: Log) -> tuple[int | None, list[int]]:
    """The end offset where the last arrivals are ahead of the clock, and the offsets that are ahead of one behind."""
    read = [n for n, (_, arrival) in enumerate(log) if arrival < CLOCK]
    below = log[: read[-1] + 1] if read else []
    ahead = [
        offset
        for n, (offset, arrival) in enumerate(below)
        if any(arrival - behind > HOUR for _, behind in below[n + 1 :])
    ]
    return (None if len(below) == len(log) else below[-1][0] + 1 if below else log[0][0]), ahead


def frame_of(spark: SparkSession, logs: list[Log]) -> DataFrame:
    rows = [(number, offset, arrival) for number, log in enumerate(logs) for offset, arrival in log]
    return spark.createDataFrame(rows, f"{PARTITION} INT, {OFFSET} BIGINT, {ARRIVAL} BIGINT")


@pytest.mark.parametrize("wobble", [0, HOUR // 2])
def test_an_arrival_is_ahead_exactly_by_the_rule(spark: SparkSession, wobble: int) -> None:
    draw = random.Random(11)
    logs = [log_of(draw, wobble) for _ in range(60)]
    frame = frame_of(spark, logs)
    defined, opened = make_pipeline(quarantine={"ahead": "1 h"}), OpenHistory(frame, (), "logs", arrivals_before=CLOCK)
    found = judged(frame, defined, opened, disordered=range(60), ahead=range(60))
    rules = [rule(log) for log in logs]
    assert found.ends == {number: end for number, (end, _) in enumerate(rules) if end is not None}
    marked = with_arrivals_bounded(frame, Position(), found.bounds).where(f"{ARRIVAL} IS NULL").collect()
    assert sorted((row[PARTITION], row[OFFSET]) for row in marked) == [
        (number, offset) for number, (_, ahead) in enumerate(rules) for offset in ahead
    ]
    assert sum(len(ahead) for _, ahead in rules) > 50


def test_records_without_a_place_have_no_end_offset(spark: SparkSession) -> None:
    rows = [(0, 4, BASE), (0, 5, BASE + 2), (1, 7, BASE), (None, 8, BASE), (2, None, BASE), (None, None, BASE)]
    frame = spark.createDataFrame(rows, f"{PARTITION} INT, {OFFSET} BIGINT, {ARRIVAL} BIGINT")
    assert end_offsets_before(frame, BASE + 1) == {0: 5, 1: 8}


def test_a_small_step_back_is_no_clock_s(spark: SparkSession) -> None:
    frame = frame_of(spark, [[(0, BASE), (1, BASE + HOUR), (2, BASE)]])
    opened = OpenHistory(frame, (), "a log", arrivals_before=CLOCK)
    assert not judged(frame, make_pipeline(quarantine={"ahead": "1 h"}), opened, disordered=[0], ahead=[])


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row[OFFSET] for row in frame.select(OFFSET).collect())


def test_a_history_is_opened_again_without_what_is_ahead(spark, tmp_path: Path, pipeline: MakePipeline) -> None:
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (0, 1, 90 * HOUR), (0, 2, HOUR), (0, 3, 400 * HOUR)))
    defined = pipeline(tmp_path, quarantine={"ahead": "1 h"})
    opened = open_history(spark, defined, arrivals_before=CLOCK)
    found = inspect_history(spark, defined, opened).clocks
    assert found.ends == {0: 3}
    again = opened_again(spark, defined, opened, found)
    bad = quarantined(canonical(again, defined)).collect()
    assert [(row["offset"], row["arrival"]) for row in bad] == [(1, None)]
    assert bad[0]["reason"] == "arrival ahead of records behind it in its partition: 2013-01-05T04:00:00Z"
    seen = inspect_history(spark, defined, again, as_of=found.ends)
    assert not seen.clocks and (seen.records, seen.quarantined, seen.partitions[0].end_offset) == (3, 1, 3)


@pytest.fixture
def ahead_in_the_middle(tmp_path: Path) -> Iterator[Path]:
    write_log(tmp_path / "a.parquet", records((0, 0, 0), (0, 1, 90 * HOUR), (0, 2, 5), (0, 3, 3)))
    yield tmp_path


def test_a_running_maximum_begins_without_what_is_ahead(spark, ahead_in_the_middle: Path, pipeline) -> None:
    chosen = position(going_back="running_maximum")
    defined = pipeline(ahead_in_the_middle, quarantine={"ahead": "1 h"}, history={"position": chosen})
    opened = open_history(spark, defined)
    again = opened_again(spark, defined, opened, inspect_history(spark, defined, opened).clocks)
    rows = canonical(again, defined).orderBy(OFFSET).select(ARRIVAL).collect()
    assert [None if row[0] is None else row[0] - BASE for row in rows] == [0, None, 5, 5]
    assert not inspect_history(spark, defined, again).clocks


def test_where_arrivals_go_back_a_little_too_the_log_is_refused(spark, ahead_in_the_middle: Path, pipeline) -> None:
    defined = pipeline(ahead_in_the_middle, quarantine={"ahead": "1 h"})
    opened = open_history(spark, defined)
    again = opened_again(spark, defined, opened, inspect_history(spark, defined, opened).clocks)
    with pytest.raises(HistoryError, match="the arrival goes back: offset 2 arrived"):
        inspect_history(spark, defined, again)


def test_bounds_and_ends_go_to_the_input_of_a_union_that_has_the_partition() -> None:
    topic = PinnedTopic("t", "id", "append_time", (OffsetRange(0, 3, 9), OffsetRange(1, 0, 4)))
    pins = Pins(inputs=(Pins(), Pins(topic=topic)))
    bound, other = ClockBound(2, 5, 6, 7), ClockBound(10_001, 1, 2, 3)
    found = pins_without(pins, Clocks((bound, other), {10_000: 2, 10_001: 3}))
    assert clocks_of(found) == (bound, other)
    assert found.inputs[0].clocks == (bound,) and found.inputs[1].clocks == (ClockBound(1, 1, 2, 3),)
    assert found.inputs[1].topic is not None
    # The end of a stitched history can lie in its table, before the topic's first offset.
    assert found.inputs[1].topic.ranges == (OffsetRange(0, 2, 2), OffsetRange(1, 0, 3))
