"""Ask the brokers about a topic: partitions, offsets and settings. Uses Kafka's own client in Spark's JVM."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.errors import SourceError
from spark_jobs.sources.kafka_config import client_config
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, jvm
from spark_jobs.spark.java import java_reason

_SECONDS = 20
"""How long a request to the brokers may take."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """The offsets `[earliest, latest)` of a partition; with `read_committed` it ends before an open transaction."""

    earliest: int
    latest: int


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as it is now.

    Attributes:
        topic_id: Kafka's id of the topic. A topic that is deleted and created again has another id.
        partitions: The bounds of each partition that has a leader.
        unreachable: The partitions without a leader.
        has_append_time: Whether new records get the broker's time (`message.timestamp.type`).
        is_compacted: Whether compaction removes records (`cleanup.policy`).
    """

    topic_id: str
    partitions: Mapping[int, LogBounds]
    unreachable: tuple[int, ...]
    has_append_time: bool
    is_compacted: bool


class TopicAdmin:
    """Requests about one topic. Each method raises SourceError where the brokers do not answer or refuse."""

    def __init__(self, spark: SparkSession, topic: TopicAccess, client: JavaObject) -> None:
        self._jvm = jvm(spark)
        self._spark = spark
        self._topic = topic
        self._client = client

    def state(self) -> TopicState:
        """The topic's identity, settings and bounds. Raises SourceError where there is no such topic."""
        name = self._topic.topic
        with _requests_to(self._topic):
            description = self._get(self._client.describeTopics(self._jvm.java.util.List.of(name)).allTopicNames())
            found = description.get(name)
            partitions, unreachable = [], []
            for info in found.partitions():
                leader = info.leader()
                (unreachable if leader is None or leader.isEmpty() else partitions).append(info.partition())
            settings = self._settings(name)
            bounds = self._bounds(partitions)
        return TopicState(
            topic_id=found.topicId().toString(),
            partitions=bounds,
            unreachable=tuple(sorted(unreachable)),
            has_append_time=settings["message.timestamp.type"] == "LogAppendTime",
            is_compacted="compact" in settings["cleanup.policy"],
        )

    def offsets_at(self, partitions: Iterable[int], instant: int) -> dict[int, int | None]:
        """By partition, the first offset with a timestamp at or after `instant` (epoch ms); None: no record has one."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(instant)
        with _requests_to(self._topic):
            found = self._offsets(sorted(partitions), spec)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def _settings(self, name: str) -> dict[str, str]:
        config = self._jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(
            self._jvm.java.lang.Enum.valueOf(
                self._class("org.apache.kafka.common.config.ConfigResource$Type"), "TOPIC"
            ),
            name,
        )
        answer = self._get(self._client.describeConfigs(self._jvm.java.util.List.of(resource)).all()).get(resource)
        return {key: answer.get(key).value() for key in ("message.timestamp.type", "cleanup.policy")}

    def _bounds(self, partitions: list[int]) -> dict[int, LogBounds]:
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        earliest, latest = self._offsets(partitions, spec.earliest()), self._offsets(partitions, spec.latest())
        return {partition: LogBounds(earliest[partition], latest[partition]) for partition in partitions}

    def _offsets(self, partitions: list[int], spec: JavaObject) -> dict[int, int]:
        if not partitions:
            return {}
        common = self._jvm.org.apache.kafka.common
        isolation = self._jvm.java.lang.Enum.valueOf(
            self._class("org.apache.kafka.common.IsolationLevel"), self._topic.isolation.upper()
        )
        requested = self._jvm.java.util.HashMap()
        for partition in partitions:
            requested.put(common.TopicPartition(self._topic.topic, partition), spec)
        options = self._jvm.org.apache.kafka.clients.admin.ListOffsetsOptions(isolation)
        answer = self._get(self._client.listOffsets(requested, options).all())
        return {entry.getKey().partition(): entry.getValue().offset() for entry in answer.entrySet()}

    def _get(self, future: JavaObject) -> JavaObject:
        return future.get(_SECONDS, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def _class(self, name: str) -> JavaObject:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return self._jvm.java.lang.Class.forName(name, True, loader)


@contextmanager
def topic_admin(spark: SparkSession, topic: TopicAccess) -> Iterator[TopicAdmin]:
    """A client for requests about `topic`, closed at the end of the context."""
    refuse_unreachable(topic.servers, topic.topic)
    packages = jvm(spark)
    properties = packages.java.util.Properties()
    limits = {"default.api.timeout.ms": _SECONDS * 1000, "request.timeout.ms": _SECONDS * 500}
    for name, value in {**client_config(topic), **limits}.items():
        properties.put(name, str(value))
    with _requests_to(topic):
        client = packages.org.apache.kafka.clients.admin.Admin.create(properties)
    try:
        yield TopicAdmin(spark, topic, client)
    finally:
        client.close(packages.java.time.Duration.ZERO)


_CONNECT_SECONDS, _MOST_TRIED = 2.0, 4


def refuse_unreachable(servers: str, topic: str) -> None:
    """Raises SourceError, within 10 s, where no address of `servers` accepts a connection; Kafka's client waits longer.

    At most `_MOST_TRIED` addresses are tried. One that cannot be read is left to Kafka's client.
    """
    addresses = [text.strip().rpartition("://")[2] for text in servers.split(",") if text.strip()]
    problems: list[str] = []
    for address in addresses[:_MOST_TRIED]:
        host, colon, port = address.rpartition(":")
        if not colon or not port.isdigit():
            return
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_SECONDS).close()
        except OSError as problem:
            problems.append(f"{address}: {problem.strerror or 'no answer'}")
            continue
        return
    if problems and len(addresses) <= _MOST_TRIED:
        hint = (
            "Start them, or correct `history.servers` or the variable in it; for what was emitted, its own `servers`."
        )
        raise SourceError(f"the brokers do not answer ({'; '.join(problems)})", f"topic {topic} at {servers}", hint)


@contextmanager
def _requests_to(topic: TopicAccess) -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        raise kafka_problem(java_reason(error), topic.topic, topic.servers) from error
    except Py4JError as error:
        hint = "Run the command again."
        raise SourceError(f"Spark's JVM has ended: {java_reason(error)}", f"topic {topic.topic}", hint) from error


def kafka_problem(reason: str, topic: str, servers: str) -> SourceError:
    """The error for a message of Kafka's client, with what to do."""
    where = f"topic {topic} at {servers}"
    message = reason.rpartition("Exception: ")[2].strip() or reason.rpartition(".")[2]
    if "UnknownTopicOrPartition" in reason or "InvalidTopic" in reason:
        return SourceError(f"there is no topic `{topic}`", where, "Correct `topic` or `servers`.")
    if "Authentication" in reason or "SslException" in reason or "SSLHandshake" in reason:
        hint = "Check security.protocol, sasl.mechanism and the variables named under `secrets`."
        return SourceError(f"the brokers refuse access: {message}", where, hint)
    if "Authorization" in reason:
        return SourceError(f"no permission: {message}", where, "Ask for the rights to read and describe the topic.")
    if "ConfigException" in reason or "Failed create new" in reason or "JAAS" in reason.upper():
        # The message of a configuration error can hold the value.
        return SourceError("Kafka's client refuses its configuration", where, "Check `options` and `secrets`.")
    if "Timeout" in reason or "Disconnect" in reason or "Network" in reason or "timed out" in reason.lower():
        hint = "Start them, or correct `servers`; a listener that needs TLS or SASL answers like this too."
        return SourceError("the brokers do not answer", where, hint)
    return SourceError(f"Kafka refuses: {message}", where, "Check the topic with `rewindow doctor PIPELINE`.")
