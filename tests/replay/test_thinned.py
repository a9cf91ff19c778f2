"""A timeline with idleness from aggregates, and the same one from every record in position order."""

from __future__ import annotations

import copy
import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_jobs.eventtime.generators import Event
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.signals import Signal, WatermarkEmitted
from spark_jobs.eventtime.source import Source
from spark_jobs.eventtime.strategy import WatermarkStrategy
from spark_jobs.eventtime.suppliers import (
    AdvanceAfterWait,
    AverageOfLast,
    BoundedOutOfOrderness,
    Custom,
    Interleaved,
    RecordTime,
)
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay import thinned
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.combine import Combination, Combiner, Raise
from spark_jobs.replay.grid import RegularGrid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.making import TimelineMaker
from spark_jobs.replay.simulation import simulate
from spark_jobs.replay.stretches import steps_in_stretches
from spark_jobs.replay.thinning import Activity, ArrivalCells
from spark_jobs.replay.timeline import Timeline, exact_thresholds, grid_thresholds
from spark_jobs.spark.cached import CachedFrames
from tests.replay.histories import BEGIN, History, LogRecord, random_history
from tests.sampling import sample

SEEDS = st.integers(0, 2**40)
COLUMNS = "rw_arrival BIGINT, rw_partition INT, rw_offset BIGINT, rw_event_time BIGINT, rw_marker BOOLEAN"


def followed(strategy: WatermarkStrategy, record: LogRecord) -> int:
    """The time that the record's generator takes the maximum of."""
    maximum = strategy.running_maximum
    match None if maximum is None else maximum.time:
        case RecordTime.EVENT_TIME:
            return record.timestamp
        case RecordTime.EVENT_TIME_OF_MARKERS:
            return record.timestamp if record.marker else MIN_TIMESTAMP
        case RecordTime.ARRIVAL:
            return record.arrival
        case _:
            return MIN_TIMESTAMP


def activities(history: History, cells: ArrivalCells) -> list[Activity]:
    """One row a partition and cell, as the aggregation gives it."""
    strategy = history.strategy
    found = []
    for group in strategy.generators:
        rows: dict[Any, list[int]] = {}
        for record in history.records:
            if record.partition in group:
                time = followed(strategy, record)
                key = record.partition, cells.of_one(record.arrival)
                row = rows.setdefault(key, [record.arrival, record.arrival, time, NEVER])
                row[1], row[2] = record.arrival, max(row[2], time)
                if record.marker and is_punctuated(strategy):
                    row[3] = min(row[3], record.arrival)
        found.append(Activity.of(*np.array(list(rows.values()), dtype=np.int64).reshape(-1, 4).T))
    return found


def is_punctuated(strategy: WatermarkStrategy) -> bool:
    maximum = strategy.running_maximum
    return maximum is not None and maximum.time is RecordTime.EVENT_TIME_OF_MARKERS


def combined(history: History, state: dict[str, Any] | None = None) -> tuple[Combination, int]:
    """What the combiner makes of the aggregates, and how many records it has seen one by one."""
    strategy = history.strategy
    next_tick = state["next_tick"] if state else strategy.timer_start + strategy.interval
    cells = ArrivalCells.of_strategy(strategy, history.until, next_tick)
    combiner = Combiner(strategy, activities(history, cells), cells, state, history.until)
    exact = combiner.cells_with_changes()
    while True:
        raises = defaultdict(list)
        for r in history.records:
            cell = cells.of_one(r.arrival)
            if cell in exact and (r.marker or not is_punctuated(strategy)):
                raises[cell].append(Raise(r.arrival, r.partition, r.offset, r.partition, followed(strategy, r)))
        combination = combiner.run(raises, exact)
        if not combination.wanted:
            return combination, sum(map(len, raises.values()))
        exact |= combination.wanted


def closes_of_records(history: History, state: dict[str, Any] | None) -> tuple[InMemoryTimeline, dict[str, Any], bool]:
    """Timeline, final state, and whether the end of input gets through: from the source over every record."""
    source = Source(history.strategy)
    if state is not None:
        source.restore(state)
    rows = [] if state is None else [(MIN_TIMESTAMP,) * 4]
    next_x = MIN_TIMESTAMP if source.watermark == MIN_TIMESTAMP else source.watermark + 1

    def note(signals: list[Signal], *position: int) -> None:
        nonlocal next_x
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                rows.append((next_x, *position))
                next_x = signal.watermark + 1

    for arrival, partition, offset, timestamp, marker in history.records:
        for tick in source.ticks(arrival):
            note(tick.signals, tick.time, -1, -1)
        note(source.on_event(partition, Event(timestamp, arrival, marker)), arrival, partition, offset)
    for tick in source.ticks(history.until):
        note(tick.signals, tick.time, -1, -1)
    rows.append((next_x, NEVER, NEVER, NEVER))
    snapshot = source.snapshot()
    flushes = any(isinstance(signal, WatermarkEmitted) for signal in source.end_of_input())
    return timeline_of(np.array(rows, dtype=np.int64)), snapshot, flushes


def closes_of_aggregates(history: History, combination: Combination, state: dict[str, Any] | None) -> InMemoryTimeline:
    """The timeline from what a combiner found, and from the first record that reaches each threshold."""
    strategy, grid = history.strategy, history.grid
    next_tick = state["next_tick"] if state else strategy.timer_start + strategy.interval
    found = [np.array(combination.rows, dtype=np.int64)]
    for index, group in enumerate(strategy.generators):
        firsts: dict[int, tuple[int, int, int]] = {}
        maximum = strategy.running_maximum
        if maximum is None:  # the clock
            lag = strategy.generator.tolerance
            for tick in range(next_tick, history.until + 1, strategy.interval):
                firsts.setdefault((tick - lag + 1) // grid * grid - 1, (tick, -1, -1))
        for record in history.records:
            time = followed(strategy, record)
            if maximum is not None and record.partition in group and time > MIN_TIMESTAMP:
                position = (record.arrival, record.partition, record.offset)
                firsts.setdefault((time - maximum.delay + 1) // grid * grid - 1, shown(history, position))
        if state is not None:
            partial = [p for subtask in state["subtasks"] for p in subtask["partials"]][index]
            if partial["watermark"] > MIN_TIMESTAMP:
                firsts[partial["watermark"]] = (MIN_TIMESTAMP,) * 3
            if maximum is not None and partial["generator"].get("maximum") is not None and next_tick <= history.until:
                firsts.setdefault(partial["generator"]["maximum"] - maximum.delay, (next_tick, -1, -1))
        reached = np.array(list(firsts), dtype=np.int64)
        positions = np.array(list(firsts.values()), dtype=np.int64).reshape(-1, 3)
        x_from, closes = steps_in_stretches(reached, positions, *combination.stretches.of(index))
        found.append(np.column_stack((x_from, closes)))
    return timeline_of(np.concatenate(found))


def shown(history: History, position: tuple[int, int, int]) -> tuple[int, int, int]:
    """Where the generator emits what a record at this position reaches."""
    strategy = history.strategy
    if strategy.emits_on_records:
        return position
    tick = strategy.timer_start + (max(position[0] - strategy.timer_start, 0) // strategy.interval + 1) * (
        strategy.interval
    )
    return (tick, -1, -1) if tick <= history.until else (NEVER, NEVER, NEVER)


def timeline_of(rows: np.ndarray) -> InMemoryTimeline:
    names = ("x_from", "arrival", "major", "minor")
    return InMemoryTimeline.of_table(pa.table({name: rows[:, i] for i, name in enumerate(names)}))


def points(history: History, above: int) -> np.ndarray:
    """All that can close, `end - 1` of each end on the grid."""
    times = [record.timestamp for record in history.records]
    low, high = min(times, default=BEGIN) - 2_000, max(history.until, *times, 0) + 2 * history.grid
    x = np.arange(low // history.grid * history.grid, high, history.grid, dtype=np.int64) - 1
    return x[x > above]


def comparable(snapshot: dict[str, Any]) -> dict[str, Any]:
    """A state without what no later watermark depends on."""
    snapshot = copy.deepcopy(snapshot)
    del snapshot["records_since_tick"]
    for partial in (partial for subtask in snapshot["subtasks"] for partial in subtask["partials"]):
        if partial["active_since_probe"]:
            partial["countdown_from"] = None
    return snapshot


def check(history: History, state: dict[str, Any] | None = None) -> Combination:
    expected, snapshot, flushes = closes_of_records(history, state)
    combination, _ = combined(history, state)
    closes = closes_of_aggregates(history, combination, state)
    x = points(history, MIN_TIMESTAMP if state is None else state["valve"]["last_watermark"])
    assert closes.at(x).tolist() == expected.at(x).tolist()
    assert comparable(combination.snapshot) == comparable(snapshot)
    assert combination.flushes == flushes
    return combination


@settings(max_examples=sample(150, 5_000))
@given(seed=SEEDS)
def test_aggregates_and_few_records_close_every_window_where_all_records_do(seed: int) -> None:
    check(random_history(random.Random(seed)))


@settings(max_examples=sample(80, 3_000))
@given(seed=SEEDS)
def test_a_later_run_goes_on_from_the_state_that_either_way_has_left(seed: int) -> None:
    draw = random.Random(seed)
    history = random_history(draw)
    cut = history.cut(draw)
    before, after = history.records[:cut], history.records[cut:]
    if not before:
        return
    state = check(replace(history, records=before, until=before[-1].arrival)).snapshot
    check(replace(history, records=after), state)
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
    assert combined(history)[1] == 0


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


@pytest.mark.parametrize("way", ["few cells", "joined cells", "many steps", "every millisecond", "every record"])
def test_spark_makes_the_timeline_that_one_task_makes_of_every_record(
    quick_spark: SparkSession, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "joined cells":
        monkeypatch.setattr(thinned, "MAX_CELLS", 12)
    if way == "many steps":
        monkeypatch.setattr(thinned, "MAX_IN_MEMORY", 0)
    for seed in range(sample(1, 60)):
        draw = random.Random(f"{way} {seed}")
        history = random_history(draw, density=4)
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
            expected = simulate(news, strategy, thresholds, processing_time_end=history.until, cache=cache, state=state)
            assert rows_of(made, history) == rows_of(expected, history), seed
            if not strategy.sees_only_maxima_at_ticks and expected.state["last"] is not None:
                assert tuple(made.state["last"]) == tuple(expected.state["last"]), seed
