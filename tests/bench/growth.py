"""How time and memory grow: each size in a process of its own, with a heap of 4 GiB.

`python -m tests.bench.growth KIND RECORDS [MASTER]` runs one size and prints it as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import RewindowError
from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE, SECOND
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.windows import close_lookup
from spark_jobs.settings import Variable, settings
from tests.bench.data import MIDNIGHT, dataset
from tests.bench.measure import Row, peak_memory_mib, to_nowhere
from tests.bench.workload import Bench, replay_spec, replayed

HEAP = "4g"
KEYS = 10_000
YEAR_MS = 365 * DAY
YEAR_PARTITIONS = 100
IDLE_PARTITIONS = 64
YEAR_RECORDS = 300_000_000
RESTLESS_RECORDS = 30_000_000


def growth(bench: Bench) -> Iterator[Row]:
    """A tenth, all and five times the records; the log's time grows with them, and so do the groups."""
    for records in (bench.records // 10, bench.records, bench.records * 5):
        dataset(bench.spark, bench.home, records)
        yield growth_row(bench, "growth", "replay", records, f"{records / 1e6:g}M records, {KEYS:,} keys")


def year(bench: Bench) -> Iterator[Row]:
    """A year of one-second windows over 100 partitions: the timeline, and one day's close positions."""
    what = f"timeline of {bench.records / 1e6:g}M records, 1 s windows, {YEAR_PARTITIONS} partitions"
    yield growth_row(bench, "year", "year", bench.records, what)


def growth_row(bench: Bench, section: str, kind: str, records: int, what: str) -> Row:
    seen = in_child(kind, records, bench.home)
    memory = "" if seen["jvm_mib"] is None else f"at most {seen['jvm_mib'] / 1024:.1f} GiB (JVM) "
    note = f"{memory}and {seen['python_mib']:.0f} MiB (Python) of memory, heap {HEAP}"
    bench.log(f"{what}: {seen['seconds']:.1f} s, {note}")
    if "lookup_seconds" in seen:
        note = f"{seen['rows']:,} rows, a day of it looked up in {seen['lookup_seconds']:.1f} s; {note}"
    if "shuffle_mib" in seen:
        note = f"{seen['shuffle_mib'] / 1024:.2f} GiB shuffled; {note}"
    return Row(section, what, seen["seconds"], note=note)


def in_child(kind: str, records: int, home: Path, *master: str) -> dict[str, Any]:
    """Run one size in a new process and return what it measured. Raises RewindowError when it fails."""
    command = [sys.executable, "-m", "tests.bench.growth", kind, str(records), *master]
    environment = {**os.environ, Variable.DRIVER_MEMORY: HEAP, Variable.HOME: str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise RewindowError(f"{kind} of {records:,} records failed: {last}", " ".join(command), "See logs/spark.log.")
    return json.loads(done.stdout.splitlines()[-1])


def year_history(spark: SparkSession, records: int) -> History:
    """A sparse log over a year, without files: record `i` at partition `i % 100`, up to a minute out of order."""
    arrival = F.expr(f"{MIDNIGHT} + CAST(id * ({YEAR_MS} / {records}) AS BIGINT)")
    tasks = 4 * spark.sparkContext.defaultParallelism
    frame = spark.range(0, records, 1, tasks).select(*_columns(YEAR_PARTITIONS, arrival))
    return History(frame, TimeRange(MIDNIGHT - MINUTE, MIDNIGHT + YEAR_MS), MIDNIGHT + YEAR_MS)


def _columns(partitions: int, arrival: Column) -> list[Column]:
    """The columns of a log: record `id` at partition `id % partitions`, up to a minute out of order."""
    return [
        F.expr(f"CAST(id % {partitions} AS INT)").alias(PARTITION),
        F.expr(f"id div {partitions}").alias(OFFSET),
        arrival.alias(ARRIVAL),
        F.pmod("id", F.lit(KEYS)).cast("int").alias("key"),
        (arrival - F.pmod(F.xxhash64("id"), F.lit(MINUTE))).alias(EVENT_TIME),
        F.col("id").alias("value"),
    ]


def idle_year(spark: SparkSession, records: int) -> tuple[History, WatermarkStrategy]:
    """A year of a job with ticks of 200 ms and idleness, without files; with fewer than 300M records a part of it.

    Each partition is silent for an hour of each month, not all at the same time; in one night of the year all are.
    """
    span = _idle_span(records)
    arrival = F.expr(f"{MIDNIGHT} + CAST(id * ({span} / {records}) AS BIGINT)")
    middle = MIDNIGHT + span // 2
    silent = F.pmod(F.col(ARRIVAL) - F.col(PARTITION) * F.lit(7 * HOUR), F.lit(30 * 24 * HOUR)) < F.lit(HOUR)
    frame = (
        spark.range(0, records, 1, 16 * spark.sparkContext.defaultParallelism)
        .select(*_columns(IDLE_PARTITIONS, arrival))
        .where(~silent & ~F.col(ARRIVAL).between(middle, middle + 4 * HOUR))
    )
    return History(frame, TimeRange(MIDNIGHT - MINUTE, MIDNIGHT + span), MIDNIGHT + span), _idle_strategy()


def _idle_strategy() -> WatermarkStrategy:
    ids = tuple(range(IDLE_PARTITIONS))
    return WatermarkStrategy(
        BoundedOutOfOrderness(MINUTE),
        partitions=ids,
        subtasks=(ids[::2], ids[1::2]),
        per_event=False,
        interval=200,
        timer_start=MIDNIGHT,
        idleness=MINUTE,
    )


def restless_year(spark: SparkSession, records: int) -> tuple[History, WatermarkStrategy]:
    """The same job over a log in which some partition becomes idle, or comes back, every few seconds.

    Records come at random, one each 67 s a partition in the mean. A year has 30M; with fewer it is a part of one.
    """
    span = YEAR_MS * records // RESTLESS_RECORDS
    arrival = F.expr(f"{MIDNIGHT} + CAST(id * ({span} / {records}) AS BIGINT)")
    frame = spark.range(0, records, 1, 4 * spark.sparkContext.defaultParallelism).select(
        F.pmod(F.xxhash64("id"), F.lit(IDLE_PARTITIONS)).cast("int").alias(PARTITION),
        F.col("id").alias(OFFSET),
        arrival.alias(ARRIVAL),
        F.pmod("id", F.lit(KEYS)).cast("int").alias("key"),
        (arrival - F.pmod(F.xxhash64("id", F.lit(1)), F.lit(MINUTE))).alias(EVENT_TIME),
        F.col("id").alias("value"),
    )
    return History(frame, TimeRange(MIDNIGHT - MINUTE, MIDNIGHT + span), MIDNIGHT + span), _idle_strategy()


def _idle_span(records: int) -> int:
    """So long that a partition has a record each 7 s in the mean, far more often than the idle timeout (ms)."""
    return min(YEAR_MS, YEAR_MS * records // YEAR_RECORDS)


def _measure_idle(spark: SparkSession, history: History, strategy: WatermarkStrategy) -> dict[str, Any]:
    """The day in the middle is looked up."""
    spec = replace(replay_spec(TumblingWindows(MINUTE)), strategy=strategy)
    return _measure_timeline(spark, history, spec, (MIDNIGHT + history.processing_time_end) // 2)


def _measure_replay(spark: SparkSession, records: int) -> dict[str, Any]:
    data = dataset(spark, settings().home, records)
    began = time.perf_counter()
    replayed(spark, data, KEYS, TumblingWindows(MINUTE), to_nowhere)
    return {"seconds": time.perf_counter() - began}


def _measure_year(spark: SparkSession, records: int) -> dict[str, Any]:
    spec = replay_spec(TumblingWindows(SECOND), YEAR_PARTITIONS)
    return _measure_timeline(spark, year_history(spark, records), spec, MIDNIGHT + YEAR_MS // 2)


def _measure_timeline(spark: SparkSession, history: History, spec: ReplaySpec, day: int) -> dict[str, Any]:
    """How long the timeline takes, and the look-up of the day that begins at `day` (epoch ms)."""
    began = time.perf_counter()
    with Replay(history, spec) as replay:
        rows = replay.timeline.rows(spark).count()
        built = time.perf_counter()
        close_lookup(replay.timeline, spec, TimeRange(day, day + DAY))
    return {"seconds": built - began, "rows": rows, "lookup_seconds": time.perf_counter() - built}


def main() -> None:
    """One size, measured in this process; the result is the last line, as JSON."""
    from spark_jobs.spark.session import spark_session
    from tests.bench.scale import measure_pairs, measure_scale, measure_windows

    kind, records, *master = sys.argv[1:]
    spark = spark_session(f"rewindow bench {kind}", master=master[0] if master else None)
    measure = {
        "year": _measure_year,
        "idle_year": lambda spark, records: _measure_idle(spark, *idle_year(spark, records)),
        "restless_year": lambda spark, records: _measure_idle(spark, *restless_year(spark, records)),
        "replay": _measure_replay,
        "scale": measure_scale,
        "pairs": measure_pairs,
        "windows": measure_windows,
    }[kind]
    seen = measure(spark, int(records))
    # The largest resident size: kilobytes on Linux, bytes on macOS.
    python = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(json.dumps({**seen, "jvm_mib": peak_memory_mib(spark), "python_mib": python}))


if __name__ == "__main__":
    main()
