"""A real Kafka Streams application goes on behind a backfill, from committed offsets; wrong ones are found."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_jobs.cutover.formats import reset_csv
from spark_jobs.cutover.meeting import Meeting, check_meeting
from spark_jobs.cutover.planning import plan_cutover
from spark_jobs.definition import Pipeline
from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.progress import NoProgress
from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java
from tests.kafka import Sent, commit, produce

pytestmark = pytest.mark.long

START = 1_357_034_400_000
TOPIC = "cutover_streams"
SOURCE = Path(__file__).parents[1] / "runs" / "application" / "Application.java"


@dataclass(frozen=True)
class Read:
    """One record of the topic."""

    partition: int
    offset: int
    key: str
    time: int
    value: int


def in_turn(count: int) -> list[Read]:
    """Of two partitions, one every second, each with two keys of its own; every seventh comes 20 seconds late."""
    return [
        Read(i % 2, i // 2, "abcd"[i % 4], max(START, START + i * 1000 - (20_000 if i % 7 == 6 else 0)), i)
        for i in range(count)
    ]


def send(spark: SparkSession, servers: str, records: list[Read]) -> None:
    sent = [Sent(json.dumps({"k": r.key, "ts": r.time, "v": r.value}), r.partition, r.key) for r in records]
    produce(spark, servers, TOPIC, sent)


def applied(
    spark: SparkSession, kafka: KafkaBroker, folder: Path, name: str, offsets: dict[int, int], count: int, at: int
) -> Path:
    """The rows of an application that begins at these offsets, behind the filter of its sink, as files."""
    kafka.create_topic(name, 1, APPEND_TIME)
    commit(spark, kafka.servers, name, TOPIC, offsets)
    jars = fetch_jars("org.apache.kafka:kafka-streams-test-utils:4.1.1", "Kafka Streams")
    command = [str(find_java().executable), "-Xmx512m", "-cp", f"{jars}/*", str(SOURCE), kafka.servers, TOPIC, name]
    given = ["tumbling", str(count), str(folder / f"state_{name}")]
    done = subprocess.run([*command, *given], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3_000:]
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": name, "startingOffsets": "earliest"}
    found = spark.read.format("kafka").options(**options).load().selectExpr("CAST(value AS STRING) AS value").collect()
    rows = [row for row in map(json.loads, (one.value for one in found)) if row["s"] >= at]
    (folder / name).mkdir()
    (folder / name / "rows.json").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def test_a_new_application_goes_on_where_the_backfill_ends(spark, kafka: KafkaBroker, tmp_path: Path) -> None:
    records = in_turn(160)
    kafka.create_topic(TOPIC, 2, APPEND_TIME)
    send(spark, kafka.servers, records[:110])
    at = START + 60_000

    def of(rows: Path | None) -> Pipeline:
        source = {
            "kind": "files", "path": f"{rows}/*.json", "format": "json",
            "schema": "k STRING, s BIGINT, e BIGINT, n BIGINT",
        }  # fmt: skip
        live = {"source": source, "window": {"start": "s", "end": "e", "unit": "ms"}, "values": {"n": "n"}}
        more = {} if rows is None else {"live": live}
        history = {"kind": "kafka", "servers": kafka.servers, "topic": TOPIC}
        return Pipeline.model_validate(
            {
                "name": "streams_cutover",
                "engine": "kafka_streams",
                "history": history,
                "value": {"format": "json", "schema": "k STRING, ts BIGINT, v BIGINT"},
                "keys": {"k": "k"},
                "event_time": {"expression": "ts", "unit": "ms"},
                "watermark": {"grace": "3 s"},
                "window": {"type": "tumbling", "size": "10 s"},
                "emission": "on_close",
                "aggregates": {"n": "count(*)"},
                "output": {"namespace": "streams_cutover"},
                **more,
            }
        )

    planned = plan_cutover(spark, of(None), at, NoProgress())
    assert planned.is_exact, planned
    offsets = {int(p): int(o) for _, p, o in (line.split(",") for line in reset_csv(planned.topics).splitlines())}
    for partition, offset in offsets.items():
        needed = [r.offset for r in records[:110] if r.partition == partition and r.time >= at]
        assert offset == min(needed)
    with planned_records(spark, of(None), end=at) as (plan, found):
        execute(spark, of(None), plan, NoProgress(), records=found)

    send(spark, kafka.servers, records[110:])
    left = sum(r.offset >= offsets[r.partition] for r in records)
    right = met(spark, of(applied(spark, kafka, tmp_path, "handed_on", offsets, left, at)), at)
    assert right.is_clean, right
    assert right.counts["after"] > 5 and right.counts["before"] > 5

    wrong = {partition: offset + 3 for partition, offset in offsets.items()}
    missed = met(spark, of(applied(spark, kafka, tmp_path, "too_late", wrong, left - 6, at)), at)
    assert not missed.is_clean
    assert missed.differing + missed.counts["gap"] > 0


def met(spark: SparkSession, pipeline: Pipeline, at: int) -> Meeting:
    return check_meeting(spark, pipeline, at, NoProgress())
