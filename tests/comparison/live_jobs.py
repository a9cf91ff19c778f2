"""The recorded live jobs as pipelines, and their comparison."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.comparison.comparer import Comparer, Comparison
from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.comparison.join_keys import key_types
from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import spec_of
from spark_jobs.runs.planning.plan import make_plan, read_planned
from spark_jobs.sources import good

LIVE = Path("tests/data/live").resolve()
UNEXPLAINED = ("mismatch", "missing", "extra")


def definition(run: str, job: str, *, evidence: bool, emitted: Path | None = None, live: str = "") -> str:
    """The pipeline YAML of a recorded job; `emitted` in place of its own rows, `live` more lines of that section."""
    config = json.loads((LIVE / run / f"{job}.config.json").read_text())
    watermark, window = config["watermark"], dict(config["window"])
    periodic = config["emission"]["mode"] == "periodic"
    kind = window.pop("kind")
    lines = [
        "name: live_job",
        "history:",
        "  kind: files",
        f"  path: {LIVE}/{run}/topic.parquet",
        "  format: parquet",
        "  position: {partition: partition, offset: offset, arrival: arrival}",
        "value: {format: json, column: value, schema: 'ts BIGINT, v BIGINT'}",
        "keys: {key: key}",
        "event_time: {expression: ts, unit: ms}",
        "watermark:",
        "  generator: bounded_out_of_orderness",
        f"  bound: {watermark['bound_ms']} ms",
        f"  emission: {config['emission']['mode']}",
        "  partitions: 4",
        *([f"  interval: {config['emission']['interval_ms']} ms"] if periodic else []),
        *([f"  timer_start: {format_instant(config['job_ready'])}"] if periodic else []),
        *([f"  idleness: {watermark['idleness_ms']} ms"] if "idleness_ms" in watermark else []),
        "window:",
        f"  type: {kind}",
        *(f"  {name.removesuffix('_ms')}: {value} ms" for name, value in window.items()),
        f"allowed_lateness: {config['allowed_lateness_ms']} ms".replace(" 0 ms", " 0"),
        "aggregates: {n: count(*), total: sum(v)}",
        "end_of_input: freeze",
        "live:",
        f"  source: {{kind: files, path: {emitted or LIVE / run / f'{job}.emitted.parquet'}, format: parquet}}",
        "  values: {n: count, total: sum}",
        "  pane: pane",
        "  emitted_at: emitted_at",
        f"  source_subtasks: {config['parallelism']}",
        *(["  last_offsets: last_offsets"] if evidence else []),
    ]
    return "\n".join(lines) + "\n" + live


@dataclass(frozen=True)
class Compared:
    """A comparison, with what made it."""

    comparison: Comparison
    comparer: Comparer

    @property
    def rows(self) -> DataFrame:
        return self.comparison.rows

    def verdicts(self) -> Counter:
        return Counter(dict(self.rows.groupBy("verdict").count().collect()))


@contextmanager
def compared(spark: SparkSession, pipeline: Pipeline) -> Iterator[Compared]:
    """The comparison of all windows of a pipeline."""
    plan = make_plan(spark, pipeline)
    records = good(read_planned(spark, pipeline, plan))
    spec = spec_of(pipeline, [p.partition for p in plan.partitions])
    with Replay(History(records, plan.event_times, plan.processing_time_end), spec) as replay:
        emitted = EmittedRows(spark, pipeline, key_types(records.schema, spec.keys)).windows(plan.span)
        with Comparer(replay, pipeline, emitted, plan.chunks) as comparer:
            yield Compared(comparer.compare(), comparer)


def loaded(tmp_path: Path, text: str) -> Pipeline:
    path = tmp_path / "live_job.yaml"
    path.write_text(text)
    return load_pipeline(path)
