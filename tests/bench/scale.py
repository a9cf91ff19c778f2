"""What very many or unevenly shared records cost. Nothing is stored: Spark generates the log while it reads it.

`skew` compares logs of one size, in turns, in one process. `scale` takes ten times more records from line to line, each
in a process of its own with a heap of 4 GiB. `cluster` replays the same log in one process and on a standalone cluster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.durations import DAY, MINUTE, SECOND
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.replay.engine import History, Replay
from spark_jobs.runs.planning.chunking import chunks_of
from spark_jobs.spark.shuffles import shuffles_for
from tests.bench import RECORDS
from tests.bench.data import BOUND, MIDNIGHT, span_of
from tests.bench.growth import HEAP, growth_row, in_child
from tests.bench.measure import Row, alternate, input_read, to_nowhere
from tests.bench.workload import Bench, covering, replay_spec
from tests.services.spark_cluster import SparkCluster

PARTITIONS = 8
MANY_PARTITIONS = 1_000
KEYS = 10_000
EVEN_KEY = f"(id * 7919) % {KEYS}"
MANY_KEYS = 10_000_000
YEAR = 365 * DAY
CHUNKS = 12
SIZES = (10_000_000, 100_000_000, 1_000_000_000)
_TASKS_FOR = 2_500_000
"""Records of one task that generates them."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log of `records` over `span` ms; record `i` arrives before record `i + 1`, and its offset is `i`.

    Attributes:
        partition, key: Of record `id`, as SQL.
        size: Of the windows, in ms.
        partitions: How many there are.
        burst: The share of the records that arrives within one minute, in the middle.
        chunks: How many parts of the range are replayed one after another; all share one timeline.
    """

    records: int
    span: int
    partition: str = f"id % {PARTITIONS}"
    key: str = EVEN_KEY
    size: int = MINUTE
    partitions: int = PARTITIONS
    burst: float = 0.0
    chunks: int = 1

    def read(self, spark: SparkSession) -> History:
        """The history, generated anew with each read of it."""
        arrival = self._arrival()
        behind = F.pmod(F.xxhash64("id"), F.lit(BOUND))
        late = F.when(F.pmod(F.xxhash64("id", F.lit(1)), F.lit(100)) == 0, F.lit(20 * BOUND)).otherwise(F.lit(0))
        frame = spark.range(0, self.records, 1, max(8, self.records // _TASKS_FOR)).select(
            F.expr(f"CAST({self.partition} AS INT)").alias(PARTITION),
            F.col("id").alias(OFFSET),
            arrival.alias(ARRIVAL),
            F.expr(f"CAST({self.key} AS INT)").alias("key"),
            F.greatest(arrival - behind - late, F.lit(MIDNIGHT)).alias(EVENT_TIME),
            F.pmod(F.xxhash64("id", F.lit(2)), F.lit(10_000)).alias("value"),
        )
        return History(frame, TimeRange(MIDNIGHT, MIDNIGHT + self.span + 1), MIDNIGHT + self.span + 1)

    def _arrival(self) -> Column:
        """Evenly over the span, but for the burst: the records in the middle of the log."""
        number, middle = F.col("id"), self.span // 2
        calm = F.lit(MIDNIGHT) + F.expr(f"CAST(id * ({self.span} / {self.records}) AS BIGINT)")
        if not self.burst:
            return calm
        first = int(self.records * (1 - self.burst) / 2)
        last = first + int(self.records * self.burst)
        before = F.lit(MIDNIGHT) + (number * F.lit(middle / first)).cast("long")
        within = F.lit(MIDNIGHT + middle) + ((number - F.lit(first)) * F.lit(MINUTE / (last - first))).cast("long")
        rest = (self.span - middle - MINUTE) / (self.records - last)
        after = F.lit(MIDNIGHT + middle + MINUTE) + ((number - F.lit(last)) * F.lit(rest)).cast("long")
        return F.when(number < first, before).when(number < last, within).otherwise(after)

    def replay(self, spark: SparkSession) -> Iterator[DataFrame]:
        """The windows, faithful and complete, chunk by chunk."""
        windows = TumblingWindows(self.size)
        history = self.read(spark)
        whole = covering(windows, history.event_times)
        with (
            shuffles_for(spark, self.records),
            Replay(history, replay_spec(windows, self.partitions)) as replay,
        ):
            for chunk in chunks_of(windows, whole, self.chunks):
                yield replay.windows(chunk)


def _skews(records: int) -> dict[str, tuple[Log, str]]:
    """Logs of one size by name; and what each may cost, as a multiple of the even one."""
    span = span_of(records)
    return {
        "even": (Log(records, span), ""),
        "one key with half of the records": (Log(records, span, key=f"IF(id % 2 = 0, 0, {EVEN_KEY})"), "<= 2"),
        "one window with a tenth": (Log(records, span, burst=0.1), "<= 2"),
        "one partition with 90 %": (Log(records, span, partition=f"IF(id % 10 < 9, 0, id % {PARTITIONS})"), "<= 2"),
        "1,000 partitions": (
            Log(records, span, partition=f"id % {MANY_PARTITIONS}", partitions=MANY_PARTITIONS),
            "",
        ),
        "a million window ends": (Log(records, 1_000_000 * SECOND, size=SECOND), ""),
    }


def skew(bench: Bench) -> Iterator[Row]:
    """Keys, windows and partitions with most of the records, against a log that shares them evenly."""
    logs = _skews(bench.records)
    for name, (log, target) in logs.items():
        if name == "even":
            continue
        contenders = {
            which: lambda log=log: _all(bench.spark, log) for which, log in (("even", logs["even"][0]), (name, log))
        }
        median = alternate(contenders, min(bench.rounds, 3), bench.log)
        yield Row("skew", f"{name}, {bench.records / 1e6:g}M records", median[name], median["even"], target)


def scale(bench: Bench) -> Iterator[Row]:
    """A year of one-minute windows in twelve chunks, up to a billion records; and 100M distinct keys and windows."""
    for records in SIZES:
        records = records * bench.records // RECORDS
        what = f"{records / 1e6:g}M records, a year of one-minute windows, {KEYS:,} keys, {CHUNKS} chunks"
        yield growth_row(bench, "scale", "scale", records, what)
    pairs = 5 * bench.records
    what = f"{pairs / 1e6:g}M records, nearly each of a key and window of its own"
    yield growth_row(bench, "scale", "pairs", pairs, what)


def cluster(bench: Bench) -> Iterator[Row]:
    """One process with two cores, and two workers with one core each: times, and whether all windows are the same."""
    alone = in_child("windows", bench.records, bench.home)
    with tempfile.TemporaryDirectory() as folder, SparkCluster(Path(folder), memory="2g") as workers:
        shared = in_child("windows", bench.records, bench.home, workers.url)
    if alone["windows"] != shared["windows"]:
        raise RewindowError("the cluster's windows differ", f"{alone['windows']} and {shared['windows']}", "")
    what = f"{bench.records / 1e6:g}M records on two workers, against one process; {shared['windows']}, identical"
    yield Row("cluster", what, shared["seconds"], alone["seconds"], note=f"heap {HEAP}, workers 1 core and 2 GiB each")


def _all(spark: SparkSession, log: Log) -> None:
    for windows in log.replay(spark):
        to_nowhere(windows)


def measure_scale(spark: SparkSession, records: int) -> dict[str, Any]:
    """Seconds and shuffled bytes of a year, chunk by chunk."""
    return _measured(spark, Log(records, YEAR, chunks=CHUNKS))


def measure_pairs(spark: SparkSession, records: int) -> dict[str, Any]:
    """The same of a log with nearly as many keys and windows as records."""
    return _measured(spark, Log(records, span_of(records), key=f"pmod(xxhash64(id, 3), {MANY_KEYS})"))


def _measured(spark: SparkSession, log: Log) -> dict[str, Any]:
    began = time.perf_counter()
    shuffled = 0
    for windows in log.replay(spark):
        with input_read(spark) as read:
            to_nowhere(windows)
        shuffled += read.shuffled
    return {"seconds": time.perf_counter() - began, "shuffle_mib": shuffled / (1 << 20)}


def measure_windows(spark: SparkSession, records: int) -> dict[str, Any]:
    """Seconds of a log's windows, their number, and a checksum of all their values."""
    began = time.perf_counter()
    log = Log(records, span_of(records))
    counts = [
        windows.agg(F.count("*"), F.sum(F.xxhash64(*windows.columns).cast("decimal(38)"))).collect()[0]
        for windows in log.replay(spark)
    ]
    said = ", ".join(f"{count:,} windows with checksum {checksum}" for count, checksum in counts)
    return {"seconds": time.perf_counter() - began, "windows": said}
