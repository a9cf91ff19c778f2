"""The live job whose history the nights reconcile, and its records: one record at a time, without Spark."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.operator import Firing, WindowOperator
from spark_jobs.eventtime.flink.signals import WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.windows import TumblingWindows

START = 1_700_006_400_000
"""Midnight, UTC: the first day begins."""
BOUND = 10 * MINUTE
SPACING = 5 * MINUTE
PARTITIONS = (0, 1)

Cell = tuple[str, int]
"""A key and a window's start (epoch ms)."""
Value = tuple[int, int]
"""Count and sum."""


@dataclass(frozen=True, slots=True)
class Ride:
    """One record of the topic."""

    partition: int
    arrival: int
    time: int
    key: str
    value: int

    @property
    def json(self) -> str:
        return json.dumps({"k": self.key, "t": self.time, "v": self.value})


def rides(seed: int, days: int) -> list[Ride]:
    """Every five minutes one, in the order of arrival; every eighth is late, by up to two days."""
    draw = random.Random(f"rides {seed}")
    found: list[Ride] = []
    for number in range(days * DAY // SPACING):
        arrival = START + number * SPACING + draw.randrange(SPACING)
        behind = draw.randrange(HOUR, 2 * DAY) if draw.random() < 1 / 8 else draw.randrange(BOUND)
        time = max(START, arrival - behind)
        found.append(Ride(draw.choice(PARTITIONS), arrival, time, draw.choice("abc"), draw.randrange(100)))
    return found


@dataclass(frozen=True, slots=True)
class Emitted:
    """A row that the live job wrote, as its readers see it: JSON of the key and of the value."""

    key: str
    value: str


class LiveJob:
    """It goes on from day to day; now and then it loses a row, or writes a wrong one."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(f"faults {seed}")
        self._source = Source(WatermarkStrategy(BoundedOutOfOrderness(BOUND), PARTITIONS, (PARTITIONS,)))
        self._operator: WindowOperator[Ride] = WindowOperator(TumblingWindows(HOUR), 0)
        self._all: dict[Cell, list[int]] = defaultdict(list)

    def take(self, ride: Ride) -> Iterator[Emitted]:
        """Read a record; what the job writes then."""
        self._all[ride.key, ride.time // HOUR * HOUR].append(ride.value)
        fired = list(self._operator.process(ride.key, ride.time, ride).firings)
        for signal in self._source.on_event(ride.partition, Event(ride.time, ride.arrival, False, None)):
            if isinstance(signal, WatermarkEmitted):
                fired += self._operator.advance_watermark(signal.watermark)
        for firing in fired:
            yield from self._written(firing)

    def _written(self, firing: Firing[Ride]) -> Iterator[Emitted]:
        chance, values = self._draw.random(), [ride.value for ride in firing.elements]
        if chance > 0.02:
            wrong = 100 if chance < 0.05 else 0
            yield emitted((str(firing.key), firing.window.start), (len(values) + wrong, sum(values)))

    def truth(self) -> dict[str, str]:
        """What the readers must have in the end: the complete values of the windows that the watermark has passed."""
        closed = self._operator.watermark + 1
        rows = (
            emitted(cell, (len(values), sum(values))) for cell, values in self._all.items() if cell[1] + HOUR <= closed
        )
        return {row.key: row.value for row in rows}


def emitted(cell: Cell, value: Value) -> Emitted:
    """The row of a window: Flink's JSON with ISO times."""
    key = {"k": cell[0], "window_start": format_instant(cell[1]).removesuffix("Z")}
    return Emitted(
        json.dumps(key, separators=(",", ":")), json.dumps({"n": value[0], "total": value[1]}, separators=(",", ":"))
    )
