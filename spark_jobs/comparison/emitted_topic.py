"""Reads emitted rows from a Kafka topic: resolves the offsets once, then decodes values and keys.

| column | type | meaning |
| --- | --- | --- |
| own columns | | `key`, `value`, `headers`, `topic`, `partition`, `offset`, `timestamp`, unless a field has the name |
| the decoded fields | | of key and value; if both have a field, that of the value, unless there is no value |
| `rw_at_partition`, `rw_at_offset` | INT, BIGINT | partition and offset of the row |
| `rw_tombstone` | BOOLEAN | the record has no value |
| `rw_unreadable` | STRING | why it cannot be decoded; null for a good one |
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import LogBound
from spark_jobs.definition.live import Live, TopicEmitted
from spark_jobs.definition.payload import Value
from spark_jobs.definition.yaml_tree import FieldPath, dotted
from spark_jobs.errors import SourceError
from spark_jobs.sources.decode import REASON, decode, parse_schema
from spark_jobs.sources.decode_avro import avro_fields, decode_avro
from spark_jobs.sources.expressions import refuse, schema_refused
from spark_jobs.sources.kafka import header_map, read_log
from spark_jobs.sources.kafka_admin import TopicAdmin, TopicState, topic_admin
from spark_jobs.sources.kafka_offsets import OffsetRange, PinnedTopic

AT_PARTITION, AT_OFFSET = "rw_at_partition", "rw_at_offset"
TOMBSTONE, UNREADABLE = "rw_tombstone", "rw_unreadable"
_BYTES = {"key": "rw_key_bytes", "value": "rw_value_bytes"}
NOT_UTF8 = "not valid UTF-8"


def pin_rows(
    spark: SparkSession, topic: TopicEmitted, path: FieldPath, *, is_upsert: bool
) -> tuple[PinnedTopic, tuple[str, ...]]:
    """The offsets to read, and notes about records that the topic has already removed.

    Raises SourceError where the brokers or the topic cannot be reached, a partition has no leader, or the definition
    names a partition or an offset that does not exist.
    """
    where = f"topic {topic.topic} at {topic.servers}"
    notes = []
    with topic_admin(spark, topic) as admin:
        state = admin.state()
        if state.unreachable:
            listed = ", ".join(map(str, state.unreachable))
            raise SourceError(f"partition {listed} has no leader and cannot be read", where, "Wait for its brokers.")
        starts = _bounds(topic.start, "start", state, admin, (*path, "start"), where)
        ends = _bounds(topic.end, "end", state, admin, (*path, "end"), where)
    ranges = []
    for partition, bounds in sorted(state.partitions.items()):
        start, end = starts.get(partition, bounds.latest), ends.get(partition, bounds.earliest)
        if topic.start == "earliest" and bounds.earliest > 0:
            notes.append(
                f"partition {partition} of topic {topic.topic} begins at offset {bounds.earliest}: retention has "
                "removed what was before, and windows that came out only there count as missing"
            )
        ranges.append(OffsetRange(partition, min(start, end), end))
    if state.is_compacted and not is_upsert:
        notes.append(f"topic {topic.topic} is compacted: of the rows with the same topic key, only the last is kept")
    return PinnedTopic(topic.topic, state.topic_id, "producer_time", tuple(ranges)), tuple(notes)


def _bounds(
    requested: LogBound, name: str, state: TopicState, admin: TopicAdmin, path: FieldPath, where: str
) -> dict[int, int]:
    """For each partition its offset; partitions that explicit offsets do not name are left out."""
    partitions = state.partitions
    if isinstance(requested, str):
        return {p: bounds.earliest if name == "start" else bounds.latest for p, bounds in partitions.items()}
    if isinstance(requested, int):
        found = admin.offsets_at(partitions, requested)
        return {p: partitions[p].latest if offset is None else offset for p, offset in found.items()}
    for partition, offset in requested.items():
        hint = f"Correct {dotted(path)}."
        if partition not in partitions:
            raise SourceError(f"the topic has no partition {partition}", where, hint)
        if offset > partitions[partition].latest:
            latest = partitions[partition].latest
            what = f"partition {partition} ends at offset {latest}, before the requested offset {offset}"
            raise SourceError(what, where, hint)
    return {p: max(offset, partitions[p].earliest) for p, offset in requested.items()}


def offsets_shown(pinned: PinnedTopic) -> str:
    """The end offsets in the form of the option `--as-of`: `0=120,1=95`."""
    return ",".join(f"{chosen.partition}={chosen.end}" for chosen in pinned.ranges)


def read_rows(
    spark: SparkSession, topic: TopicEmitted, pinned: PinnedTopic, pipeline: Pipeline, path: FieldPath
) -> DataFrame:
    """The pinned records as a lazy frame with the columns that the module lists."""
    live = pipeline.live
    headers = isinstance(live, Live) and "headers" in live.model_dump_json()
    log = read_log(spark, topic, pinned.ranges, headers=headers)
    named = F.lit(None).cast("map<string,string>") if "headers" not in log.columns else header_map(F.col("headers"))
    rows = log.select(
        F.col("key").alias(_BYTES["key"]),
        F.col("value").alias(_BYTES["value"]),
        "key",
        "value",
        named.alias("headers"),
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.col("partition").alias(AT_PARTITION),
        F.col("offset").alias(AT_OFFSET),
        F.col("value").isNull().alias(TOMBSTONE),
    )
    keyed, key_fields = _decoded(rows, topic.key, "key", pipeline, (*path, "key"))
    kept = keyed.withColumns({f"rw_of_key_{i}": F.col(f"`{name}`") for i, name in enumerate(key_fields)})
    both, value_fields = _decoded(kept, topic.value, "value", pipeline, (*path, "value"))
    kinds = {field.name.lower(): field.dataType for field in both.schema if field.name in value_fields}
    # A record without a value has only the fields of its key.
    shared = {
        name: F.when(F.col(TOMBSTONE), F.col(f"rw_of_key_{i}").try_cast(kinds[name.lower()])).otherwise(
            F.col(f"`{name}`")
        )
        for i, name in enumerate(key_fields)
        if name.lower() in kinds
    }
    unreadable = F.when(~F.col(TOMBSTONE), F.col("rw_value_reason"))
    if topic.key.format != "text":
        unreadable = F.coalesce(unreadable, F.concat(F.lit("key: "), F.col("rw_key_reason")))
    drop = (*_BYTES.values(), "rw_key_reason", "rw_value_reason", *(f"rw_of_key_{i}" for i in range(len(key_fields))))
    return both.withColumns({**shared, UNREADABLE: unreadable}).drop(*drop)


def _decoded(
    rows: DataFrame, how: Value, part: str, pipeline: Pipeline, path: FieldPath
) -> tuple[DataFrame, tuple[str, ...]]:
    """`rows` with the fields of their key or value, named; `rw_<part>_reason` says why one cannot be decoded."""
    content = F.col(_BYTES[part])
    text = content.cast("string")
    reason = f"rw_{part}_reason"
    if how.format == "text":
        broken = F.when(~F.is_valid_utf8(text), NOT_UTF8)
        return rows.withColumns({part: F.make_valid_utf8(text), reason: broken}), (part,)
    fields = _fields(rows.sparkSession, how, pipeline, path)
    if how.format == "avro":
        decoded = decode_avro(rows, content, how.ddl or "", fields, framed=how.framing == "confluent")
    else:
        decoded = decode(rows, text, how.format, fields)
        broken = F.when(~F.is_valid_utf8(text), NOT_UTF8)
        decoded = decoded.withColumn(REASON, F.coalesce(broken, REASON))
    return decoded.withColumnRenamed(REASON, reason), tuple(fields.names)


def _fields(spark: SparkSession, how: Value, pipeline: Pipeline, path: FieldPath) -> StructType:
    try:
        return (avro_fields if how.format == "avro" else parse_schema)(spark, how.ddl or "")
    except ValueError as error:
        raise refuse(pipeline, (*path, "schema"), schema_refused(error)) from error
