"""Generators over arrays: the same trace as record by record, whatever the batches are and where a run was cut."""

from __future__ import annotations

import copy
import itertools
import json
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import AdvanceAfterWait, AverageOfLast, Custom, Interleaved
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.flink import traced
from tests.golden.custom_generators import HandWrittenBound
from tests.replay.histories import BEGIN
from tests.sampling import sample


class TwoFaces(HandWrittenBound):
    """The bound of the recorded cases, over arrays too."""

    def on_batch(self, timestamps: np.ndarray, arrivals: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        before = timestamps[0] if self.highest is None else self.highest
        top = np.maximum(np.maximum.accumulate(timestamps), before)
        self.highest = int(top[-1])
        watermark = np.maximum(top, MIN_TIMESTAMP + self.bound_ms + 1) - self.bound_ms - 1
        return (watermark, None) if self.on == "event" else (None, watermark)


class AnotherBound(TwoFaces):
    """Its faces differ once there are two records."""

    def on_batch(self, timestamps: np.ndarray, arrivals: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        at_record, at_tick = super().on_batch(timestamps, arrivals)
        for watermark in (at_record, at_tick):
            if watermark is not None:
                watermark[1:] += 1
        return at_record, at_tick


class Forgetful(TwoFaces):
    """Its watermarks are right, and its attributes stay as they were."""

    def on_batch(self, timestamps: np.ndarray, arrivals: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
        before = self.highest
        found = super().on_batch(timestamps, arrivals)
        self.highest = before
        return found


def own(name: str, on: str) -> Custom:
    return Custom(f"{__name__}:{name}", {"bound_ms": 60, "on": on})


GENERATORS = (
    own("TwoFaces", "event"),
    own("TwoFaces", "tick"),
    *(AverageOfLast(count, 100) for count in (1, 3, 200)),
    *(AdvanceAfterWait(200, wait) for wait in (0, 120, 700, 5_000)),
    *(Interleaved(200, streams) for streams in ((), ("a",), ("a", "b", "None"), ("never",))),
)
Log = list[tuple[int, int, int, int, bool, str | None]]


def log_of(draw: random.Random, count: int, missing: float) -> Log:
    """Records with gaps of all lengths, some without an event time, some far behind, some at the same moment."""
    apart, arrival = draw.choice([1, 30, 400]), BEGIN + draw.randint(-500, 3_000)
    beyond, grid = draw.choice([0, 10**6, 2**60]), draw.choice([1, 40, 100])
    found: Log = []
    for offset in range(count):
        arrival += 0 if draw.random() < 0.2 else draw.randint(0, 2 * apart)
        arrival += draw.choice([800, 5_000, 20_000]) if draw.random() < 0.05 else 0
        arrival -= arrival % grid if arrival % grid <= arrival - (found[-1][0] if found else 0) else 0
        behind = draw.choice([0, 50, 3_000]) if draw.random() < 0.9 else draw.choice([100_000, beyond])
        time = MIN_TIMESTAMP if draw.random() < missing else arrival - behind
        found.append((arrival, 0, offset, time, False, draw.choice(["a", "b", None])))
    return found


def strategy_of(draw: random.Random) -> WatermarkStrategy:
    strategy = WatermarkStrategy(
        draw.choice(GENERATORS),
        (0,),
        ((0,),),
        per_event=draw.random() < 0.5,
        interval=draw.choice([40, 100, 200]),
        timer_start=BEGIN + draw.choice([0, -1000, 13, 700]),
        idleness=draw.choice([None, 50, 1000, 3000]),
    )
    if strategy.per_event and draw.random() < 0.3:
        return replace(strategy, interval=0, idleness=None)
    return strategy


def trace_of(
    way: Any, log: Log, until: int, batches: list[int], strategy: WatermarkStrategy
) -> tuple[list[tuple[Any, ...]], dict[str, Any]]:
    """All rows of the trace, sorted, and the generator's part of the snapshot."""
    rows = [pa.array(column, kind) for column, kind in zip(zip(*log, strict=True), KINDS, strict=True)]
    whole = pa.RecordBatch.from_arrays([pa.nulls(len(log), pa.int32()), *rows], names=NAMES)
    found: list[dict[str, Any]] = []
    edges = [0, *sorted(batches), len(log)]
    for start, end in itertools.pairwise(edges):
        if start < end:
            found += way.process(whole.slice(start, end - start)).to_pylist()
    found += way.end(until).to_pylist()
    state = json.loads(next(row["state"] for row in found if row["state"] is not None))
    if strategy.idleness is None or state["partial"]["active_since_probe"]:
        state["partial"]["countdown_from"] = None  # the next probe forgets it
    traced_rows = [tuple(row.values())[1:6] for row in found if row["arrival"] != NEVER]
    return sorted(traced_rows, key=lambda row: (*row[:4], row[4] is None, bool(row[4]))), state


KINDS = (*[pa.int64()] * 4, pa.bool_(), pa.string())
NAMES = ["generator", "arrival", "major", "minor", "ts", "marker", "stream"]


def ways(strategy: WatermarkStrategy, state: dict[str, Any] | None) -> tuple[Any, Any]:
    one, other = copy.deepcopy(state), copy.deepcopy(state)
    own = one and one["subtasks"][0]["partials"][0]
    return traced._OneByOne(0, strategy, own, one), traced._traced(0, strategy, other)


@settings(max_examples=sample(300, 20_000), deadline=None)
@given(seed=st.integers(0, 2**40))
def test_arrays_give_the_trace_that_records_give(seed: int) -> None:
    draw = random.Random(seed)
    strategy = strategy_of(draw)
    missing = 0.0 if isinstance(strategy.generator, Custom) else 0.1  # its own arithmetic ends at the least time
    log = log_of(draw, draw.choice([1, 2, 10, 120]), missing)
    cut = draw.randint(1, len(log))
    while 0 < cut < len(log) and log[cut][0] == log[cut - 1][0]:
        cut += 1
    state = None
    for part, until in ((log[:cut], log[cut - 1][0]), (log[cut:], log[-1][0] + draw.choice([0, 300, 30_000]))):
        if not part:
            continue
        batches = [draw.randrange(len(part)) for _ in range(draw.choice([0, 1, 4]))]
        one, other = ways(strategy, state)
        assert not isinstance(other, traced._OneByOne)
        expected = trace_of(one, part, until, [], strategy)
        assert trace_of(other, part, until, batches, strategy) == expected
        partial = expected[1]["partial"]
        ticks = MAX_TIMESTAMP
        if strategy.interval:
            start = strategy.timer_start
            ticks = start + (max(until - start, 0) // strategy.interval + 1) * strategy.interval
        state = {"subtasks": [{"partials": [partial]}], "next_tick": ticks}


@pytest.mark.parametrize("generator", [AverageOfLast(3, 0), Interleaved(200), AdvanceAfterWait(200, 700)])
def test_a_generator_with_a_name_has_no_loop(generator: Any) -> None:
    strategy = WatermarkStrategy(generator, (0,), ((0,),), per_event=False, interval=200, timer_start=BEGIN)
    assert isinstance(traced._traced(0, strategy, None), traced._InBatches)


@pytest.mark.parametrize(("name", "told"), [("AnotherBound", "on_batch gives"), ("Forgetful", "on_batch leaves")])
@pytest.mark.parametrize("on", ["event", "tick"])
def test_a_class_whose_faces_differ_is_refused(name: str, told: str, on: str) -> None:
    strategy = WatermarkStrategy(own(name, on), (0,), ((0,),), interval=200, timer_start=BEGIN)
    log = log_of(random.Random(1), 10, 0)
    with pytest.raises(ValueError, match=told):
        trace_of(ways(strategy, None)[1], log, log[-1][0], [], strategy)
