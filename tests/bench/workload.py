"""The two sides of every comparison: the engine's replay, and what a plain Spark user writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AlignedWindows, AnyWindows, SessionWindows, SlidingWindows, TumblingWindows
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.flink.rules import FLINK
from spark_jobs.replay.rule_book import RuleBook
from spark_jobs.replay.spec import Mode, ReplaySpec
from spark_jobs.replay.windows import close_lookup
from tests.bench.data import BOUND, PARTITIONS, Dataset

AGGREGATES = {"events": "count(*)", "total": "sum(value)", "least": "min(value)", "most": "max(value)"}


@dataclass(frozen=True, slots=True)
class Bench:
    """What every section gets. `records` is the size; `rounds` how often to measure; `log` prints a line."""

    spark: SparkSession
    home: Path
    records: int
    rounds: int
    log: Callable[[str], None]


def replay_spec(windows: AnyWindows, partitions: int = PARTITIONS, rules: RuleBook = FLINK) -> ReplaySpec:
    """Faithful and complete, per-event bounded out-of-orderness, nothing allowed late, flushed at the end."""
    ids = tuple(range(partitions))
    strategy = WatermarkStrategy(BoundedOutOfOrderness(BOUND), partitions=ids, subtasks=(ids,))
    return ReplaySpec(rules, strategy, windows, 0, ("key",), AGGREGATES, mode=Mode.BOTH)


def replayed(
    spark: SparkSession,
    data: Dataset,
    keys: int,
    windows: AnyWindows,
    sink: Callable[[DataFrame], None],
    spec: ReplaySpec | None = None,
) -> None:
    """Everything from the files on: timeline, look-up, faithful and complete values, into `sink`."""
    times = data.event_times
    with Replay(_history(spark, data, keys), spec or replay_spec(windows)) as replay:
        sink(replay.windows(covering(windows, times)))


def timeline_only(spark: SparkSession, data: Dataset, keys: int, windows: AnyWindows) -> None:
    """The timeline, up to the close positions of all windows."""
    with Replay(_history(spark, data, keys), replay_spec(windows)) as replay:
        close_lookup(replay.timeline, replay.spec, covering(windows, data.event_times))


def _history(spark: SparkSession, data: Dataset, keys: int) -> History:
    return History(data.canonical(spark, keys), data.event_times, data.event_times.end)


def covering(windows: AnyWindows, times: TimeRange) -> TimeRange:
    """The window starts that records of these event times can have."""
    return TimeRange(times.start - windows.longest, times.end) if isinstance(windows, AlignedWindows) else times


def plain(spark: SparkSession, data: Dataset, keys: int, windows: AnyWindows) -> DataFrame:
    """The complete values as plain Spark batch computes them; for tumbling windows in its fastest form."""
    records = data.read(spark, keys)
    values = [F.expr(text).alias(name) for name, text in AGGREGATES.items()]
    return records.groupBy("key", _plain_window(windows)).agg(*values)


def _plain_window(windows: AnyWindows) -> Column:
    time = F.timestamp_millis(F.col("event_time"))
    match windows:
        case TumblingWindows(size):
            ts = F.col("event_time")
            return (ts - F.pmod(ts, F.lit(size))).alias("window_start")
        case SlidingWindows(size, slide):
            return F.window(time, f"{size} milliseconds", f"{slide} milliseconds").alias("window")
        case SessionWindows(gap):
            return F.session_window(time, f"{gap} milliseconds").alias("window")
        case other:
            raise TypeError(f"no plain counterpart of {type(other).__name__}")
