"""What the quality gate costs, beside replaying and staging what it looks at, and beside one plain aggregation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.eventtime.windows import TumblingWindows
from spark_jobs.quality.gate import check
from spark_jobs.quality.suites import load_suites
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.life.documents import Gate
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.computing import published_windows
from spark_jobs.runs.work.difference import identity_of
from spark_jobs.runs.work.staged_run import StagedRun
from tests.bench.data import PARTITIONS, dataset
from tests.bench.definition import bench_pipeline
from tests.bench.measure import NAMESPACE, Row, alternate
from tests.bench.workload import Bench, replayed

KEYS = (10_000, 100)
STAGED = f"{NAMESPACE}.gate_staged"
SUITES = Path(__file__).parents[2] / "expectations"


def gate(bench: Bench) -> Iterator[Row]:
    """The common suites over the staged windows of a first run, nothing published before it."""
    spark, windows = bench.spark, TumblingWindows(MINUTE)
    data = dataset(spark, bench.home, bench.records)
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {NAMESPACE}")
    for keys in KEYS:
        replayed(spark, data, keys, windows, _stage)
        pipeline = bench_pipeline(data, keys, bench.home / "bench", "gate_published")
        evidence, suites = _evidence(bench, pipeline), load_suites(pipeline, SUITES)
        result = check(evidence, suites)
        count = evidence.staged.count()
        bench.log(f"{keys:,} keys, {count:,} windows: {result.verdict}, {result.spark_jobs} Spark jobs")
        median = alternate(
            {
                "gate": lambda evidence=evidence, suites=suites: _refuse_closed(check(evidence, suites)),
                "plain": lambda evidence=evidence: _plain(evidence),
                "replay and stage": lambda keys=keys: replayed(spark, data, keys, windows, _stage),
            },
            min(bench.rounds, 3),
            bench.log,
        )
        what = f"{data.records / 1e6:g}M records, {count / 1e6:.3g}M windows"
        yield Row(
            "gate",
            f"{what}: against replaying and staging them",
            median["gate"],
            median["replay and stage"],
            "<= 0.4",
            f"{len(result.results)} expectations, {result.spark_jobs} Spark jobs",
        )
        yield Row(
            "gate",
            f"{what}: against the same checks by hand",
            median["gate"],
            median["plain"],
            note="one aggregation, a count of each window's rows, sums by day",
        )


def _stage(windows: DataFrame) -> None:
    published_windows(windows).writeTo(STAGED).createOrReplace()


def _evidence(bench: Bench, pipeline: Pipeline) -> StagedRun:
    spark, staged = bench.spark, bench.spark.table(STAGED)
    plan, spec = make_plan(spark, pipeline), spec_of(pipeline, range(PARTITIONS))
    nothing = staged.limit(0)
    changes = nothing.select(F.lit("inserted").alias("rw_change"), F.lit("backfill").alias("cause"), "*")
    return StagedRun(
        spark,
        pipeline,
        plan,
        spec,
        RunKind.BACKFILL,
        "bench",
        identity_of(spec),
        staged,
        changes,
        nothing,
        None,
        nothing,
        None,
        is_distinct=True,  # one aggregation has made them, as in a backfill
    )


def _refuse_closed(result: Gate) -> None:
    if result.blocks:
        raise RuntimeError("the benchmark's own windows do not pass")


def _plain(evidence: StagedRun) -> None:
    """What somebody writes who wants the same answers and no framework."""
    staged = evidence.staged
    start, end = F.unix_millis("window_start"), F.unix_millis("window_end")
    on_time, late, dropped = (F.col(f"records_{c}") for c in ("on_time", "late", "dropped"))
    closed, all_late = F.col("state") == "closed", F.col("state") == "all_late"
    wrong = [
        F.col("key").isNull(),
        F.col("window_start").isNull(),
        F.col("window_end").isNull(),
        end <= start,
        end - start != MINUTE,
        start % MINUTE != 0,
        (start < evidence.plan.span.start) | (start >= evidence.plan.span.end),
        on_time < 0,
        late < 0,
        dropped < 0,
        on_time + late + dropped < 1,
        closed & (F.col("pane").isNull() | (on_time + late == 0)),
        ~closed & F.col("pane").isNotNull(),
        all_late & ((on_time + late != 0) | (dropped == 0)),
        late != 0,
    ]
    staged.agg(F.count("*"), *(F.count_if(condition) for condition in wrong)).collect()
    staged.groupBy(*evidence.identity).count().where("count > 1").isEmpty()
    staged.groupBy(F.to_date("window_start")).agg(F.count("*"), F.sum(on_time), F.sum(late), F.sum(dropped)).collect()
