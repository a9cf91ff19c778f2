"""The engine against Spark Structured Streaming over the same files: `availableNow`, watermark and window alike."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from tests.bench.data import BOUND, KEYS, Dataset, dataset
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import AGGREGATES, Bench, replayed

TARGETS = {100: ">= 7", 10_000: ">= 3"}
MICRO_BATCHES = 8
"""More of them come closer to a live job's watermark and take longer; one alone would drop nothing."""
WINDOWS = TumblingWindows(MINUTE)
PARTITIONS = "spark.sql.shuffle.partitions"
DEFAULT_PARTITIONS = "200"


def streaming(bench: Bench) -> Iterator[Row]:
    """One-minute windows, 100 and 10,000 keys, eight micro-batches, the default state store.

    Twice: as Spark comes, with 200 shuffle partitions, each with a state store of its own; and with no more of them
    than the replay has, which somebody must have thought of before the query's first start.
    """
    data = dataset(bench.spark, bench.home, bench.records)
    for keys in KEYS:
        bench.log(f"{keys:,} keys")
        median = alternate(
            {
                "replay": lambda keys=keys: replayed(bench.spark, data, keys, WINDOWS, to_nowhere),
                "streaming": lambda keys=keys: streamed(bench, data, keys, _query_to_nowhere, DEFAULT_PARTITIONS),
                "streaming, tuned": lambda keys=keys: streamed(bench, data, keys, _query_to_nowhere),
            },
            min(bench.rounds, 3),
            bench.log,
        )
        otherwise, still_open = different_counts(bench, data, keys)
        what = f"{data.records / 1e6:g}M records, {keys:,} keys"
        note = f"availableNow counts {otherwise:,} records differently, and has {still_open:,} in windows it left open"
        yield Row("streaming", what, median["replay"], median["streaming"], TARGETS[keys], note)
        tuned = f"{what}, {bench.spark.conf.get(PARTITIONS)} shuffle partitions"
        yield Row("streaming", tuned, median["replay"], median["streaming, tuned"], ">= 1")


def streamed(
    bench: Bench, data: Dataset, keys: int, write: Callable[[DataFrame, Path], None], partitions: str | None = None
) -> None:
    """One streaming query over all files, in the order of their time, from a new checkpoint."""
    before = bench.spark.conf.get(PARTITIONS) or DEFAULT_PARTITIONS
    per_batch = -(-data.files // MICRO_BATCHES)
    reader = bench.spark.readStream.schema(bench.spark.read.parquet(str(data.path)).schema)
    records = reader.option("maxFilesPerTrigger", per_batch).parquet(str(data.path))
    values = [F.expr(text).alias(name) for name, text in AGGREGATES.items()]
    windows = (
        records.select(F.col(f"key_{keys}").alias("key"), F.timestamp_millis("event_time").alias("time"), "value")
        .withWatermark("time", f"{BOUND} milliseconds")
        .groupBy("key", F.window("time", f"{MINUTE} milliseconds"))
        .agg(*values)
    )
    scratch = Path(tempfile.mkdtemp(dir=bench.home / "bench", prefix="checkpoint_"))
    try:
        bench.spark.conf.set(PARTITIONS, partitions or before)
        write(windows, scratch)
    finally:
        bench.spark.conf.set(PARTITIONS, before)
        shutil.rmtree(scratch, ignore_errors=True)


def _query_to_nowhere(windows: DataFrame, checkpoint: Path) -> None:
    query = windows.writeStream.format("noop").outputMode("append").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()


def different_counts(bench: Bench, data: Dataset, keys: int) -> tuple[int, int]:
    """Records that streaming counts in another number than the live job: in windows it emitted, and in the rest."""
    folder = bench.home / "bench"
    faithful, emitted = folder / "faithful_counts", folder / "streaming_counts"

    def write_emitted(windows: DataFrame, checkpoint: Path) -> None:
        counts = windows.select("key", F.unix_millis("window.start").alias("window_start"), "events")
        query = counts.writeStream.format("parquet").outputMode("append").option("path", str(emitted))
        query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    def write_faithful(windows: DataFrame) -> None:
        windows.select("key", "window_start", "events").write.mode("overwrite").parquet(str(faithful))

    try:
        shutil.rmtree(emitted, ignore_errors=True)
        replayed(bench.spark, data, keys, WINDOWS, write_faithful)
        streamed(bench, data, keys, write_emitted)
        ours = bench.spark.read.parquet(str(faithful)).withColumnRenamed("events", "live")
        theirs = bench.spark.read.parquet(str(emitted))
        gap = F.abs(F.coalesce("live", F.lit(0)) - F.coalesce("events", F.lit(0)))
        # Streaming never closes what lies above its last watermark: its answer there is "not yet".
        last = theirs.agg(F.max("window_start")).collect()[0][0]
        is_open = F.lit(True) if last is None else F.col("window_start") > F.lit(last)
        joined = ours.join(theirs, ["key", "window_start"], "full")
        row = joined.agg(F.sum(F.when(~is_open, gap)), F.sum(F.when(is_open, gap))).collect()[0]
        return int(row[0] or 0), int(row[1] or 0)
    finally:
        shutil.rmtree(faithful, ignore_errors=True)
        shutil.rmtree(emitted, ignore_errors=True)
