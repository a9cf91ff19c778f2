"""Ask the brokers about a topic: partitions, offsets and settings. Uses Kafka's own client in Spark's JVM.

The client's configuration is the definition's options, and secrets from the environment. Secrets are in it only: they
are never part of a definition, a plan, a table, a message or a process's arguments.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from spark_jobs.definition.kafka import TopicAccess
from spark_jobs.errors import EnvironmentSetupError, SourceError
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
        retention: How long the topic keeps a record (`retention.ms`); None: nobody knows, or it keeps them for ever.
    """

    topic_id: str
    partitions: Mapping[int, LogBounds]
    unreachable: tuple[int, ...]
    has_append_time: bool
    is_compacted: bool
    retention: int | None = None


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
            retention=_retention(settings),
        )

    def offsets_at(self, partitions: Iterable[int], instant: int) -> dict[int, int | None]:
        """By partition, the first offset with a timestamp at or after `instant` (epoch ms); None: no record has one."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(instant)
        with _requests_to(self._topic):
            found = self._offsets(sorted(partitions), spec)
        return {partition: None if offset < 0 else offset for partition, offset in found.items()}

    def committed(self, group: str) -> dict[str, dict[int, int]]:
        """The offsets that a consumer group has committed, by topic and partition; empty: there is no such group."""
        with _requests_to(self._topic):
            found = self._get(self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
        offsets: dict[str, dict[int, int]] = {}
        for entry in found.entrySet():
            if entry.getValue() is not None:
                offsets.setdefault(entry.getKey().topic(), {})[entry.getKey().partition()] = entry.getValue().offset()
        return offsets

    def _settings(self, name: str) -> dict[str, str]:
        config = self._jvm.org.apache.kafka.common.config
        resource = config.ConfigResource(
            self._jvm.java.lang.Enum.valueOf(
                self._class("org.apache.kafka.common.config.ConfigResource$Type"), "TOPIC"
            ),
            name,
        )
        answer = self._get(self._client.describeConfigs(self._jvm.java.util.List.of(resource)).all()).get(resource)
        return {key: answer.get(key).value() for key in _SETTINGS}

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


_SETTINGS = ("message.timestamp.type", "cleanup.policy", "retention.ms")


def _retention(settings: Mapping[str, str]) -> int | None:
    kept = int(settings["retention.ms"])
    return kept if kept >= 0 and "delete" in settings["cleanup.policy"] else None


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


_CONNECTION = "AIRFLOW_CONN_"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
_LIBRDKAFKA = {"sasl.mechanisms": "sasl.mechanism"}
_NOT_FROM_CONNECTIONS = ("group.id", "enable.auto.commit", "auto.offset.reset", "isolation.level", "bootstrap.servers")


def client_config(topic: TopicAccess, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Kafka's client configuration by Kafka's own names. It has the secrets, so it must not be printed.

    Raises EnvironmentSetupError where the variable of a secret or a connection is not set.
    """
    config = {"bootstrap.servers": topic.servers}
    if topic.connection is not None:
        config |= _from_connection(topic.connection, environ)
    config |= {name: _as_text(value) for name, value in topic.options.items()}
    for name, variable in topic.secrets.items():
        if not environ.get(variable):
            raise EnvironmentSetupError(
                f"environment variable {variable} is not set, and `{name}` is taken from it",
                f"topic {topic.topic}",
                "Set it where this command runs, or correct `secrets` in the definition's history.",
            )
        config[name] = environ[variable]
    return config


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _from_connection(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The configuration in an Airflow connection, JSON or URI, in the environment as Airflow itself reads it.

    Its extra holds Kafka's own names (the `sasl.username` and `sasl.password` of other clients are understood). Login
    and password become the JAAS configuration of SASL's PLAIN or SCRAM.
    """
    variable = _CONNECTION + name.upper()
    text = environ.get(variable, "").strip()
    if not text:
        raise EnvironmentSetupError(
            f"connection `{name}` is not in the environment",
            variable,
            "Airflow hands it to the task; elsewhere set the variable to its JSON or URI.",
        )
    try:
        login, password, extra = _parsed(text)
    except ValueError:
        # The text holds the password: neither it nor the parser's own words are shown.
        raise EnvironmentSetupError(f"connection `{name}` cannot be read", variable, "Write JSON or a URI.") from None
    config = {
        _LIBRDKAFKA.get(key, key): _as_text(value) for key, value in extra.items() if key not in _NOT_FROM_CONNECTIONS
    }
    login, password = config.pop("sasl.username", login), config.pop("sasl.password", password)
    if login and "sasl.jaas.config" not in config:
        mechanism = config.setdefault("sasl.mechanism", "PLAIN")
        config.setdefault("security.protocol", "SASL_SSL")
        module = _SCRAM if mechanism.startswith("SCRAM") else _PLAIN
        config["sasl.jaas.config"] = f"{module} required username={_quoted(login)} password={_quoted(password or '')};"
    return config


def _parsed(text: str) -> tuple[str | None, str | None, Mapping[str, object]]:
    """Login, password and extra of a connection. Raises ValueError where it is neither JSON nor a URI."""
    if text.startswith("{"):
        content = json.loads(text)
        extra = content.get("extra") or {}
        return content.get("login"), content.get("password"), json.loads(extra) if isinstance(extra, str) else extra
    parts = urlsplit(text)
    query = dict(parse_qsl(parts.query))
    extra = json.loads(query["__extra__"]) if "__extra__" in query else query
    return unquote(parts.username or "") or None, unquote(parts.password or "") or None, extra


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
