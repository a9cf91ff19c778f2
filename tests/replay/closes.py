"""A timeline from aggregates, and the same one from every record in position order, without Spark."""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import Signal, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import RecordTime
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.flink.combine import Combination, Combiner, Raise, combined
from spark_jobs.replay.flink.thinned import steps_in_stretches
from spark_jobs.replay.flink.thinning import Activity, ArrivalCells, Cells, JoinedCells
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from tests.replay.histories import BEGIN, History, LogRecord

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


def activities(history: History, cells: Cells) -> list[Activity]:
    """One row a partition and cell, as the aggregation gives it; in joined cells one a time without a long silence."""
    strategy = history.strategy
    longest = (strategy.idleness or 0) + strategy.interval if isinstance(cells, JoinedCells) else MAX_TIMESTAMP
    found = []
    for group in strategy.generators:
        rows: dict[Any, list[int]] = {}
        silences, last = Counter[int](), dict[int, int]()
        for record in history.records:
            partition = record.partition
            if partition in group:
                time = followed(strategy, record)
                silences[partition] += record.arrival - last.get(partition, record.arrival) > longest
                last[partition] = record.arrival
                key = partition, cells.of_one(record.arrival), silences[partition]
                row = rows.setdefault(key, [record.arrival, record.arrival, time, NEVER])
                row[1], row[2] = record.arrival, max(row[2], time)
                if record.marker and is_punctuated(strategy):
                    row[3] = min(row[3], record.arrival)
        found.append(Activity.of(*np.array(list(rows.values()), dtype=np.int64).reshape(-1, 4).T))
    return found


def is_punctuated(strategy: WatermarkStrategy) -> bool:
    maximum = strategy.running_maximum
    return maximum is not None and maximum.time is RecordTime.EVENT_TIME_OF_MARKERS


def combined_history(
    history: History, state: dict[str, Any] | None = None, together: int = 1, ticks: int | None = None
) -> tuple[Combination, int]:
    """What the combiner makes of the aggregates, and how many records it has seen one by one.

    `ticks`: the length of a cell; None: the longest. So many cells are joined `together` at first; 1: none ever is.
    """
    strategy = history.strategy
    next_tick = state["next_tick"] if state else strategy.timer_start + strategy.interval
    grid = ArrivalCells.of_strategy(strategy, history.until, next_tick, ticks)
    first = min([next_tick - strategy.interval, *(r.arrival for r in history.records[:1])])
    seen = 0

    def combiner_of(cells: Cells) -> Combiner:
        return Combiner(strategy, activities(history, cells), cells, state, history.until)

    def raises_in(numbers: set[int]) -> dict[int, list[Raise]]:
        nonlocal seen
        raises = defaultdict(list)
        for r in history.records:
            number = grid.of_one(r.arrival)
            if number in numbers and (r.marker or not is_punctuated(strategy)):
                raises[number].append(Raise(r.arrival, r.partition, r.offset, r.partition, followed(strategy, r)))
                seen += 1
        return raises

    cells = grid if together == 1 else JoinedCells.evenly(grid, together, first)
    return combined(cells, combiner_of, raises_in, most_rows=2)[0], seen


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
                firsts[partial["watermark"]] = (MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP)
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
    for partial in (partial for subtask in snapshot["subtasks"] for partial in subtask["partials"]):
        if partial["active_since_probe"]:
            partial["countdown_from"] = None
    return snapshot


def check(
    history: History, state: dict[str, Any] | None = None, together: int = 1, ticks: int | None = None
) -> Combination:
    expected, snapshot, flushes = closes_of_records(history, state)
    combination, _ = combined_history(history, state, together, ticks)
    closes = closes_of_aggregates(history, combination, state)
    x = points(history, MIN_TIMESTAMP if state is None else state["valve"]["last_watermark"])
    assert closes.at(x).tolist() == expected.at(x).tolist()
    assert comparable(combination.snapshot) == comparable(snapshot)
    assert combination.flushes == flushes
    return combination
