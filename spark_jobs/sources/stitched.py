"""A history of two parts: a Hive table up to its last offset of each partition, the topic from the next one on.

Each part gets its position and its payload by itself, then both are one frame. The cut is by offset, so nothing is
compared and nothing is shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.history import HiveHistory
from spark_jobs.definition.kafka import KafkaHistory, PastTable, StitchedHistory
from spark_jobs.errors import SourceError
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION
from spark_jobs.sources.archive_table import ArchiveTable
from spark_jobs.sources.decode import RAW, RAW_BYTES, REASON
from spark_jobs.sources.expressions import Refused, expression_type, refuse
from spark_jobs.sources.hive import read_table
from spark_jobs.sources.kafka import append_time, empty_topic, header_map, pin_topic, read_topic
from spark_jobs.sources.kafka_offsets import PinnedTopic
from spark_jobs.sources.records import cut_at, payload_schema, running_maximum, with_payload, with_positions
from spark_jobs.spark.failures import reading

_PLACE = (PARTITION, OFFSET, ARRIVAL)


def open_stitched(
    spark: SparkSession,
    pipeline: Pipeline,
    *,
    headers: bool,
    pinned: PinnedTopic | None = None,
    as_of: Mapping[int, int] | None = None,
) -> tuple[DataFrame, PinnedTopic]:
    """Both parts as one frame with position and payload, and the offsets where it is cut.

    Raises SourceError for a table or topic that cannot be read, and for a column that is missing or of another type on
    one side; HistoryError for a hole between them.
    """
    history = pipeline.history
    table = read_table(spark, history.past)
    registered = pipeline.watermark.partitions
    archive = ArchiveTable.find(spark, history.past.table)
    if pinned is None:
        known = (archive.ends, archive.topic_id) if archive else (_past_ends(pipeline, history.past, table), None)
        ends, topic_id = known
        chosen = pin_topic(spark, history.recent, registered=registered, as_of=as_of, past=ends, past_topic_id=topic_id)
    else:
        chosen = pin_topic(spark, history.recent, pinned=pinned)
    if archive is not None and chosen.arrival_kind == "append_time":
        table = table.withColumn("timestamp", append_time(F.col("timestamp_type")))
    recent = read_topic(spark, history.recent, chosen, headers=headers)
    stitch = {part.partition: part.start for part in chosen.ranges}
    return stitched(pipeline, table, recent, stitch), chosen


def empty_stitched(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """The columns of both parts without any record; the topic's broker is not asked."""
    history = pipeline.history
    table = spark.createDataFrame([], read_table(spark, history.past).schema)
    return stitched(pipeline, table, empty_topic(spark, history.recent), {})


def stitched(pipeline: Pipeline, table: DataFrame, topic: DataFrame, stitch: Mapping[int, int]) -> DataFrame:
    """The table's records below the offsets of `stitch`, and those of the topic, with position and payload."""
    history = pipeline.history
    recent_side = pipeline.model_copy(update={"history": _as_kafka(history)})
    recent = with_payload(with_positions(topic, recent_side), recent_side)
    past_side = pipeline.model_copy(update={"history": _as_hive(history.past, going_back="refuse")})
    placed = cut_at(with_positions(table, past_side), stitch)
    past = _past_payload(placed, pipeline, past_side)
    shared = [name for name in recent.columns if name in past.columns]
    both = past.select(*shared).unionByName(recent.select(*shared))
    return running_maximum(both) if history.position.going_back == "running_maximum" else both


def _past_ends(pipeline: Pipeline, past: PastTable, table: DataFrame) -> dict[int, int]:
    """Where the table ends, by partition."""
    side = pipeline.model_copy(update={"history": _as_hive(past, going_back="refuse")})
    placed = with_positions(table, side).where(F.col(PARTITION).isNotNull())
    with reading(past.table):
        rows = placed.groupBy(PARTITION).agg(F.max(OFFSET).alias("last")).where("last IS NOT NULL").collect()
    return {row[PARTITION]: row["last"] + 1 for row in rows}


def _as_hive(past: PastTable, *, going_back: str) -> HiveHistory:
    position = past.position.model_copy(update={"going_back": going_back})
    return HiveHistory(kind="hive", table=past.table, metastore=past.metastore, position=position)


def _as_kafka(history: StitchedHistory) -> KafkaHistory:
    fields = {name: getattr(history.recent, name) for name in type(history.recent).model_fields}
    return KafkaHistory.model_construct(kind="kafka", **{**fields, "going_back": "refuse"})


def _past_payload(placed: DataFrame, pipeline: Pipeline, past_side: Pipeline) -> DataFrame:
    """The table's columns under the topic's names: decoded here, or by whoever wrote the table."""
    columns, recent = pipeline.history.past.columns, pipeline.history.recent
    schema = payload_schema(placed, pipeline)
    fields = {field.name for field in schema}
    known = {name.lower() for name in placed.columns}
    is_raw = "value" in columns or ("value" in known and not fields & columns.keys())
    for name in sorted(columns.keys() - fields - {"value", "key", "headers"}):
        what = "is no field of value.schema, nor `value`, `key` or `headers`"
        wrong = Refused(what, "write the name that the definition's expressions use")
        raise refuse(pipeline, ("history", "past", "columns", name), wrong)
    kinds = {
        name: expression_type(placed, text, pipeline, ("history", "past", "columns", name))
        for name, text in columns.items()
    }
    meta = {"topic": F.lit(recent.topic), "timestamp": F.timestamp_millis(ARRIVAL)}
    meta |= {"partition": F.col(PARTITION), "offset": F.col(OFFSET)}
    if "key" in columns or "key" in known:
        text = columns.get("key", "`key`")
        kind = kinds.get("key") or placed.select(F.expr(text)).schema[0].dataType
        wanted = StringType() if recent.key == "text" else BinaryType()
        if not isinstance(kind, StringType | BinaryType):
            raise _mismatch(pipeline, "key", kind.simpleString(), wanted.simpleString(), text)
        meta["key"] = F.expr(text).cast(wanted)
    if "headers" in columns or "headers" in known:
        text = columns.get("headers", "`headers`")
        kind = kinds.get("headers") or placed.select(F.expr(text)).schema[0].dataType
        meta["headers"] = header_map(F.expr(text)) if isinstance(kind, ArrayType) else F.expr(text)
    if is_raw:
        text = columns.get("value", "`value`")
        kind = kinds.get("value") or placed.select(F.expr(text)).schema[0].dataType
        if not isinstance(kind, StringType | BinaryType):
            raise _mismatch(pipeline, "value", kind.simpleString(), "binary or string", text)
        raw = placed.select(*_PLACE, F.expr(text).cast("binary").alias("value"), *_named(meta))
        decoding = pipeline.model_copy(update={"history": _as_kafka(pipeline.history)})
        return with_payload(raw, decoding)
    for field in schema:
        text = columns.get(field.name, f"`{field.name}`")
        kind = expression_type(placed, text, pipeline, ("history", "past", "columns"))
        if kind.simpleString() != field.dataType.simpleString():
            raise _mismatch(pipeline, field.name, kind.simpleString(), field.dataType.simpleString(), text)
    decoded = {field.name: F.expr(columns.get(field.name, f"`{field.name}`")) for field in schema}
    meta = {name: column for name, column in meta.items() if name not in decoded}
    payload = placed.select(*_PLACE, *_named(decoded), *_named(meta))
    raw_text = F.to_json(F.struct(*(F.col(f"`{name}`") for name in decoded)), {"ignoreNullFields": "false"})
    never = {REASON: F.lit(None).cast("string"), RAW: raw_text, RAW_BYTES: F.lit(None).cast("binary")}
    return payload.withColumns(never)


def _named(columns: Mapping[str, object]) -> list:
    return [column.alias(name) for name, column in columns.items()]


def _mismatch(pipeline: Pipeline, name: str, found: str, wanted: str, text: str) -> SourceError:
    table = pipeline.history.past.table
    return SourceError(
        f"`{name}` is {found.upper()} in {table} and {wanted.upper()} in the topic",
        pipeline.source_of(("history", "past")) or table,
        f"Map it under history.past.columns, as `{name}: CAST({text} AS {wanted.upper()})`.",
    )
