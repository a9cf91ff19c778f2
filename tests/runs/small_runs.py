"""Small pipelines over JSON files, their records, and the tables that a run of them leaves."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from spark_jobs.definition import Pipeline, load_pipeline
from spark_jobs.eventtime.durations import MINUTE
from spark_jobs.lakehouse.tables import Tables
from spark_jobs.runs.planning.plan import make_plan
from spark_jobs.runs.work.backfill import EndPolicy, execute
from spark_jobs.runs.work.job import RunResult
from spark_jobs.runs.work.progress import LogProgress

T0 = 1_600_000_020_000  # on a minute

BOUNDED = "generator: bounded_out_of_orderness, bound: 10 s"

YAML = """
name: {name}
history:
  kind: files
  path: {folder}/*.json
  format: json
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
keys: {{k: k}}
event_time: {{expression: t, unit: ms, missing: {missing}}}
watermark: {{{watermark}, partitions: [0, 1]}}
{window}
aggregates: {{{aggregates}}}
end_of_input: {end}
quarantine: {{threshold: {threshold}}}
output: {{namespace: {namespace}}}
"""


def record(i: int, **other) -> dict:
    """Record number i: partitions in turn, one every second, every 25th two minutes late."""
    late = 2 * MINUTE if i % 25 == 24 else 0
    return {
        "p": i % 2,
        "o": i // 2,
        "a": T0 + i * 1000,
        "k": "ab"[i % 3 == 0],
        "t": T0 + i * 1000 - late,
        "v": i,
    } | other


def write(folder: Path, records: list[dict], name: str = "part-0.json") -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("".join(json.dumps(r) + "\n" for r in records))


def definition_text(
    name: str,
    folder: Path | str,
    *,
    missing: str = "fail",
    end: str = "flush",
    threshold: str = "1 %",
    window: str = "window: {type: tumbling, size: 1 min}",
    watermark: str = BOUNDED,
    aggregates: str = "n: count(*), total: sum(v)",
    namespace: str = "run_tests",
) -> str:
    """The pipeline's YAML; `folder` holds the files that `write` makes."""
    return YAML.format(**locals())


def pipeline(tmp_path: Path, name: str, **options: str) -> Pipeline:
    path = tmp_path / f"{name}.yaml"
    path.write_text(definition_text(name, tmp_path / "data", **options))
    return load_pipeline(path)


def run(spark: SparkSession, defined: Pipeline, end_policy: EndPolicy | None = None, **options) -> RunResult:
    return execute(spark, defined, make_plan(spark, defined, **options), LogProgress(), end_policy=end_policy)


def rows(frame: DataFrame) -> list[str]:
    """All columns but the run's id and wall-clock times, sorted."""
    return sorted(map(repr, frame.drop("run_id", "valid_from", "valid_to").collect()))


def contents(spark: SparkSession, defined: Pipeline) -> list[list[str]]:
    tables = Tables.of(defined)
    return [rows(spark.table(name)) for name in (tables.windows, tables.late, tables.quarantine)]
