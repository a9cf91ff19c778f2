"""Real events: what the replay publishes for them is what real Flink emitted, window by window and pane by pane."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from spark_jobs.definition import load_pipeline
from spark_jobs.eventtime.durations import FOREVER
from spark_jobs.replay.spec import Panes
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import LogProgress
from tests.sampling import first_of

SAMPLE = Path("tests/data/flights").resolve()
RUNS = ["periodic", "sessions", "hourly", "hourly_refining", "sliding"]


def definition(run: str) -> str:
    """The pipeline YAML of one of the recorded Flink jobs, made from its own configuration."""
    config = json.loads((SAMPLE / f"config_{run}.json").read_text())
    watermark, emission, window = config["watermark"], config["emission"], dict(config["window"])
    kind = window.pop("kind")
    lines = [
        f"name: flights_{run}",
        "history:",
        "  kind: files",
        f"  path: {SAMPLE}/events.parquet",
        "  format: parquet",
        "  position: {partition: partition, offset: offset, arrival: arrival}",
        "value: {format: json, column: value, schema: 'sched_dep STRING, distance BIGINT'}",
        "keys: {carrier: key}",
        "event_time: {expression: sched_dep, unit: iso}",
        "watermark:",
        "  generator: bounded_out_of_orderness",
        f"  bound: {watermark['bound_ms']} ms",
        f"  emission: {emission['mode']}",
        f"  partitions: {config['partitions']}",
        "window:",
        f"  type: {kind}",
        *(f"  {name.removesuffix('_ms')}: {value} ms" for name, value in window.items()),
        f"allowed_lateness: {'forever' if config['allowed_lateness_ms'] == FOREVER else config['allowed_lateness_ms']}"
        + ("" if config["allowed_lateness_ms"] in (0, FOREVER) else " ms"),
        "aggregates: {flights: count(*), total: sum(distance), shortest: min(distance), longest: max(distance)}",
        "output: {namespace: flights}",
        "",
    ]
    if emission["interval_ms"]:
        lines.insert(lines.index("window:"), f"  interval: {emission['interval_ms']} ms")
        lines.insert(lines.index("window:"), f"  timer_start: {_instant(config['clock']['start_ms'])}")
    if "idleness_ms" in watermark:
        lines.insert(lines.index("window:"), f"  idleness: {watermark['idleness_ms']} ms")
    return "\n".join(lines)


def _instant(milliseconds: int) -> str:
    from spark_jobs.definition.instants import format_instant

    return format_instant(milliseconds)


@pytest.mark.long
@pytest.mark.parametrize("run", first_of(RUNS))
def test_published_panes_and_late_records_are_those_of_flink(run, spark, tmp_path) -> None:
    path = tmp_path / f"{run}.yaml"
    path.write_text(definition(run))
    pipeline = load_pipeline(path)

    result = execute(spark, pipeline, make_plan(spark, pipeline), LogProgress(), panes=Panes.ALL)

    columns = ["window_start", "window_end", "pane"]
    emitted = spark.read.parquet(f"{SAMPLE}/emitted_{run}.parquet")
    wanted = emitted.select(F.col("key"), *columns, "count", "sum", "min", "max")
    published = spark.table(result.tables.windows).where("pane IS NOT NULL")
    ours = published.select("carrier", *columns, "flights", "total", "shortest", "longest")
    assert ours.count() == wanted.count()
    assert ours.exceptAll(wanted).isEmpty()

    wanted_late = spark.read.parquet(f"{SAMPLE}/late_{run}.parquet").select("partition", "offset")
    ours_late = spark.table(result.tables.late).where("side_output").select("partition", "offset")
    assert sorted(map(tuple, ours_late.collect())) == sorted(map(tuple, wanted_late.collect()))

    # The identity that links the two tables: every dropped pair is a missed window of a record in the late table.
    missed = spark.table(result.tables.late).agg(F.sum("windows_missed")).collect()[0][0] or 0
    assert result.counts.pairs_dropped == missed
