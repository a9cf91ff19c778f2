"""What a small live job emits, and what a comparison of everything finds."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.plan import make_plan, read_planned
from spark_jobs.runs.progress import NoProgress
from spark_jobs.sources import good


def closed_windows(spark: SparkSession, defined: Pipeline) -> list[dict]:
    """The rows that a faultless live job has emitted by now."""
    plan = make_plan(spark, defined)
    records = good(read_planned(spark, defined, plan))
    spec = spec_of(defined, [p.partition for p in plan.partitions])
    with Replay(History(records, plan.event_times, plan.processing_time_end), spec) as replay:
        closed = replay.windows(plan.span).where("state = 'closed'").collect()
    return [
        {"k": row["k"], "s": row["window_start"], "n": row["n"], "total": row["total"], "pane": row["pane"],
         "at": min(row["fired_arrival"], plan.processing_time_end) + 5 + row["pane"]}
        for row in closed
    ]  # fmt: skip


def full_comparison(spark: SparkSession, defined: Pipeline) -> tuple[set[tuple], dict[str, int]]:
    report = run_compare(spark, defined, NoProgress(), limit=100_000)
    found = {
        (r["k"], parse_instant(r["window_start"]), r["verdict"], r["n__emitted"], r["n__complete"]) for r in report.top
    }
    return found, report.verdicts
