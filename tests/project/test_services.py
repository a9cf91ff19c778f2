"""`rewindow init` over a real Kafka topic and a real Hive table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.definition import load_pipeline
from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.errors import DefinitionError
from spark_jobs.project.answers import fidelity_of, parse_address
from spark_jobs.project.questions import settle
from spark_jobs.project.sample import Sample, ddl_of
from spark_jobs.project.services import read_hive, read_kafka
from spark_jobs.project.writing import project_files
from spark_jobs.sources import check_expressions
from tests.kafka import Sent, produce
from tests.registry import SchemaRegistry
from tests.sources.avro import encoded, framed


def take_defaults(question, why, flag, default, check) -> str:
    return check(default)


def test_a_topic(spark, kafka, tmp_path: Path) -> None:
    address = parse_address(f"kafka://{kafka.servers}/flights")
    sample = read_kafka(spark, address.servers, address.place, 300)
    assert len(sample.records) == 300
    assert {record["partition"] for record in sample.records} == {0, 1, 2}
    answers = settle(address, sample, {"keys": ["carrier=key"]}, take_defaults)
    assert (answers.name, answers.event_time.expression) == ("flights", "sched_dep")
    assert fidelity_of(address, sample, answers.position).level == "log_order"
    definition = project_files(answers, tmp_path)[0]
    assert check_expressions(spark, load_pipeline(tmp_path / definition.path, text=definition.text)) == []


@pytest.mark.long
def test_a_topic_whose_schemas_are_in_a_registry(spark, kafka: KafkaBroker, tmp_path: Path) -> None:
    fields = [{"name": name, "type": kind} for name, kind in (("shop", "string"), ("at", "long"), ("amount", "double"))]
    schema = {"type": "record", "name": "order", "fields": fields}
    rows = [{"shop": "ab"[n % 2], "at": 1_709_251_200_000 + n, "amount": n + 0.5} for n in range(20)]
    kafka.create_topic("init_avro", 1)
    kafka.create_topic("init_json", 1)
    with SchemaRegistry() as registry:
        number = registry.register("init_avro-value", schema)
        values = [framed(number, encoded(spark, schema, row)) for row in rows]
        produce(spark, kafka.servers, "init_avro", [Sent(value) for value in [*values, framed(number, b"?")]])
        address = parse_address(f"kafka://{kafka.servers}/init_avro")
        unknown = read_kafka(spark, address.servers, address.place, 300)
        assert unknown.framing == "confluent" and "--registry URL" in unknown.checks[0]
        sample = read_kafka(spark, address.servers, address.place, 300, {"url": registry.url})
        assert (len(sample.records), sample.unreadable) == (20, 1)
        answers = settle(address, sample, {}, take_defaults)
        assert (answers.event_time.expression, answers.event_time.unit, answers.keys) == ("at", "ms", {"shop": "shop"})
        made = project_files(answers, tmp_path)[0]
        pipeline = load_pipeline(tmp_path / made.path, text=made.text)
        assert pipeline.value.registry is not None and pipeline.value.registry.subject == "init_avro-value"
        assert check_expressions(spark, pipeline) == []
        with pytest.raises(DefinitionError, match="--registry: `here` is not a web address"):
            read_kafka(spark, address.servers, address.place, 300, {"url": "here"})
    produce(spark, kafka.servers, "init_json", [Sent(framed(7, json.dumps(row).encode())) for row in rows])
    sample = read_kafka(spark, kafka.servers, "init_json", 300)
    assert (sample.value_format, sample.schema) == ("json_schema", "shop STRING, at BIGINT, amount DOUBLE")


def test_a_repartition_topic_is_said_to_be_purged(spark, kafka: KafkaBroker) -> None:
    name = "sales-by-shop-repartition"
    kafka.create_topic(name, 1)
    produce(spark, kafka.servers, name, [Sent(json.dumps({"shop": "a", "at": n}).encode()) for n in range(6)])
    kafka.delete_records(name, 0, before=4)
    sample = read_kafka(spark, kafka.servers, name, 300)
    assert "It begins at offset 4: its application purges what it has read" in sample.source
    assert "repartition.purge.interval.ms" in sample.source


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
    answers = settle(parse_address("kafka://127.0.0.1:9/changes"), sample, {"keys": ["key"]}, take_defaults)
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
    answers = settle(address, sample, {}, take_defaults)
    assert (answers.event_time.unit, answers.keys) == ("timestamp", {"shop_id": "shop_id"})
    definition = project_files(answers, tmp_path)[0]
    assert check_expressions(spark, load_pipeline(tmp_path / definition.path, text=definition.text)) == []
