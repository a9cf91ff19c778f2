"""Two definitions side by side, against one run of the pipeline."""

from __future__ import annotations

import secrets
import statistics
from collections.abc import Iterator

from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.whatif.definitions import variants_of
from spark_jobs.whatif.measure import measure
from tests.bench.data import dataset
from tests.bench.definition import bench_pipeline
from tests.bench.measure import Row
from tests.bench.nights import processor_seconds
from tests.bench.reconcile import drop_tables
from tests.bench.workload import Bench

KEYS = 10_000


def what_if(bench: Bench) -> Iterator[Row]:
    """A run and a comparison of two definitions, in turns; the first of each warms up."""
    ours, theirs = [], []
    for number in range(min(bench.rounds, 3) + 1):
        run, compared = _turn(bench)
        bench.log(f"{f'round {number}' if number else 'warm-up'}: run {run:.1f} s, two definitions {compared:.1f} s")
        if number:
            ours.append(compared)
            theirs.append(run)
    what = f"{bench.records / 1e6:g}M records: two definitions against one run"
    medians = statistics.median(ours), statistics.median(theirs)
    yield Row("what_if", what, *medians, "<= 1.5", "seconds of processors")


def _turn(bench: Bench) -> tuple[float, float]:
    """Seconds of processors of a run, and of two definitions beside what it has published."""
    spark, data = bench.spark, dataset(bench.spark, bench.home, bench.records)
    pipeline = bench_pipeline(data, KEYS, bench.home / "bench", f"what_if_{secrets.token_hex(4)}")
    try:
        began = processor_seconds()
        execute(spark, pipeline, make_plan(spark, pipeline), NoProgress())
        ran = processor_seconds()
        measure(spark, variants_of(pipeline, ["watermark.bound=5s"]), NoProgress())
        return ran - began, processor_seconds() - ran
    finally:
        drop_tables(spark, pipeline)
