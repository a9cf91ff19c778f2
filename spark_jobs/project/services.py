"""Read a few records of a Hive table or a Kafka topic, with Spark, through the sources that a run uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.definition.kafka import KafkaHistory
from spark_jobs.errors import SourceError
from spark_jobs.project.reading import decoded
from spark_jobs.project.sample import Sample, ddl_of, json_object, nameable
from spark_jobs.sources.hive import read_table
from spark_jobs.sources.kafka import pin_topic, read_topic
from spark_jobs.spark.failures import reading

_ENVELOPE = ("key", "partition", "offset", "timestamp")


def read_hive(spark: SparkSession, table: str, metastore: str | None, limit: int) -> Sample:
    """At most `limit` records of a Hive table. Raises SourceError where it is missing or empty."""
    frame = read_table(spark, table, metastore)
    with reading(table):
        records = frame.limit(limit).toArrow().to_pylist()
    if not records:
        raise SourceError("the table holds no record", table, "Name a table with records.")
    return decoded(records, f"Hive table {table}, {len(records)} records read")


def read_kafka(spark: SparkSession, servers: str, topic: str, limit: int) -> Sample:
    """At most `limit` of the last records of a topic, from each partition alike.

    Raises SourceError where the brokers do not answer, there is no such topic, or it is empty.
    """
    history = KafkaHistory.model_validate(
        {"kind": "kafka", "servers": servers, "topic": topic, "going_back": "running_maximum", "accept": ["lost_start"]}
    )
    pinned = pin_topic(spark, history)
    share = max(1, limit // max(1, len(pinned.ranges)))
    last = tuple(replace(chosen, start=max(chosen.start, chosen.end - share)) for chosen in pinned.ranges)
    name = f"Kafka topic {topic} at {servers}"
    with reading(name):
        frame = read_topic(spark, history, replace(pinned, ranges=last), headers=False)
        rows: list[dict[str, Any]] = frame.select(*_ENVELOPE, "value").toArrow().to_pylist()
    if not rows:
        raise SourceError(
            "the topic holds no record now: nobody has written one, or retention has removed them",
            name,
            "Name a topic with records, or a table or files that keep the old ones.",
        )
    source = f"{name}: {len(pinned.ranges)} partitions, the last {len(rows)} records read"
    envelope = frozenset(_ENVELOPE)
    append_time = pinned.arrival_kind == "append_time"
    values = [(row, json_object(row["value"])) for row in rows if row["value"] is not None]
    there = [(row, found) for row, found in values if found is not None]
    objects, twins = nameable([found for _, found in there])
    empty = len(rows) - len(values)
    if values and all(row["value"][:1] == b"\0" and len(row["value"]) > _PREFIX for row, _ in values):
        return _framed_avro([row for row, _ in values], source, append_time, empty)
    if not objects:
        records = [{name: row[name] for name in _ENVELOPE} | {"value": _text(row["value"])} for row, _ in values]
        return Sample(records, source, "text", log_columns=envelope, append_time=append_time, tombstones=empty)
    records = [{n: row[n] for n in _ENVELOPE} | found for (row, _), found in zip(there, objects, strict=True)]
    envelope -= {name for found in objects for name in found}  # a field hides the record's column of the same name
    return Sample(
        records,
        source,
        "json",
        schema=ddl_of(objects),
        log_columns=envelope,
        append_time=append_time,
        unreadable=len(values) - len(objects),
        tombstones=empty,
        checks=twins,
    )


_PREFIX = 5
"""Bytes before a value in Confluent's framing: a zero byte, and the id of its schema."""
_UNKNOWN_SCHEMA = (
    '{"type": "record", "name": "unknown", "fields": '
    '[{"name": "event_time", "type": {"type": "long", "logicalType": "timestamp-millis"}}]}'
)


def _framed_avro(rows: list[dict[str, Any]], source: str, append_time: bool, empty: int) -> Sample:
    """Values as a schema registry's serializers write them; without the schema nobody knows their fields."""
    ids = sorted({int.from_bytes(row["value"][1:_PREFIX], "big") for row in rows})
    found = (
        f"the values begin with a zero byte and a schema id ({', '.join(map(str, ids[:5]))}): Avro, as a registry's "
    )
    check = (
        f"{found}serializer writes it. Put the writer's schema here, or name its file: `schema_file: x.avsc`; "
        f"the registry gives it at /schemas/ids/{ids[0]}"
    )
    return Sample(
        [{name: row[name] for name in _ENVELOPE} for row in rows],
        source,
        "avro",
        schema=_UNKNOWN_SCHEMA,
        log_columns=frozenset(_ENVELOPE),
        append_time=append_time,
        tombstones=empty,
        framing="confluent",
        checks=(check,),
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
