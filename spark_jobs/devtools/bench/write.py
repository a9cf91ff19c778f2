"""What writing everything to Iceberg costs, against plain Spark writing its result into a table of the same catalog."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

from spark_jobs.devtools.bench.data import KEYS, Dataset, dataset
from spark_jobs.devtools.bench.definition import bench_pipeline
from spark_jobs.devtools.bench.measure import Row, alternate, to_table
from spark_jobs.devtools.bench.workload import Bench, plain
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.plan import make_plan
from spark_jobs.runs.progress import NoProgress


def write(bench: Bench) -> Iterator[Row]:
    """A whole run (plan, timeline, windows, late records, quarantine, counts) against CREATE OR REPLACE TABLE."""
    data = dataset(bench.spark, bench.home, bench.records)
    for keys in KEYS:
        median = alternate(
            {
                "run": lambda keys=keys: _run(bench, data, keys),
                "plain": lambda keys=keys: _plain(bench, data, keys),
            },
            min(bench.rounds, 3),
            bench.log,
        )
        yield Row(
            "write",
            f"{data.records / 1e6:g}M records, {keys:,} keys, to Iceberg",
            median["run"],
            median["plain"],
            note="plan, windows, late records, quarantine and counts against the complete values alone",
        )


def _run(bench: Bench, data: Dataset, keys: int) -> None:
    """Into a new table each time: one that holds the windows already would have nothing to write."""
    pipeline = bench_pipeline(data, keys, bench.home / "bench", f"bench_{keys}_{secrets.token_hex(4)}")
    execute(bench.spark, pipeline, make_plan(bench.spark, pipeline), NoProgress())


def _plain(bench: Bench, data: Dataset, keys: int) -> None:
    to_table(plain(bench.spark, data, keys, TumblingWindows(MINUTE)), f"plain_{keys}")
