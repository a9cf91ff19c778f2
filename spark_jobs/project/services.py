"""Read a few records of a Hive table, Avro files or a Kafka topic, with Spark, through the sources that a run uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.kafka import KafkaHistory
from spark_jobs.definition.payload import Value
from spark_jobs.errors import DefinitionError, SourceError
from spark_jobs.project.reading import decoded
from spark_jobs.project.sample import Sample, ddl_of, json_object, nameable
from spark_jobs.sources.files.log_files import find_files, read_files
from spark_jobs.sources.kafka.offsets import KEEP_REPARTITION, is_repartition
from spark_jobs.sources.kafka.topic import pin_topic, read_topic
from spark_jobs.sources.lake.hive import read_table
from spark_jobs.sources.records.decode import REASON
from spark_jobs.sources.records.payload import decode_bytes, fields_of
from spark_jobs.sources.records.schemas import pin_schemas
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


def read_avro(spark: SparkSession, path: str, limit: int) -> Sample:
    """At most `limit` records of Avro container files. Raises SourceError where they are damaged or empty."""
    place = path if "://" in path else str(Path(path).expanduser().absolute())  # Java's folder may be another one
    history = FilesHistory.model_validate({"kind": "files", "path": place, "format": "avro"})
    files = find_files(spark, history)
    with reading(path):
        records = read_files(spark, history, files, None).limit(limit).toArrow().to_pylist()
    if not records:
        raise SourceError("the files hold no record", path, "Name files with records.")
    many = "s" if len(files) != 1 else ""
    what = f"{path}: {len(files)} avro file{many}, {len(records)} records read"
    return decoded(records, what, path=path, file_format="avro")


def read_kafka(
    spark: SparkSession, servers: str, topic: str, limit: int, registry: Mapping[str, Any] | None = None
) -> Sample:
    """At most `limit` of the last records of a topic, from each partition alike.

    `registry`: `url` and `auth` of the schema registry by which values are decoded that begin with a schema's id.
    Raises SourceError where the brokers or the registry do not answer, there is no such topic or subject, or the topic
    is empty.
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
    if is_repartition(topic):
        begins = ", ".join(str(chosen.start) for chosen in pinned.ranges)
        source += f". It begins at offset {begins}: its application purges what it has read. {KEEP_REPARTITION}"
    envelope = frozenset(_ENVELOPE)
    append_time = pinned.arrival_kind == "append_time"
    values = [(row, json_object(row["value"])) for row in rows if row["value"] is not None]
    there = [(row, found) for row, found in values if found is not None]
    objects, twins = nameable([found for _, found in there])
    empty = len(rows) - len(values)
    if values and all(row["value"][:1] == b"\0" and len(row["value"]) > _PREFIX for row, _ in values):
        framed = [row for row, _ in values]
        bodies = [json_object(row["value"][_PREFIX:]) for row in framed]
        shared = Sample((), source, log_columns=envelope, append_time=append_time, tombstones=empty)
        if all(found is not None for found in bodies):
            return _framed_json(framed, [found or {} for found in bodies], shared)
        if registry is not None:
            return _by_registry(frame, {**registry, "subject": f"{topic}-value"}, shared)
        return _framed_avro(framed, shared)
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


def _framed_json(rows: list[dict[str, Any]], objects: list[dict[str, Any]], shared: Sample) -> Sample:
    """Values in JSON behind a schema's id."""
    records = [{name: row[name] for name in _ENVELOPE} | found for row, found in zip(rows, objects, strict=True)]
    names = {name for found in objects for name in found}
    return replace(
        shared,
        records=records,
        value_format="json_schema",
        schema=ddl_of(objects),
        log_columns=shared.log_columns - names,
    )


def _by_registry(frame: DataFrame, registry: Mapping[str, Any], shared: Sample) -> Sample:
    """Avro values by the schemas of a registry."""
    try:
        value = Value.model_validate({"format": "avro", "column": "value", "registry": registry})
    except ValidationError as error:
        refusal = error.errors()[0].get("ctx", {}).get("error")
        raise DefinitionError(f"--registry: {refusal or error}", hint="Correct the option.") from None
    schemas = pin_schemas(frame.sparkSession, value)
    names = fields_of(frame.sparkSession, value, schemas).names
    kept = [name for name in _ENVELOPE if name not in names]
    rows = decode_bytes(frame.where("value IS NOT NULL"), F.col("value"), value, schemas)
    with reading(shared.source):
        good = rows.where(F.col(REASON).isNull()).select(*(f"`{name}`" for name in [*kept, *names]))
        records, bad = good.toArrow().to_pylist(), rows.where(F.col(REASON).isNotNull()).count()
    if not records:
        hint = f"Check that the values are those of the subject {registry['subject']}."
        raise SourceError("no record can be decoded by the registry's schemas", shared.source, hint)
    return replace(
        shared,
        records=records,
        value_format="avro",
        log_columns=shared.log_columns & set(kept),
        unreadable=bad,
        registry=registry,
    )


def _framed_avro(rows: list[dict[str, Any]], shared: Sample) -> Sample:
    """Values as a schema registry's serializers write them; without the schema nobody knows their fields."""
    ids = sorted({int.from_bytes(row["value"][1:_PREFIX], "big") for row in rows})
    found = (
        f"the values begin with a zero byte and a schema id ({', '.join(map(str, ids[:5]))}): Avro, as a registry's "
    )
    check = (
        f"{found}serializer writes it. `rewindow init --registry URL` asks the registry for the schemas. Or put the "
        "writer's schema here, or name its file: `schema_file: x.avsc`; "
        f"the registry gives it at /schemas/ids/{ids[0]}"
    )
    return replace(
        shared,
        records=[{name: row[name] for name in _ENVELOPE} for row in rows],
        value_format="avro",
        schema=_UNKNOWN_SCHEMA,
        framing="confluent",
        checks=(check,),
    )


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
