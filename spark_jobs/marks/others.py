"""The marks that Kafka and Structured Streaming keep: a group's committed offsets, a query's checkpoint."""

from __future__ import annotations

from pyspark.sql import SparkSession

from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.errors import SourceError
from spark_jobs.eventtime.spark.logs import KafkaOffsets
from spark_jobs.marks.mark import Mark, MarkKind
from spark_jobs.sources.checkpoint import checkpoint_files, read_once
from spark_jobs.sources.kafka.admin import topic_admin


def read_group(spark: SparkSession, topic: TopicAccess, group: str) -> Mark:
    """The offsets that a consumer group has committed. Raises SourceError where there is no such group."""
    with topic_admin(spark, topic) as admin:
        offsets = admin.committed(group)
    if not offsets:
        raise SourceError(
            f"the consumer group {group} does not exist, or has committed no offset",
            topic.servers,
            "Write its group.id, or the folder of a checkpoint; a Kafka Streams application's is its application.id.",
        )
    return Mark(MarkKind.CONSUMER_GROUP, group, None, None, False, offsets)


def read_query(spark: SparkSession, path: str) -> Mark:
    """The offsets of the last batch that a query has committed. Raises SourceError where it cannot be read."""
    checkpoint = read_once(spark, checkpoint_files(spark, path))
    number = max(checkpoint.commits, default=None)
    if number is None or number not in checkpoint.offsets:
        raise SourceError("the query has committed no batch yet", path, "Wait for its first one.")
    entry = checkpoint.offsets[number]
    offsets: dict[str, dict[int, int]] = {}
    others = 0
    for source in entry.offsets.values():
        if not isinstance(source, KafkaOffsets):
            others += source is not None
            continue
        for topic, found in source.ends.items():
            offsets.setdefault(topic, {}).update(found)
    notes = (f"{others} of its sources are no topics, and are left out",) if others else ()
    return Mark(MarkKind.SPARK_CHECKPOINT, path, number, entry.timestamp, False, offsets, notes)
