"""One Kafka transaction: records that readers see together or not at all. Kafka's own client in Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_jobs.definition.live import TopicEmitted
from spark_jobs.errors import SourceError
from spark_jobs.sources.kafka_config import client_config
from spark_jobs.spark.gateway import JavaObject, jvm
from spark_jobs.spark.java import java_reason

_TIMEOUT = 600_000
"""How long a transaction may take (ms); the brokers' own limit is 15 minutes."""
_CONSUMERS_ONLY = ("group.id", "isolation.level", "auto.offset.reset", "fetch.", "max.partition.fetch", "max.poll")


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record to write. `partition` None: the partition that Kafka chooses by the key. `value` None: a tombstone."""

    key: bytes | None
    value: bytes | None
    partition: int | None
    headers: Mapping[str, str] = field(default_factory=dict)


class Transaction:
    """A producer with a transactional id: whoever has it last fences off all before it, and ends their transaction."""

    def __init__(self, spark: SparkSession, topic: TopicEmitted, transactional_id: str) -> None:
        self._jvm, self._topic = jvm(spark), topic.topic
        packages = self._jvm.org.apache.kafka
        settings = self._jvm.java.util.Properties()
        config = {n: v for n, v in client_config(topic).items() if not n.startswith(_CONSUMERS_ONLY)}
        own = {"transactional.id": transactional_id, "transaction.timeout.ms": str(_TIMEOUT), "linger.ms": "20"}
        for name, value in {**config, **own}.items():
            settings.put(name, str(value))
        serializer = packages.common.serialization.ByteArraySerializer
        self._made: dict[tuple[tuple[str, str], ...], JavaObject] = {}
        self._client: JavaObject = packages.clients.producer.KafkaProducer(settings, serializer(), serializer())

    def begin(self) -> None:
        """Fence off earlier producers: what they have not committed by now is aborted. Then begin."""
        self._client.initTransactions()
        self._client.beginTransaction()

    def send(self, records: Iterable[TopicRecord]) -> None:
        """Send records; readers of committed records do not see them yet."""
        of_record = self._jvm.org.apache.kafka.clients.producer.ProducerRecord
        for one in records:
            headers = self._headers(tuple(one.headers.items()))
            self._client.send(of_record(self._topic, one.partition, None, one.key, one.value, headers))

    def _headers(self, named: tuple[tuple[str, str], ...]) -> JavaObject:
        """Made once for all records that have the same: each call to the JVM takes as long as Kafka's own work."""
        if named not in self._made:
            made = self._jvm.org.apache.kafka.common.header.internals.RecordHeaders()
            for name, text in named:
                made.add(name, text.encode())
            self._made[named] = made
        return self._made[named]

    def commit(self) -> None:
        """Let readers see all of them. Raises py4j's error with Kafka's reason where one was refused."""
        self._client.commitTransaction()

    def abort(self) -> None:
        self._client.abortTransaction()

    def close(self) -> None:
        self._client.close(self._jvm.java.time.Duration.ofSeconds(5))


@contextmanager
def transaction(spark: SparkSession, topic: TopicEmitted, transactional_id: str) -> Iterator[Transaction]:
    """A transaction that is aborted where the block fails. Raises SourceError with Kafka's reason."""
    opened: Transaction | None = None
    try:
        opened = Transaction(spark, topic, transactional_id)
        opened.begin()
        yield opened
    except (Exception, KeyboardInterrupt) as problem:
        if opened is not None:
            with suppress(Py4JError, PySparkException):  # fenced, or never begun: the brokers abort it
                opened.abort()
        if not isinstance(problem, Py4JError):
            raise
        raise SourceError(
            f"corrections cannot be written: {java_reason(problem)[:300]}",
            f"topic {topic.topic} at {topic.servers}",
            "Check that the brokers are reachable, and that the user may write to the topic in transactions.",
        ) from problem
    finally:
        if opened is not None:
            opened.close()
