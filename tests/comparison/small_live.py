"""What a small live job emits, and what a comparison of everything finds."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import run_compare
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import parse_instant
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.sources import good
from tests.runs.small_nights import pipeline

CASE = "sliding, lateness, frozen"
SOURCE = """
  source:
    kind: files
    path: {path}
    format: json
    schema: "k STRING, s BIGINT, n BIGINT, total BIGINT, pane INT, at BIGINT"
  window: {{start: s, unit: ms}}
  pane: pane
  emitted_at: at
  emitted_at_unit: ms
"""
"""The fields of a section `live` for the files in `path`."""


def with_live(folder: Path, name: str, text: str) -> Pipeline:
    """The pipeline of small nights, with the section `live` in `text`."""
    path = Path(pipeline(folder, name, CASE).file or "")
    path.write_text(path.read_text() + text)
    return load_pipeline(path)


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
    return found, report.counts
