"""A timeline with idleness from aggregates, and the same one from every record in position order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import (
    AdvanceAfterWait,
    AverageOfLast,
    BoundedOutOfOrderness,
    Custom,
    Interleaved,
)
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.flink import thinned
from spark_jobs.replay.flink.making import TimelineMaker
from spark_jobs.replay.flink.simulation import simulate
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.timeline import Timeline, exact_thresholds, grid_thresholds
from spark_jobs.spark.cached import CachedFrames
from tests.replay.closes import COLUMNS, check, closes_of_records, combined_history, comparable, points
from tests.replay.histories import BEGIN, History, LogRecord, random_history
from tests.sampling import sample, seeds

SEEDS = st.integers(0, 2**40)
TICKS = st.none() | st.integers(1, 10)


@settings(max_examples=sample(60, 5_000))
@given(seed=SEEDS, together=st.integers(1, 30), ticks=TICKS)
def test_aggregates_and_few_records_close_every_window_where_all_records_do(
    seed: int, together: int, ticks: int | None
) -> None:
    check(random_history(random.Random(seed)), None, together, ticks)


@settings(max_examples=sample(40, 3_000))
@given(seed=SEEDS, together=st.integers(1, 30), ticks=TICKS)
def test_a_later_run_goes_on_from_the_state_that_either_way_has_left(
    seed: int, together: int, ticks: int | None
) -> None:
    draw = random.Random(seed)
    history = random_history(draw)
    cut = history.cut(draw)
    before, after = history.records[:cut], history.records[cut:]
    if not before:
        return
    state = check(replace(history, records=before, until=before[-1].arrival), None, together, ticks).snapshot
    check(replace(history, records=after), state, together, ticks)
    check(
        replace(history, records=after),
        closes_of_records(replace(history, records=before, until=before[-1].arrival), None)[1],
    )


def test_without_a_silence_no_record_is_looked_at() -> None:
    strategy = WatermarkStrategy(
        BoundedOutOfOrderness(500), (0, 1), ((0, 1),), interval=200, timer_start=BEGIN, idleness=1_000
    )
    records = [LogRecord(BEGIN + 90 * i, i % 2, i // 2, BEGIN + 90 * i - i * 37 % 500, False) for i in range(5_000)]
    history = History(strategy, records, records[-1].arrival, 1_000)
    check(history)
    assert combined_history(history)[1] == 0


def rows_of(made: Timeline, history: History) -> tuple[Any, ...]:
    table = made.steps
    assert table is not None
    source = comparable(made.state["source"])
    closes = table.at(points(history, MIN_TIMESTAMP)).tolist()
    return closes, source, made.flushes, made.idle, made.watermark_below


EVERY_RECORD = (
    AverageOfLast(3, 100),
    AdvanceAfterWait(200, 700),
    Interleaved(200),
    Custom("tests.golden.custom_generators:LowestOfLast", {"count": 3}),
    Custom("tests.golden.custom_generators:EveryNth", {"n": 3, "lag_ms": 60}),
)


def one_of_every_record(draw: random.Random, history: History) -> History:
    """The history with a generator that looks at every record, with or without a timer and idleness."""
    strategy = replace(history.strategy, generator=draw.choice(EVERY_RECORD))
    if isinstance(strategy.generator, AdvanceAfterWait):
        strategy = replace(strategy, per_event=False)
    without = draw.choice(["nothing", "nothing", "idleness", "a timer"])
    if without == "a timer" and strategy.per_event:
        strategy = replace(strategy, interval=0)
    return replace(history, strategy=strategy if without == "nothing" else replace(strategy, idleness=None))


@pytest.mark.parametrize(
    "way",
    [
        "few cells",
        "joined cells",
        "many changes",
        "many steps",
        "every millisecond",
        "ahead of the clock",
        "every record",
    ],
)
def test_spark_makes_the_timeline_that_one_task_makes_of_every_record(
    quick_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "joined cells":
        monkeypatch.setattr(thinned, "MAX_CELLS", 12)
    if way == "many changes":
        monkeypatch.setattr(thinned, "MAX_RAISES", 0)
    if way == "many steps":
        monkeypatch.setattr(thinned, "MAX_IN_MEMORY", 0)
    for seed in seeds(1, 60):
        draw = random.Random(f"{way} {seed}")
        history = random_history(draw, density=4)
        if way == "ahead of the clock":
            ahead = [record._replace(timestamp=record.timestamp + 10**7) for record in history.records]
            history = replace(history, records=ahead)
        if way == "every record":
            history = one_of_every_record(draw, history)
        strategy = history.strategy
        rows = [(r.arrival, r.partition, r.offset, r.timestamp, r.marker) for r in history.records]
        records = quick_spark.createDataFrame(rows, COLUMNS)
        times = [r.timestamp for r in history.records]
        span = TimeRange(min(times, default=0), max(times, default=0) + 1)
        thresholds = exact_thresholds() if way == "every millisecond" else grid_thresholds(RegularGrid(history.grid), 0)
        cut = history.records[history.cut(draw) - 1].arrival if rows and draw.random() < 0.5 else None
        with CachedFrames() as cache:
            state = None
            news = records
            if cut is not None:
                old = records.where(f"rw_arrival <= {cut}")
                first = TimelineMaker(strategy, span, cache).timeline(old, thresholds, cut)
                state, news = first.state, records.where(f"rw_arrival > {cut}")
            made = TimelineMaker(strategy, span, cache).timeline(news, thresholds, history.until, state)
            if way == "joined cells" and strategy.idleness is not None:
                assert "one task" not in made.note, seed
            expected = simulate(news, strategy, thresholds, processing_time_end=history.until, cache=cache, state=state)
            assert rows_of(made, history) == rows_of(expected, history), seed
            if not strategy.sees_only_maxima_at_ticks and expected.state["last"] is not None:
                assert tuple(made.state["last"]) == tuple(expected.state["last"]), seed
