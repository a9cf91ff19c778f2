"""`rewindow init` over a real Kafka topic and a real Hive table."""

from __future__ import annotations

from pathlib import Path

from spark_jobs.definition import load_pipeline
from spark_jobs.project.address import parse_address
from spark_jobs.project.answers import fidelity_of
from spark_jobs.project.questions import Flags, settle
from spark_jobs.project.sample import Sample, ddl_of
from spark_jobs.project.services import read_hive, read_kafka
from spark_jobs.project.writing import project_files
from spark_jobs.sources import check_expressions


def take_defaults(question, why, flag, default, check) -> str:
    return check(default)


def test_a_topic(spark, kafka, tmp_path: Path) -> None:
    address = parse_address(f"kafka://{kafka.servers}/flights")
    sample = read_kafka(spark, address.servers, address.place, 300)
    assert len(sample.records) == 300
    assert {record["partition"] for record in sample.records} == {0, 1, 2}
    answers = settle(address, sample, Flags(keys=("carrier=key",)), take_defaults)
    assert (answers.name, answers.event_time.expression) == ("flights", "sched_dep")
    assert fidelity_of(address, sample, answers.position).level == "log_order"
    definition = project_files(answers, tmp_path)[0]
    assert check_expressions(spark, load_pipeline(tmp_path / definition.path, text=definition.text)) == []


def test_tombstones_are_dropped_and_said_where_a_definition_knows_them(tmp_path: Path) -> None:
    rows = []
    for n in range(40):
        row = {"before": {"x": n}, "after": None} if n % 2 else {"before": None, "after": {"x": n}}
        log = {"key": "a", "partition": 0, "offset": n}
        rows.append({**log, "op": "cd"[n % 2], "at": 1_709_251_200_000 + n, **row})
    sample = Sample(
        rows,
        "a topic",
        "json",
        schema=ddl_of(rows),
        log_columns=frozenset({"key", "partition", "offset"}),
        append_time=True,
        tombstones=3,
    )
    assert [".".join(field.path) for field in sample.fields][5:] == ["after.x", "before.x"]
    answers = settle(parse_address("kafka://127.0.0.1:9/changes"), sample, Flags(keys=("key",)), take_defaults)
    definition = project_files(answers, tmp_path)[0]
    assert load_pipeline(tmp_path / definition.path, text=definition.text).history.tombstones == "drop"
    assert "# CHECK: 3 of the records read have no value" in definition.text


def test_a_table(spark, hive_metastore, tmp_path: Path) -> None:
    spark.sql("CREATE DATABASE IF NOT EXISTS first_hour")
    spark.sql(
        "CREATE TABLE first_hour.clicks USING parquet AS SELECT id % 3 AS shop_id, "
        "TIMESTAMP '2024-03-01 12:00:00' + make_interval(0, 0, 0, 0, 0, 0, id) AS clicked_at FROM range(30)"
    )
    address = parse_address("hive:first_hour.clicks")
    sample = read_hive(spark, address.place, None, 20)
    assert len(sample.records) == 20
    answers = settle(address, sample, Flags(), take_defaults)
    assert (answers.event_time.unit, answers.keys) == ("timestamp", {"shop_id": "shop_id"})
    definition = project_files(answers, tmp_path)[0]
    assert check_expressions(spark, load_pipeline(tmp_path / definition.path, text=definition.text)) == []
