"""The benchmark's records: generated once, the same on every machine, stored under `$REWINDOW_HOME/bench`.

Record number `i` of the log arrives `i * 4.32` ms after midnight, 20 million a day, at partition `i % 8`. Its event
time lies up to `BOUND` before its arrival, so records are out of order; for one in a hundred it lies up to ten
minutes further back. All of it comes from hashes of `i`, so another run makes the same records.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION

PARTITIONS = 8
BOUND = 30_000
"""The live job's out-of-orderness bound, in ms."""
LATENESS = 600_000
"""How far beyond the bound the late ones lie at most, in ms."""
MIDNIGHT = 1_767_225_600_000
"""2026-01-01T00:00:00Z in epoch ms: where the log begins. No event time lies before it."""
RECORDS_A_DAY = 20_000_000
KEYS = (100, 10_000)
_ONE_IN = 2_500
"""A partition with so much fewer records has one each 86 s."""

_VERSION = 1
"""Raise it with every change of the records, so that older files are generated again."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """`records` log records under `path`; `files` Parquet files, each a slice of time over all partitions.

    Of the last `sparse` partitions one record in `_ONE_IN` is read.
    """

    path: Path
    records: int
    files: int
    sparse: int = 0

    @property
    def event_times(self) -> TimeRange:
        """Where the event times lie (epoch ms)."""
        return TimeRange(MIDNIGHT, MIDNIGHT + span_of(self.records) + 1)

    def read(self, spark: SparkSession, keys: int) -> DataFrame:
        """The history: partition, offset, arrival, key (one of `keys`), event_time, value."""
        frame = spark.read.parquet(str(self.path))
        if self.sparse:
            frame = frame.where(
                (F.col("partition") < PARTITIONS - self.sparse) | (F.pmod("offset", F.lit(_ONE_IN)) == 0)
            )
        return frame.select("partition", "offset", "arrival", F.col(f"key_{keys}").alias("key"), "event_time", "value")

    def canonical(self, spark: SparkSession, keys: int) -> DataFrame:
        """The history with the columns that the engine reads."""
        return self.read(spark, keys).withColumnsRenamed(
            {"partition": PARTITION, "offset": OFFSET, "arrival": ARRIVAL, "event_time": EVENT_TIME}
        )


def span_of(records: int) -> int:
    """How long the log of so many records is (ms)."""
    return DAY * records // RECORDS_A_DAY


def dataset(spark: SparkSession, home: Path, records: int) -> Dataset:
    """The data set of this many records; generated if it is not there yet."""
    path = home / "bench" / f"records_{records}_v{_VERSION}"
    files = max(8, min(320, records * 32 // RECORDS_A_DAY))
    found = Dataset(path, records, files)
    if not (path / "_SUCCESS").exists():
        shutil.rmtree(path, ignore_errors=True)
        _records(spark, records, files).write.parquet(str(path))
        _date_files_in_order(path)
    return found


def _records(spark: SparkSession, records: int, files: int) -> DataFrame:
    number = F.col("id")
    arrival = F.lit(MIDNIGHT) + F.expr(f"id * {DAY} div {RECORDS_A_DAY}")
    out_of_order = _hashed(1, BOUND)
    behind = F.when(_hashed(2, 100) == 0, F.lit(BOUND) + _hashed(3, LATENESS)).otherwise(out_of_order)
    # A step that shares no divisor with the number of keys: they take turns, and every minute has all of them.
    key = F.pmod(number * F.lit(7_919), F.lit(max(KEYS)))
    return spark.range(0, records, 1, files).select(
        F.pmod(number, F.lit(PARTITIONS)).cast("int").alias("partition"),
        F.expr(f"id div {PARTITIONS}").alias("offset"),
        arrival.alias("arrival"),
        *(F.pmod(key, F.lit(count)).cast("int").alias(f"key_{count}") for count in KEYS),
        F.greatest(arrival - behind, F.lit(MIDNIGHT)).alias("event_time"),
        _hashed(4, 10_000).alias("value"),
    )


def _hashed(seed: int, below: int) -> Column:
    """A number in `[0, below)` that the record's number decides."""
    return F.pmod(F.xxhash64(F.col("id"), F.lit(seed)), F.lit(below))


def _date_files_in_order(path: Path) -> None:
    """Streaming takes files by their modification time; two tasks write two slices at once."""
    for number, file in enumerate(sorted(path.glob("part-*.parquet"))):
        os.utime(file, (MIDNIGHT // 1000 + number, MIDNIGHT // 1000 + number))
