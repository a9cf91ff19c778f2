"""What writing everything to Iceberg costs, against plain Spark writing its result into a table of the same catalog."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator

from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from tests.bench.data import KEYS, Dataset, dataset
from tests.bench.definition import bench_pipeline
from tests.bench.measure import Row, alternate, to_table
from tests.bench.workload import Bench, plain


def write(bench: Bench) -> Iterator[Row]:
    """A whole run (plan, timeline, windows, late records, quarantine, counts) against CREATE OR REPLACE TABLE."""
    data = dataset(bench.spark, bench.home, bench.records)
    for keys in KEYS:
        stages: dict[str, float] = {}
        median = alternate(
            {
                "run": lambda keys=keys, stages=stages: _run(bench, data, keys, stages),
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
            note="all of a run against the complete values alone; the last one: "
            + ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in stages.items()),
        )


def _run(bench: Bench, data: Dataset, keys: int, stages: dict[str, float]) -> None:
    """Into a new table each time: one that holds the windows already would have nothing to write.

    `stages` gets the seconds of each.
    """
    pipeline = bench_pipeline(data, keys, bench.home / "bench", f"bench_{keys}_{secrets.token_hex(4)}")
    began = time.perf_counter()
    plan = make_plan(bench.spark, pipeline)
    stages["plan"] = time.perf_counter() - began
    stages |= execute(bench.spark, pipeline, plan, NoProgress()).timings


def _plain(bench: Bench, data: Dataset, keys: int) -> None:
    to_table(plain(bench.spark, data, keys, TumblingWindows(MINUTE)), f"plain_{keys}")
