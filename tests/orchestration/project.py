"""A project folder with small pipelines, for an Airflow of the tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.demo.airflow import DagRun
from spark_jobs.orchestration.run_ids import run_id_of
from spark_jobs.runs.life.store import RunFolder, RunStore
from tests.conformance.formats import FEW_ROWS

ROOT = Path(__file__).parents[2]
_THIS_MONTH = datetime.now(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
START = (_THIS_MONTH - timedelta(days=1)).replace(day=1)
"""The records begin with last month: their nights are over, and a year passes until the schedule's next one."""
SPACING = 225_000
"""From one record to the next, in ms."""
SPARK_CONF = ",".join(["spark.ui.enabled=false", *(f"{name}={value}" for name, value in FEW_ROWS.items())])
"""Of the tasks, as REWINDOW_SPARK_CONF takes it."""
_DEFINITION = """\
name: {name}
history:
  kind: files
  path: data/*.json
  format: json
  position: {{partition: p, offset: o, arrival: a, arrival_unit: ms}}
value: {{schema: "p INT, o BIGINT, a BIGINT, k STRING, t BIGINT, v BIGINT"}}
keys: {{k: k}}
event_time: {{expression: t, unit: ms, missing: quarantine}}
watermark: {{generator: bounded_out_of_orderness, bound: 10 min, emission: per_event, partitions: [0, 1]}}
window: {{type: tumbling, size: 1 h}}
allowed_lateness: 0
aggregates: {{n: count(*), total: sum(v)}}
end_of_input: flush
output: {{namespace: airflow, table: {name}}}
publish: {publish}
schedule: "{schedule}"
"""


def definition(name: str, publish: str) -> str:
    """A pipeline as YAML; its nights end on the second to the fifth of the month of `START`."""
    return _DEFINITION.format(name=name, publish=publish, schedule=f"0 0 2-5 {START.month} *")


def day(number: int) -> str:
    """When the records' day `number`, from 0 on, begins."""
    return f"{START + timedelta(days=number):%Y-%m-%dT%H:%M:%SZ}"


def records(days: int) -> list[dict[str, Any]]:
    """Four a quarter of an hour in turn over two partitions; every ninth comes five hours late."""
    start, found = int(START.timestamp() * 1000), []
    offsets = [0, 0]
    for number in range(days * 96 * 4):
        arrival = start + number * SPACING
        late = 5 * 3_600_000 if number % 9 == 8 else 0
        partition = number % 2
        found.append(
            {"p": partition, "o": offsets[partition], "a": arrival, "k": f"k{number % 3}", "t": arrival - late,
             "v": number % 17}
        )  # fmt: skip
        offsets[partition] += 1
    return found


def copy_dags(root: Path) -> None:
    """The DAG files and expectations of the project, and an empty folder for pipelines."""
    for name in ("dags", "expectations"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.yaml"))
    (root / "dags/pipelines").mkdir(exist_ok=True)


def make_project(root: Path, pipelines: Mapping[str, str], days: int) -> Path:
    """DAG files, expectations, `days` of records, and a pipeline for each name with its publish policy."""
    copy_dags(root)
    (root / "data").mkdir()
    with (root / "data/part-0.json").open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records(days))
    for name, publish in pipelines.items():
        (root / f"dags/pipelines/{name}.yaml").write_text(definition(name, publish))
    return root


def folder_of(run: DagRun) -> RunFolder:
    return RunStore.configured().folder(run_id_of(run.dag_id, run.run_id))


def rows(spark: SparkSession, pipeline: str) -> list[tuple]:
    """The published windows."""
    table = spark.table(f"rewindow.airflow.{pipeline}")
    return sorted(tuple(row) for row in table.select("k", "window_start", "n", "n__complete", "total").collect())
