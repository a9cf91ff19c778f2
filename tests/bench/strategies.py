"""The timeline of each kind of watermark strategy, and the windows over it, against plain Spark in the same turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.flink import suppliers
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.windows import close_lookup
from tests.bench.data import BOUND, MIDNIGHT, PARTITIONS, dataset
from tests.bench.growth import IDLE_PARTITIONS, growth_row
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import Bench, covering, plain, replay_spec

KEYS = 100
TICK = 200
IDLENESS = 60_000
SLOW_RECORDS = 2_000_000
"""Where each record goes through Python, fewer are enough to see what one costs."""


@dataclass(frozen=True, slots=True)
class _Measured:
    """A strategy, and what its timeline with the windows may cost at most, as a multiple of plain Spark.

    `sparse`: so many partitions become idle between any two of their records.
    """

    strategy: WatermarkStrategy
    target: str = ""
    every_record: bool = False
    sparse: int = 0


class HalfOfTheBound:
    """A generator of one's own: a bound that a user's class holds."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.maximum: int | None = None

    def on_event(self, timestamp: int, arrival: int, output: suppliers.g.WatermarkOutput) -> None:
        self.maximum = timestamp if self.maximum is None else max(self.maximum, timestamp)

    def on_periodic_emit(self, now: int, output: suppliers.g.WatermarkOutput) -> None:
        if self.maximum is not None:
            output.emit_watermark(self.maximum - self.bound)


class HalfOfTheBoundInBatches(HalfOfTheBound):
    """The same over arrays too."""

    def on_batch(self, timestamps: np.ndarray, arrivals: np.ndarray) -> tuple[None, np.ndarray]:
        before = timestamps[0] if self.maximum is None else self.maximum
        top = np.maximum(np.maximum.accumulate(timestamps), before)
        self.maximum = int(top[-1])
        return None, top - self.bound


def _strategies() -> Mapping[str, _Measured]:
    ids = tuple(range(PARTITIONS))
    timer = {"interval": TICK, "timer_start": MIDNIGHT}
    bounded = suppliers.BoundedOutOfOrderness(BOUND)
    per_event = WatermarkStrategy(bounded, ids, (ids,))
    periodic = replace(per_event, per_event=False, **timer)
    idle = replace(periodic, idleness=IDLENESS)
    return {
        "per event": _Measured(per_event, "<= 2.6"),
        "periodic 200 ms": _Measured(periodic, "<= 2.6"),
        "periodic 200 ms, idleness 60 s": _Measured(idle, "<= 3"),
        "the same, two subtasks": _Measured(replace(idle, subtasks=(ids[::2], ids[1::2])), "<= 3"),
        "per event, idleness 60 s": _Measured(replace(per_event, idleness=IDLENESS, **timer), "<= 3"),
        "per event, idleness 60 s, three of eight partitions idle after each record": _Measured(
            replace(per_event, idleness=IDLENESS, **timer), sparse=3
        ),
        "average of the last 100": _Measured(
            replace(per_event, generator=suppliers.AverageOfLast(100, BOUND)), "<= 3", True
        ),
        "advance after wait": _Measured(
            replace(periodic, generator=suppliers.AdvanceAfterWait(BOUND, 60_000)), "<= 3", True
        ),
        "interleaved, one stream": _Measured(replace(per_event, generator=suppliers.Interleaved(BOUND)), "<= 3", True),
        "custom, with on_batch": _Measured(
            replace(periodic, generator=suppliers.Custom(f"{__name__}:HalfOfTheBoundInBatches", {"bound": BOUND})),
            "<= 3",
            True,
        ),
        "custom": _Measured(
            replace(periodic, generator=suppliers.Custom(f"{__name__}:HalfOfTheBound", {"bound": BOUND})), "", True
        ),
    }


def strategies(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 keys: each strategy's timeline with its windows, against plain `groupBy`."""
    spark, windows = bench.spark, TumblingWindows(MINUTE)
    for name, measured in _strategies().items():
        fewer = min(bench.records, SLOW_RECORDS) if measured.every_record else bench.records
        data = replace(dataset(spark, bench.home, fewer), sparse=measured.sparse)
        spec = replace(replay_spec(windows), strategy=measured.strategy)
        history = History(data.canonical(spark, KEYS), data.event_times, data.event_times.end)
        span = covering(windows, data.event_times)

        def timeline(history: History = history, spec=spec, span: TimeRange = span) -> None:
            with Replay(history, spec) as replay:
                close_lookup(replay.timeline, spec, span)

        def everything(history: History = history, spec=spec, span: TimeRange = span) -> None:
            with Replay(history, spec) as replay:
                to_nowhere(replay.windows(span))

        contenders: dict[str, Callable[[], None]] = {
            "plain": lambda data=data: to_nowhere(plain(spark, data, KEYS, windows)),
            "timeline": timeline,
            "replay": everything,
        }
        median = alternate(contenders, min(bench.rounds, 3), bench.log)
        yield Row(
            "strategies",
            f"{name}, {fewer / 1e6:g}M records",
            median["replay"],
            median["plain"],
            measured.target,
            f"the timeline is {median['timeline']:.1f} s of it",
        )
    records = 15 * bench.records
    what = f"timeline, {records / 1e6:g}M records (300M a year), {IDLE_PARTITIONS} partitions, 200 ms, idleness 60 s"
    yield growth_row(bench, "strategies", "idle_year", records, what)
