"""Records produced by Kafka's own client in Spark's JVM: keys, headers, times, null values and transactions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from spark_jobs.spark.gateway import jvm


@dataclass(frozen=True, slots=True)
class Sent:
    """One record to produce; `timestamp` (epoch ms) is used if the topic keeps the producer's time."""

    value: bytes | str | None
    partition: int = 0
    key: bytes | str | None = None
    timestamp: int | None = None
    headers: dict[str, str] = field(default_factory=dict)


class Producer:
    """A producer in Spark's JVM; with `transactional_id`, one that can begin, commit and abort."""

    def __init__(self, spark: SparkSession, servers: str, transactional_id: str | None = None) -> None:
        self._jvm = jvm(spark)
        settings = self._jvm.java.util.Properties()
        settings.put("bootstrap.servers", servers)
        settings.put("linger.ms", "0")
        if transactional_id:
            settings.put("transactional.id", transactional_id)
        serializer = self._jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        self.client = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings, serializer(), serializer())
        if transactional_id:
            self.client.initTransactions()

    def send(self, topic: str, records: Iterable[Sent]) -> None:
        """Send the records, those of a partition in their order, and wait until the broker has acknowledged each.

        Raises py4j's error with Kafka's reason if it refused one; `flush` alone would ignore that.
        """
        answers = []
        for sent in records:
            record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord(
                topic, sent.partition, sent.timestamp, _bytes(sent.key), _bytes(sent.value)
            )
            for name, text in sent.headers.items():
                record.headers().add(name, text.encode())
            answers.append(self.client.send(record))
        self.client.flush()
        for answer in answers:
            answer.get()

    def close(self) -> None:
        self.client.close()


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def produce(spark: SparkSession, servers: str, topic: str, records: Iterable[Sent]) -> None:
    """Send the records with a producer of their own."""
    producer = Producer(spark, servers)
    try:
        producer.send(topic, records)
    finally:
        producer.close()


def commit(spark: SparkSession, servers: str, group: str, topic: str, offsets: Mapping[int, int]) -> None:
    """Commit the offsets of a consumer group, by partition, as `kafka-consumer-groups --reset-offsets` does."""
    packages = jvm(spark)
    kafka = packages.org.apache.kafka
    properties, wanted = packages.java.util.Properties(), packages.java.util.HashMap()
    properties.put("bootstrap.servers", servers)
    for partition, offset in offsets.items():
        place = kafka.common.TopicPartition(topic, partition)
        wanted.put(place, kafka.clients.consumer.OffsetAndMetadata(offset))
    admin = kafka.clients.admin.Admin.create(properties)
    admin.alterConsumerGroupOffsets(group, wanted).all().get()
    admin.close()
