"""A Kafka topic as a history: Spark's connector reads a batch between offsets that are pinned before.

The frame's columns are `key` (text or bytes), `value` (bytes), `headers` (a map of text; the last header of a name
counts), `topic`, `partition`, `offset` and `timestamp`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from spark_jobs.definition.kafka import Topic, TopicAccess
from spark_jobs.pins import OffsetRange, PinnedTopic
from spark_jobs.sources.kafka.admin import client_config, topic_admin
from spark_jobs.sources.kafka.offsets import confirm, resolve

NO_APPEND_TIME = "rw_no_append_time"
"""Begins the error for a record without the broker's time; `failures.read_error` looks for it."""

_APPEND_TIME = 1
"""Kafka's TimestampType.LOG_APPEND_TIME, as the connector's `timestampType` shows it."""

# Larger batches than a consumer's defaults: a topic of small records takes a third less time.
_BULK = {"max.poll.records": "5000", "max.partition.fetch.bytes": str(8 << 20), "receive.buffer.bytes": str(1 << 20)}

_HEADERS = t.MapType(t.StringType(), t.StringType())
_CONNECTOR = t.StructType(
    [
        t.StructField("key", t.BinaryType()),
        t.StructField("value", t.BinaryType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
        t.StructField("offset", t.LongType()),
        t.StructField("timestamp", t.TimestampType()),
        t.StructField("timestampType", t.IntegerType()),
        t.StructField(
            "headers",
            t.ArrayType(t.StructType([t.StructField("key", t.StringType()), t.StructField("value", t.BinaryType())])),
        ),
    ]
)


def pin_topic(
    spark: SparkSession,
    topic: Topic,
    *,
    pinned: PinnedTopic | None = None,
    registered: Iterable[int] | None = None,
    as_of: Mapping[int, int] | None = None,
    past: Mapping[int, int] | None = None,
    past_topic_id: str | None = None,
) -> PinnedTopic:
    """The offsets to read: those of a plan (`pinned`), confirmed, or new ones, see `kafka_offsets.resolve`.

    Raises:
        SourceError: The brokers do not answer, there is no such topic, or it may not be read.
        HistoryError: Records would be missing.
    """
    with topic_admin(spark, topic) as admin:
        state = admin.state()
        if pinned is not None:
            return confirm(topic, state, pinned)
        return resolve(
            topic,
            state,
            admin.offsets_at,
            registered=registered,
            as_of=as_of,
            past=past,
            past_topic_id=past_topic_id,
        )


def read_topic(spark: SparkSession, topic: Topic, pinned: PinnedTopic, *, headers: bool = True) -> DataFrame:
    """Exactly the pinned records, with the columns above. Nothing is read yet.

    Where the topic is said to have the broker's time, a record with the producer's time makes the read fail.

    Args:
        headers: Whether headers are read; they are null where not.
    """
    return topic_columns(read_log(spark, topic, pinned.ranges, headers=headers), topic, pinned.arrival_kind)


def read_log(
    spark: SparkSession, topic: TopicAccess, offsets: Iterable[OffsetRange], *, headers: bool = True
) -> DataFrame:
    """Exactly the records at these offsets, with the connector's own columns: bytes, `timestampType`, repeated headers.

    Nothing is read yet. `headers` says whether the column `headers` is read: it costs time.
    """
    ranges = [chosen for chosen in offsets if chosen.end > chosen.start]
    if not ranges:
        return spark.createDataFrame([], _CONNECTOR)
    timeouts = {
        "default.api.timeout.ms": str(topic.read_timeout),
        "request.timeout.ms": str(min(30_000, max(1_000, topic.read_timeout // 2))),
    }
    config = {**_BULK, **timeouts, **client_config(topic), "isolation.level": topic.isolation}
    splits = topic.min_partitions or spark.sparkContext.defaultParallelism
    reader = spark.read.format("kafka").options(**{f"kafka.{name}": value for name, value in config.items()})
    return reader.options(
        assign=json.dumps({topic.topic: [chosen.partition for chosen in ranges]}),
        startingOffsets=json.dumps({topic.topic: {str(chosen.partition): chosen.start for chosen in ranges}}),
        endingOffsets=json.dumps({topic.topic: {str(chosen.partition): chosen.end for chosen in ranges}}),
        failOnDataLoss="true",
        includeHeaders=str(headers).lower(),
        minPartitions=str(splits),
        # Kafka's client retries until its timeout; retries of Spark's connector would multiply that time.
        **{"kafkaConsumer.pollTimeoutMs": str(topic.read_timeout), "fetchOffset.numRetries": "1"},
    ).load()


def empty_topic(spark: SparkSession, topic: Topic) -> DataFrame:
    """A topic's columns without any record."""
    return topic_columns(spark.createDataFrame([], _CONNECTOR), topic, "producer_time")


def topic_columns(log: DataFrame, topic: Topic, arrival_kind: str) -> DataFrame:
    """The connector's columns in the form that expressions use."""
    is_append_time = arrival_kind == "append_time"
    timestamp = append_time(F.col("timestampType")) if is_append_time else F.col("timestamp")
    headers = header_map(F.col("headers")) if "headers" in log.columns else F.lit(None).cast(_HEADERS)
    key = F.col("key").cast("string") if topic.key == "text" else F.col("key")
    return log.select(
        key.alias("key"),
        "value",
        headers.alias("headers"),
        "topic",
        "partition",
        "offset",
        timestamp.alias("timestamp"),
    )


def append_time(kind: Column) -> Column:
    """The column `timestamp`; a record with the producer's time makes the read fail, with its partition and offset."""
    position = F.concat_ws(" ", F.lit(NO_APPEND_TIME), F.col("partition"), F.col("offset"))
    return F.when(kind == _APPEND_TIME, F.col("timestamp")).otherwise(F.raise_error(position).cast("timestamp"))


def header_map(headers: Column) -> Column:
    """Headers as a map of text. Kafka allows a name to repeat: the last header of a name counts."""
    names = F.array_distinct(F.transform(headers, lambda header: header["key"]))
    values = F.transform(
        names,
        lambda name: F.element_at(F.filter(headers, lambda header: header["key"] == name), -1)["value"].cast("string"),
    )
    return F.map_from_arrays(names, values).cast(_HEADERS)
