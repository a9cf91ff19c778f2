"""Flink SQL's two phases against one phase, on the same records: four source subtasks that read two partitions each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.flink import suppliers
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK, FlinkRules
from tests.bench.data import BOUND, MIDNIGHT, PARTITIONS, dataset
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import Bench, covering, replay_spec

KEYS = 100
TARGET = "<= 1.3"
BOUNDS = {"few records behind": BOUND, "delay 0: many records behind": 0}


def two_phases(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 keys: the replay in two phases, as a multiple of that in one."""
    windows = TumblingWindows(MINUTE)
    data = dataset(bench.spark, bench.home, bench.records)
    subtasks = tuple(tuple(range(first, PARTITIONS, 4)) for first in range(min(4, PARTITIONS)))
    history = History(data.canonical(bench.spark, KEYS), data.event_times, data.event_times.end)
    span = covering(windows, data.event_times)
    for what, delay in BOUNDS.items():
        strategy = WatermarkStrategy(
            suppliers.Lag(delay),
            tuple(range(PARTITIONS)),
            subtasks,
            per_event=False,
            interval=200,
            timer_start=MIDNIGHT,
        )
        one = replace(replay_spec(windows), strategy=strategy, rules=FLINK)
        two = replace(one, rules=FlinkRules(Slices.of(windows)))

        def run(spec=one) -> None:
            with Replay(history, spec) as replay:
                to_nowhere(replay.windows(span))

        contenders: dict[str, Callable[[], None]] = {"one": run, "two": lambda two=two, run=run: run(two)}
        median = alternate(contenders, min(bench.rounds, 3), bench.log)
        yield Row("two_phases", f"{what}, {data.records / 1e6:g}M records", median["two"], median["one"], TARGET)
