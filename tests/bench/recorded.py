"""The replay of a Structured Streaming query by its checkpoint, against plain Spark batch."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_jobs.eventtime.durations import DAY, MINUTE
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import KINDS, BatchKind, BatchLog, OffsetRanges
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.replay.spark.microbatches import MicroBatches
from spark_jobs.replay.spark.rules import StructuredStreamingRules
from tests.bench.data import BOUND, KEYS, MIDNIGHT, PARTITIONS, RECORDS_A_DAY, Dataset, dataset
from tests.bench.measure import Row, alternate, to_nowhere
from tests.bench.workload import Bench, plain, replay_spec, replayed

TARGETS = {100: "<= 2.5", 10_000: "<= 1.6"}
BATCHES = 1_000


def recorded(bench: Bench) -> Iterator[Row]:
    """One-minute windows by the checkpoint of 1,000 batches, 100 and 10,000 keys."""
    windows = TumblingWindows(MINUTE)
    data = dataset(bench.spark, bench.home, bench.records)
    spec = replay_spec(windows, rules=StructuredStreamingRules(batches_of(data), OutputMode.APPEND))
    for keys in KEYS:
        median = alternate(
            {
                "replay": lambda keys=keys: replayed(bench.spark, data, keys, windows, to_nowhere, spec),
                "plain": lambda keys=keys: to_nowhere(plain(bench.spark, data, keys, windows)),
            },
            bench.rounds,
            bench.log,
        )
        what = f"{data.records / 1e6:g}M records, {keys:,} keys, {BATCHES:,} batches"
        yield Row("recorded", what, median["replay"], median["plain"], TARGETS[keys])


def batches_of(data: Dataset) -> MicroBatches:
    """Batches of about equal size, each with the watermark that the records before it give, up to a moment."""
    ends = np.arange(1, BATCHES + 1, dtype=np.int64) * (data.records // PARTITIONS) // BATCHES
    ends[-1] = -(-data.records // PARTITIONS)
    planned = MIDNIGHT + ends * PARTITIONS * DAY // RECORDS_A_DAY
    numbers = np.arange(BATCHES, dtype=np.int64)
    watermarks = np.concatenate(([0], planned[:-1] - BOUND))
    before = np.concatenate(([0], watermarks[:-1]))
    kinds = np.full(BATCHES, KINDS.index(BatchKind.COMMITTED), dtype=np.int64)
    read = OffsetRanges(np.concatenate(([0], ends[:-1])), ends, numbers)
    log = BatchLog(numbers, kinds, planned, watermarks, before)
    return MicroBatches.of(log, True, dict.fromkeys(range(PARTITIONS), read))
