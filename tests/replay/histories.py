"""Random jobs with idleness: partitions that fall silent and come back, some of them lagging; subtasks; markers.

Far longer than the cases of `tests.golden.strategies`, since only a long history has quiet stretches to leave out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import NamedTuple

from spark_jobs.eventtime.flink import suppliers as s
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy

BEGIN = 1_000_000
"""The processing time (epoch ms) at about which a history begins."""


class LogRecord(NamedTuple):
    """One record, in the order of positions."""

    arrival: int
    partition: int
    offset: int
    timestamp: int
    marker: bool


@dataclass(frozen=True)
class History:
    """A job and its records; `until` is the end of processing time. Window ends lie on multiples of `grid` (ms)."""

    strategy: WatermarkStrategy
    records: list[LogRecord]
    until: int
    grid: int

    def cut(self, draw: random.Random) -> int:
        """A number of records after which all others arrive later."""
        cut = draw.randrange(1, len(self.records)) if len(self.records) > 1 else len(self.records)
        while 0 < cut < len(self.records) and self.records[cut].arrival == self.records[cut - 1].arrival:
            cut += 1
        return cut


def random_history(draw: random.Random, *, most_partitions: int = 6, density: int = 1) -> History:
    """A history of some thousand records; fewer with a higher `density`, the factor of the mean time between two."""
    timeout = draw.choice([50, 300, 1000, 3000])
    span = draw.choice([3_000, 20_000, 60_000])
    partitions = draw.randint(1, most_partitions)
    records = _records(draw, partitions, timeout, span, density)
    numbers = list(range(partitions))
    draw.shuffle(numbers)
    count = min(draw.choice([1, 1, 2, 2, 3]), partitions)
    subtasks = tuple(tuple(numbers[i::count]) for i in range(count))
    if draw.random() < 0.05:
        subtasks = (*subtasks, ())
    strategy = WatermarkStrategy(
        _generator(draw),
        tuple(range(partitions)),
        subtasks,
        scope=draw.choice([WatermarkScope.PARTITION] * 3 + [WatermarkScope.SUBTASK]),
        per_event=draw.random() < 0.5,
        interval=draw.choice([40, 50, 100, 200]),
        timer_start=BEGIN + draw.choice([0, -1000, 13, 700]),
        idleness=timeout,
        all_idle_emits_maximum=draw.random() < 0.7,
    )
    return History(strategy, records, BEGIN + span + draw.choice([0, 100, 10_000]), draw.choice([1, 100, 500, 5000]))


def _records(draw: random.Random, partitions: int, timeout: int, span: int, density: int) -> list[LogRecord]:
    apart = draw.choice([20, 40, 200, timeout]) * density
    silent = draw.choice([0, 0.005, 0.02, 0.1, 0.3])
    lagging = draw.random() < 0.3
    found = []
    for partition in range(partitions):
        if draw.random() < 0.1:
            continue
        arrival, offset = BEGIN + draw.randint(-300, 500), 0
        lag = draw.choice([0, 0, 0, 2_000, 20_000]) if lagging else 0
        stop = BEGIN + (span if draw.random() < 0.8 else draw.randint(0, span))
        while arrival < stop:
            far_behind = draw.randint(0, 20_000) if draw.random() < 0.03 else 0
            timestamp = arrival - draw.randint(0, 3_000) - far_behind - lag
            found.append(LogRecord(arrival, partition, offset, timestamp, draw.random() < 0.2))
            if draw.random() < 0.02:
                lag = draw.choice([0, 500, 5_000])
            offset += 1
            arrival += draw.randint(0, 6 * timeout) if draw.random() < silent else draw.randint(0, apart)
    for _ in range(draw.choice([0, 0, 1, 2])):  # everything is silent
        begin = BEGIN + draw.randint(0, span)
        end = begin + draw.randint(0, 8 * timeout)
        found = [record for record in found if not begin <= record.arrival < end]
    return sorted(found)


def _generator(draw: random.Random) -> s.GeneratorSupplier:
    bounded = s.BoundedOutOfOrderness(draw.choice([0, 200, 2_000]))
    return draw.choice(
        [
            bounded,
            bounded,
            bounded,
            s.Ascending(),
            s.Lag(draw.choice([0, 100, 350])),
            s.TimeLag(draw.choice([0, 100, 900])),
            s.Punctuated(draw.choice([0, 100])),
            s.Punctuated(0),
            s.NoWatermarks(),
        ]
    )


def random_union(draw: random.Random, *, density: int = 1) -> History:
    """The history of two or three inputs with a watermark each, as one stream; their partitions in any order."""
    inputs = [random_history(draw, most_partitions=3, density=density) for _ in range(draw.choice([2, 2, 3]))]
    first = inputs[0].strategy
    likeness = draw.choice(["same", "delays", "delays", "idleness", "anything", "anything"])
    timed = draw.random() < 0.85
    numbers = list(range(sum(len(one.strategy.partitions) for one in inputs)))
    draw.shuffle(numbers)
    strategies, records = [], []
    for one in inputs:
        own = dict(zip(one.strategy.partitions, numbers, strict=False))
        numbers = numbers[len(own) :]
        records += [record._replace(partition=own[record.partition]) for record in one.records]
        strategy = replace(
            one.strategy,
            partitions=tuple(own.values()),
            subtasks=tuple(tuple(own[p] for p in subtask) for subtask in one.strategy.subtasks if subtask),
            interval=first.interval,
            timer_start=first.timer_start,
            all_idle_emits_maximum=first.all_idle_emits_maximum,
        )
        if likeness != "anything":
            strategy = replace(strategy, per_event=first.per_event, generator=first.generator)
        if likeness in ("same", "delays"):
            strategy = replace(strategy, idleness=first.idleness)
        elif draw.random() < 0.3:
            strategy = replace(strategy, idleness=None)
        if likeness == "same":
            strategy = replace(strategy, scope=first.scope)
        if likeness == "delays":
            bounded = draw.choice([s.BoundedOutOfOrderness(draw.choice([0, 200, 2_000])), s.Lag(100), s.Ascending()])
            strategy = replace(strategy, generator=bounded)
        strategies.append(strategy if timed else replace(strategy, idleness=None, per_event=True))
    whole = WatermarkStrategy.of_union(strategies)
    return History(whole, sorted(records), max(one.until for one in inputs), inputs[0].grid)


def with_discoveries(history: History, draw: random.Random) -> History:
    """The history with some partitions that the job discovers later; what came to them before is read then."""
    first, span = history.strategy.timer_start, history.until - history.strategy.timer_start
    late = [p for p in history.strategy.partitions if draw.random() < 0.4]
    discovered = {p: first + draw.choice([0, draw.randrange(max(1, span)), span // 3, span // 3]) for p in late}
    records = [r._replace(arrival=max(r.arrival, discovered.get(r.partition, r.arrival))) for r in history.records]
    inputs = tuple(
        replace(one, discovered=tuple((p, at) for p, at in discovered.items() if p in one.partitions))
        for one in history.strategy.inputs
    )
    strategy = replace(history.strategy, discovered=tuple(discovered.items()), inputs=inputs)
    return replace(history, strategy=strategy, records=sorted(records))
