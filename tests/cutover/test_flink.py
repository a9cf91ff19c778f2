"""A real Flink job goes on behind a backfill or a savepoint that says how far it read; a wrong offset is found."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from spark_jobs.comparison.compare import run_compare
from spark_jobs.cutover.meeting import Meeting, check_meeting
from spark_jobs.cutover.planning import plan_cutover
from spark_jobs.cutover.restart import restart_from
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.marks.flink import read_flink
from spark_jobs.marks.folder import LocalFolder
from spark_jobs.marks.mark import MarkKind
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java
from tests.java import compiled, compiler, flink_path
from tests.kafka import produce
from tests.runs.live_query import START, sent

pytestmark = pytest.mark.long

CONNECTOR = "org.apache.flink:flink-connector-kafka:4.0.1-2.0"
SOURCE = Path(__file__).parents[1] / "data" / "flink_cutover" / "CutoverJob.java"
AT = START + 120_000
OLD = [
    [(0, "a", 5), (0, "a", 30), (1, "b", 20), (0, "a", 70), (1, "b", 65)],
    [(0, "a", 130), (1, "a", 115), (1, "b", 125), (0, "b", 140), (1, "b", 135)],
]
NEW = [[(0, "a", 150), (1, "b", 190), (0, "a", 200), (1, "b", 260)], [(0, "b", 330), (1, "a", 331)]]


@dataclass(frozen=True)
class Job:
    """The compiled job; `run` gives the folder of its rows and its savepoint."""

    path: str
    servers: str
    topic: str
    folder: Path

    def run(
        self, name: str, offsets: dict[int, int], records: int, first: int, savepoint: Path | None = None
    ) -> tuple[Path, Path]:
        rows = self.folder / name
        rows.mkdir()
        texts = ",".join(f"{partition}={offset}" for partition, offset in offsets.items())
        given = [self.servers, self.topic, texts, str(records), str(first), str(rows / "rows.json")]
        given += [f"file://{self.folder}/savepoints", *([] if savepoint is None else [f"file://{savepoint}"])]
        command = [str(find_java().executable), "-Xmx400m", "-cp", self.path, "CutoverJob", *given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        (savepoint,) = (line.split()[1] for line in done.stdout.splitlines() if line.startswith("SAVEPOINT"))
        return rows, Path(savepoint.removeprefix("file:"))


@pytest.fixture
def job(kafka: KafkaBroker, tmp_path: Path) -> Job:
    """Skips where a registry does not give Flink, or this Java cannot compile."""
    try:
        jars = f"{flink_path('flink-clients', 'flink-connector-base')}{os.pathsep}{fetch_jars(CONNECTOR, 'Flink')}/*"
    except EnvironmentSetupError as error:
        pytest.skip(str(error))
    if not compiler().exists():
        pytest.skip(f"there is no {compiler()}: this Java cannot compile")
    classes = tmp_path / "classes"
    classes.mkdir()
    compiled([SOURCE], jars, classes)
    topic = f"cutover_flink_{secrets.token_hex(3)}"
    kafka.create_topic(topic, 2, APPEND_TIME)
    return Job(f"{classes}{os.pathsep}{jars}", kafka.servers, topic, tmp_path)


def defined(job: Job, rows: Path, **live: Any) -> Pipeline:
    schema = "k STRING, s BIGINT, n BIGINT, total BIGINT"
    return Pipeline.model_validate(
        {
            "name": "flink_cutover",
            "history": {"kind": "kafka", "servers": job.servers, "topic": job.topic},
            "value": {"format": "json", "schema": "k STRING, ts BIGINT, v BIGINT"},
            "keys": {"k": "k"},
            "event_time": {"expression": "ts", "unit": "ms"},
            "watermark": {"generator": "bounded_out_of_orderness", "bound": "10 s"},
            "window": {"type": "tumbling", "size": "1 min"},
            "aggregates": {"n": "count(*)", "total": "sum(v)"},
            "end_of_input": "freeze",
            "output": {"namespace": "flink_cutover"},
            "live": {
                "source": {"kind": "files", "path": f"{rows}/*.json", "format": "json", "schema": schema},
                "window": {"start": "s", "unit": "ms"},
                **live,
            },
        }
    )


def test_a_new_job_goes_on_where_the_backfill_ends(spark: SparkSession, kafka: KafkaBroker, job: Job) -> None:
    for step in OLD:
        produce(spark, kafka.servers, job.topic, sent(step))
    rows, savepoint = job.run("old", {}, 10, 0)
    mark = read_flink(LocalFolder(savepoint))
    assert (mark.kind, mark.offsets) == (MarkKind.FLINK_SAVEPOINT, {job.topic: {0: 5, 1: 5}})

    planned = plan_cutover(spark, defined(job, rows), AT, NoProgress())
    assert planned.is_exact, planned
    assert planned.topics == {job.topic: {0: 3, 1: 3}}
    with planned_records(spark, defined(job, rows), end=AT) as (plan, records):
        execute(spark, defined(job, rows), plan, NoProgress(), records=records)

    for step in NEW:
        produce(spark, kafka.servers, job.topic, sent(step))
    rows, savepoint = job.run("new", planned.topics[job.topic], 10, AT)
    assert read_flink(LocalFolder(savepoint)).offsets == {job.topic: {0: 8, 1: 8}}
    right = met(spark, defined(job, rows))
    assert right.is_clean, right
    assert right.counts["after"] == len((rows / "rows.json").read_text().splitlines()) > 2

    rows, _ = job.run("late", {partition: offset + 1 for partition, offset in planned.topics[job.topic].items()}, 8, AT)
    missed = met(spark, defined(job, rows))
    assert not missed.is_clean
    assert missed.differing + missed.counts["gap"] > 0


def test_a_savepoint_says_the_restart_of_the_job_that_went_on_from_it(
    spark: SparkSession, kafka: KafkaBroker, job: Job
) -> None:
    """After a restore the watermark begins anew, so open windows close later."""
    for step in OLD:
        produce(spark, kafka.servers, job.topic, sent(step))
    before, savepoint = job.run("before", {}, 10, 0)
    for step in [[(0, "c", 100), *NEW[0]], NEW[1]]:
        produce(spark, kafka.servers, job.topic, sent(step))
    after, _ = job.run("after", {}, 7, 0, savepoint)
    texts = [text for folder in (before, after) for text in (folder / "rows.json").read_text().splitlines()]
    emitted = {(row["k"], row["s"]): (row["n"], row["total"]) for row in map(json.loads, texts)}
    assert len(emitted) == len(texts)
    (before / "after.json").write_text((after / "rows.json").read_text())
    # It was closed before the restart. The plan warns of such records, and the comparison knows them.
    assert emitted.pop(("c", START + 60_000)) == (1, 100)

    pipeline = defined(job, before)
    mark = read_flink(LocalFolder(savepoint))
    found = restart_from(spark, pipeline, mark)
    assert found.misplaced == 0
    restarted = defined(job, before, **yaml.load(found.definition, Loader=yaml.BaseLoader)["live"])
    with planned_records(spark, restarted) as (plan, records):
        assert any(warning.startswith("live.restarts: ") for warning in plan.warnings)
        result = execute(spark, restarted, plan, NoProgress(), records=records)
    rows = (
        spark.table(result.tables.windows)
        .where("state = 'closed'")
        .selectExpr("k", "unix_millis(window_start)", "n", "total")
    )
    assert {(k, start): (n, total) for k, start, n, total in rows.collect()} == emitted
    verdicts = run_compare(spark, restarted, NoProgress()).counts
    assert {name for name, count in verdicts.items() if count} <= {"match", "late_arrivals", "not_closed"}
    assert sum(verdicts.get(name, 0) for name in ("match", "late_arrivals")) == len(emitted) + 1

    earlier = restart_from(spark, pipeline, replace(mark, offsets={job.topic: {0: 3, 1: 5}}))
    assert earlier.misplaced == 3
    assert "3 records that the job had read arrived then or later" in earlier.note


def met(spark: SparkSession, pipeline: Pipeline) -> Meeting:
    return check_meeting(spark, pipeline, AT, NoProgress())
