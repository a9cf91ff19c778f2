"""A history of two parts: a table up to its last offset of each partition, and the topic from the next offset on.

Each part gets its position and payload columns from its own columns; then the two are one frame. The cut is by offset,
so records of the two parts are neither compared nor shuffled.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType

from spark_jobs.definition import Pipeline
from spark_jobs.definition.kafka import PastTable, StitchedHistory
from spark_jobs.errors import SourceError
from spark_jobs.pins import PinnedSchemas, PinnedSnapshot, PinnedTopic, TableFormat
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION
from spark_jobs.sources.expressions import Refused, expression_type, refuse
from spark_jobs.sources.kafka.topic import append_time, empty_topic, header_map, pin_topic, read_topic
from spark_jobs.sources.lake.archive_table import Archived, archived_in
from spark_jobs.sources.lake.hive import read_table
from spark_jobs.sources.lake.lake_tables import pin_snapshot, read_snapshot
from spark_jobs.sources.opened import OpenHistory
from spark_jobs.sources.records.canonical import cut_at, with_positions
from spark_jobs.sources.records.decode import RAW, RAW_BYTES, REASON, UNREAD
from spark_jobs.sources.records.payload import payload_schema, with_payload
from spark_jobs.spark.failures import reading
from spark_jobs.spark.texts import as_text

_POSITION_COLUMNS = (PARTITION, OFFSET, ARRIVAL)
_POSITION_PATH = ("history", "past", "position")
_COLUMNS_PATH = ("history", "past", "columns")


def open_stitched(
    spark: SparkSession,
    history: StitchedHistory,
    pipeline: Pipeline,
    *,
    headers: bool,
    pinned: PinnedTopic | None = None,
    snapshot: PinnedSnapshot | None = None,
    schemas: PinnedSchemas | None = None,
    as_of: Mapping[int, int] | None = None,
) -> tuple[DataFrame, PinnedTopic]:
    """Open both parts as one frame with position and payload columns.

    Args:
        headers: Whether the topic's headers are read.
        pinned: The offsets of a plan; None: they are resolved now.
        snapshot: The snapshot to read of a lake table; None for a Hive table.
        schemas: Those by which values are decoded, where the definition names a registry.
        as_of: End offsets by partition, in place of the topic's own.

    Returns:
        The frame, and the offsets of the topic; each range starts where the table is cut.

    Raises:
        SourceError: A part cannot be read, or a column is missing or has another type in one of them.
        HistoryError: Offsets between the two parts are missing.
    """
    table = _past(spark, history.past, snapshot)
    archive = _archive(spark, history.past, snapshot)
    if pinned is not None:
        chosen = pin_topic(spark, history.recent, pinned=pinned)
    else:
        chosen = pin_topic(
            spark,
            history.recent,
            registered=pipeline.watermark.partitions,
            as_of=as_of,
            past=archive.ends if archive else _end_offsets(table, history.past, pipeline),
            past_topic_id=archive.topic_id if archive else None,
        )
    if archive is not None and chosen.arrival_kind == "append_time":
        table = table.withColumn("timestamp", append_time(F.col("timestamp_type")))
    topic = read_topic(spark, history.recent, chosen, headers=headers)
    cut = {part.partition: part.start for part in chosen.ranges}
    return _stitch(table, topic, cut, history, pipeline, schemas), chosen


def empty_stitched(
    spark: SparkSession, history: StitchedHistory, pipeline: Pipeline, schemas: PinnedSchemas | None = None
) -> DataFrame:
    """The columns of `open_stitched` without any record. The catalog is read, the brokers are not."""
    past = history.past
    snapshot = pin_snapshot(spark, past.table, TableFormat(past.lake_format)) if past.lake_format else None
    table = spark.createDataFrame([], _past(spark, past, snapshot).schema)
    return _stitch(table, empty_topic(spark, history.recent), {}, history, pipeline, schemas)


def past_positions(spark: SparkSession, history: StitchedHistory, pipeline: Pipeline, opened: OpenHistory) -> DataFrame:
    """The positions of the table's rows that an opened history has of it: those before the topic's own."""
    table = _past(spark, history.past, opened.snapshot)
    cut = {} if opened.topic is None else {part.partition: part.start for part in opened.topic.ranges}
    return cut_at(with_positions(table, history.past.position, pipeline, _POSITION_PATH), cut).select(PARTITION, OFFSET)


def _archive(spark: SparkSession, past: PastTable, snapshot: PinnedSnapshot | None) -> Archived | None:
    """What `rewindow archive` has written; None where another program writes the table."""
    if snapshot is None or snapshot.format is TableFormat.DELTA:
        return None
    return archived_in(spark, past.table, snapshot.snapshot)


def _past(spark: SparkSession, past: PastTable, snapshot: PinnedSnapshot | None) -> DataFrame:
    return read_table(spark, past.table, past.metastore) if snapshot is None else read_snapshot(spark, snapshot)


def _stitch(
    table: DataFrame,
    topic: DataFrame,
    cut: Mapping[int, int],
    history: StitchedHistory,
    pipeline: Pipeline,
    schemas: PinnedSchemas | None,
) -> DataFrame:
    """The table's records below the offsets of `cut` and all of `topic`, with position and payload columns."""
    recent = with_positions(topic, history.recent.position, pipeline, ("history", "recent", "position"))
    # A broker gives each record its place. Spark is told, and reads no topic where records without one are sought.
    recent = recent.withColumns({name: F.coalesce(F.col(name), F.lit(-1)) for name in (PARTITION, OFFSET)})
    recent = with_payload(recent, pipeline, schemas)
    past = cut_at(with_positions(table, history.past.position, pipeline, _POSITION_PATH), cut)
    past = _past_payload(past, history, pipeline, schemas)
    shared = [name for name in recent.columns if name in past.columns]
    return past.select(*shared).unionByName(recent.select(*shared))


def _end_offsets(table: DataFrame, past: PastTable, pipeline: Pipeline) -> dict[int, int]:
    """The end offset (exclusive) of each partition in the table."""
    placed = with_positions(table, past.position, pipeline, _POSITION_PATH).where(F.col(PARTITION).isNotNull())
    with reading(past.table):
        rows = placed.groupBy(PARTITION).agg(F.max(OFFSET).alias("last")).where("last IS NOT NULL").collect()
    return {row[PARTITION]: row["last"] + 1 for row in rows}


def _past_payload(
    placed: DataFrame, history: StitchedHistory, pipeline: Pipeline, schemas: PinnedSchemas | None
) -> DataFrame:
    """The table's columns under the topic's names.

    Where the table has the undecoded value, it is decoded here; otherwise each field is a column of the table.
    """
    mapped, recent = history.past.columns, history.recent
    schema = payload_schema(placed, pipeline, schemas)
    fields = {field.name for field in schema}
    known = {name.lower() for name in placed.columns}
    has_raw_value = "value" in mapped or ("value" in known and not fields & mapped.keys())
    for name in sorted(mapped.keys() - fields - {"value", "key", "headers"}):
        what = "is no field of value.schema, nor `value`, `key` or `headers`"
        wrong = Refused(what, "write the name that the definition's expressions use")
        raise refuse(pipeline, (*_COLUMNS_PATH, name), wrong)
    types = {name: expression_type(placed, text, pipeline, (*_COLUMNS_PATH, name)) for name, text in mapped.items()}

    def expression_of(name: str) -> tuple[str, DataType]:
        """The SQL expression for one of the topic's columns, and its type."""
        text = mapped.get(name, f"`{name}`")
        return text, types.get(name) or placed.select(F.expr(text)).schema[0].dataType

    topic_columns: dict[str, Column] = {
        "topic": F.lit(recent.topic),
        "timestamp": F.timestamp_millis(F.col(ARRIVAL)),
        "partition": F.col(PARTITION),
        "offset": F.col(OFFSET),
    }
    if "key" in mapped or "key" in known:
        text, kind = expression_of("key")
        wanted = StringType() if recent.key == "text" else BinaryType()
        if not isinstance(kind, StringType | BinaryType):
            raise _type_mismatch(history, pipeline, "key", kind.simpleString(), wanted.simpleString(), text)
        topic_columns["key"] = F.expr(text).cast(wanted)
    if "headers" in mapped or "headers" in known:
        text, kind = expression_of("headers")
        topic_columns["headers"] = header_map(F.expr(text)) if isinstance(kind, ArrayType) else F.expr(text)
    if has_raw_value:
        text, kind = expression_of("value")
        if not isinstance(kind, StringType | BinaryType):
            raise _type_mismatch(history, pipeline, "value", kind.simpleString(), "binary or string", text)
        raw = F.expr(text).cast("binary").alias("value")
        return with_payload(placed.select(*_POSITION_COLUMNS, raw, *_aliased(topic_columns)), pipeline, schemas)
    decoded: dict[str, Column] = {}
    for field in schema:
        text = mapped.get(field.name, f"`{field.name}`")
        kind = expression_type(placed, text, pipeline, _COLUMNS_PATH)
        if kind.simpleString() != field.dataType.simpleString():
            wanted = field.dataType.simpleString()
            raise _type_mismatch(history, pipeline, field.name, kind.simpleString(), wanted, text)
        decoded[field.name] = F.expr(text)
    others = {name: column for name, column in topic_columns.items() if name not in decoded}
    payload = placed.select(*_POSITION_COLUMNS, *_aliased(decoded), *_aliased(others))
    return payload.withColumns(
        {
            **dict.fromkeys((REASON, UNREAD), F.lit(None).cast("string")),
            RAW: as_text(*(f"`{name}`" for name in decoded)),
            RAW_BYTES: F.lit(None).cast("binary"),
        }
    )


def _aliased(columns: Mapping[str, Column]) -> list[Column]:
    return [column.alias(name) for name, column in columns.items()]


def _type_mismatch(
    history: StitchedHistory, pipeline: Pipeline, name: str, found: str, wanted: str, text: str
) -> SourceError:
    table = history.past.table
    return SourceError(
        f"`{name}` is {found.upper()} in {table} and {wanted.upper()} in the topic",
        pipeline.source_of(("history", "past")) or table,
        f"Map it under history.past.columns, as `{name}: CAST({text} AS {wanted.upper()})`.",
    )
