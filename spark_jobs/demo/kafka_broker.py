"""A real Kafka broker in KRaft mode, from pinned jars, for trials.

    with KafkaBroker(Path("kafka")) as broker:
        broker.create_topic("flights", partitions=3)
        ...  # broker.servers is what clients connect to

It is Kafka's own server (broker and controller in one process), on free ports of the loopback interface. The jars come
from Maven Central through the Ivy that pyspark brings, once, and lie beside Spark's.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError
from tenacity import Retrying, retry_if_exception, retry_if_result, stop_after_delay, wait_fixed

from spark_jobs.demo.ports import free_port
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.spark.gateway import JavaObject
from spark_jobs.spark.jars import fetch_jars
from spark_jobs.spark.java import find_java, java_reason
from spark_jobs.spark.jvm import LOG_SETTINGS

KAFKA_PACKAGE = "org.apache.kafka:kafka_2.13:4.1.1"
APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
"""The setting of a topic whose records carry the broker's clock."""

_STOP_SECONDS = 30
_SHUTDOWN_SECONDS = 30
"""How long a broker may take to stop in order."""
_METADATA_SECONDS = 30
"""How long the broker may take to learn of a topic that its controller has created."""
_CLUSTER_ID = "UmV3aW5kb3dLYWZrYS0xMA"


class KafkaBroker:
    """A broker with its log in `directory`, which listens on 127.0.0.1 until `stop()`.

    `port` 0 takes a free one, which stays the same after `stop()` and `start()`. The broker ends with this process: its
    JVM ends when the pipe to its standard input closes, even after a SIGKILL. Its records stay in `directory`.

    `settings` are more of Kafka's server properties.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        heap: str = "512m",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.data = self.directory / "data"
        self.log = self.directory / "kafka.log"
        self._port, self._controller_port = port or free_port(), free_port()
        self._heap = heap
        self._settings = dict(settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: JavaObject | None = None
        self._server: JavaObject | None = None
        self._admin: JavaObject | None = None
        self._output: IO[str] | None = None

    @property
    def servers(self) -> str:
        """`bootstrap.servers` for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """The process id of the broker's JVM; None when it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> KafkaBroker:
        """Start and wait until it serves. Raises EnvironmentSetupError when it cannot (Java, jars, port, directory)."""
        if self._process is not None:
            raise EnvironmentSetupError("the broker already runs", self.servers, "Use it, or stop it first.")
        jars = fetch_kafka()
        try:
            self.data.mkdir(parents=True, exist_ok=True)
            self._output = self.log.open("a")
            self._serve(self._launch(jars, self._output))
        except (Py4JError, OSError, ValueError) as error:
            reason = "its JVM ended at once" if isinstance(error, ValueError) else java_reason(error)
            self.kill()
            raise EnvironmentSetupError(
                f"the Kafka broker did not start: {reason}",
                str(self.directory),
                f"Look for another broker in this directory or on port {self._port}; its log is {self.log}.",
            ) from error
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop it in order (all its records are on disk then) and wait until its process has ended; harmless twice."""
        if self._server is not None:
            # In a thread: a broker that waits for something in its shutdown must not keep this process alive.
            shutdown = threading.Thread(target=self._shut_down, daemon=True)
            shutdown.start()
            shutdown.join(_SHUTDOWN_SECONDS)
        if self._gateway is not None:
            with suppress(Py4JError):
                self._gateway.shutdown()
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._end(_STOP_SECONDS)

    def _shut_down(self) -> None:
        with suppress(Py4JError, OSError):  # the JVM may be gone already
            if self._admin is not None:
                self._admin.close()
            if self._server is not None:
                self._server.shutdown()
                self._server.awaitShutdown()

    def kill(self) -> None:
        """End its process at once, as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._gateway is not None:
            with suppress(Py4JError, OSError):
                self._gateway.close()
        self._end(0)

    def _end(self, seconds: float) -> None:
        if self._process is not None:
            try:
                self._process.wait(seconds or None)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._output.close()
        self._process = self._gateway = self._server = self._admin = self._output = None

    def __enter__(self) -> KafkaBroker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def admin(self) -> Any:
        """Kafka's own `Admin` client, connected to this broker; it lives in the broker's JVM."""
        if self._admin is None:
            jvm = self._running().jvm
            properties = jvm.java.util.Properties()
            properties.put("bootstrap.servers", self.servers)
            self._admin = jvm.org.apache.kafka.clients.admin.Admin.create(properties)
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, settings: Mapping[str, str] | None = None, brokers: Sequence[int] = (1,)
    ) -> None:
        """Create a topic, one replica, and wait until each partition can be written to.

        `settings` are the topic's, as `retention.ms`; by default it retains all records. Its partitions lie on
        `brokers` in turn.
        """
        jvm = self._running().jvm
        java_settings = jvm.java.util.HashMap()
        for key, value in {"retention.ms": "-1", **(settings or {})}.items():
            java_settings.put(key, value)
        replicas = jvm.java.util.HashMap()
        for partition in range(partitions):
            replicas.put(partition, jvm.java.util.List.of(brokers[partition % len(brokers)]))
        topic = jvm.org.apache.kafka.clients.admin.NewTopic(name, replicas)
        created = self.admin.createTopics(jvm.java.util.List.of(topic.configs(java_settings)))
        created.all().get()
        self._wait_until_served(name, created.topicId(name).get().toString(), partitions)

    def has_topic(self, name: str) -> bool:
        """Whether the topic exists."""
        return bool(self.admin.listTopics().names().get().contains(name))

    def end_offsets(self, topic: str) -> dict[int, int]:
        """The offset that comes next, by partition."""
        return self._latest_offsets(topic, [info.partition() for info in self._describe(topic).partitions()])

    def _describe(self, topic: str) -> Any:
        names = self._running().jvm.java.util.List.of(topic)
        return self.admin.describeTopics(names).allTopicNames().get().get(topic)

    def _wait_until_served(self, topic: str, topic_id: str, partitions: int) -> None:
        """Wait until the broker knows this topic (not a deleted one of the same name) and its partitions have leaders.

        The controller confirms a new topic before the broker has heard of it. Until then the broker answers "unknown
        topic", which Kafka's client does not retry when it lists offsets.
        """
        wait_for = Retrying(
            retry=retry_if_exception(_is_unknown_topic) | retry_if_result(lambda is_served: not is_served),
            stop=stop_after_delay(_METADATA_SECONDS),
            wait=wait_fixed(0.02),
            reraise=True,
        )
        wait_for(self._is_served, topic, topic_id, partitions)

    def _is_served(self, topic: str, topic_id: str, partitions: int) -> bool:
        description = self._describe(topic)
        if description.topicId().toString() != topic_id or description.partitions().size() != partitions:
            return False
        self._latest_offsets(topic, range(partitions))
        return True

    def _latest_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """The offset that comes next, from each partition's leader; the client retries until there is a leader.

        The controller confirms a topic before its partitions have leaders. A record that is sent before that can be
        lost: the leader may refuse the first of two batches and accept the second, and then the idempotent producer
        cannot send the first one again.
        """
        jvm = self._running().jvm
        specs = jvm.java.util.HashMap()
        for partition in partitions:
            place = jvm.org.apache.kafka.common.TopicPartition(topic, partition)
            specs.put(place, jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())
        found = self.admin.listOffsets(specs).all().get()
        return {place.partition(): found.get(place).offset() for place in specs}

    def produce(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Append records (key, value) in their order, and wait until the broker has all of them.

        Kafka's own client, in the broker's JVM. Raises py4j's error with Kafka's reason if one was refused.
        """
        jvm = self._running().jvm
        properties = jvm.java.util.Properties()
        properties.put("bootstrap.servers", self.servers)
        serializer = jvm.org.apache.kafka.common.serialization.ByteArraySerializer
        producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(properties, serializer(), serializer())
        try:
            new = jvm.org.apache.kafka.clients.producer.ProducerRecord
            answers = [producer.send(new(topic, key, value)) for key, value in records]
            for answer in answers:
                answer.get()
        finally:
            producer.close()

    def _running(self) -> JavaObject:
        if self._gateway is None:
            raise EnvironmentSetupError("the broker does not run", self.servers, "Start it first.")
        return self._gateway

    def _launch(self, jars: Path, output: IO[str]) -> JavaObject:
        # Kafka brings no logger; Spark's goes before Kafka's older slf4j.
        loggers = [
            str(jar)
            for name in ("slf4j-api", "log4j-slf4j2-impl", "log4j-api-2", "log4j-core")
            for jar in JARS.glob(f"{name}*.jar")
        ]
        options = [f"-Xmx{self._heap}", "-XX:+UseSerialGC"]
        self._gateway, self._process = launched([*loggers, f"{jars}/*"], options, output)
        return self._gateway

    def _serve(self, gateway: JavaObject) -> None:
        """What `kafka-storage format` and `kafka-server-start` do."""
        jvm = gateway.jvm
        file = self.directory / "server.properties"
        properties = jvm.java.util.Properties()
        for key, value in self._properties().items():
            properties.put(key, value)
        file.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        arguments = ["format", "--config", str(file), "--cluster-id", _CLUSTER_ID, "--ignore-formatted"]
        java_arguments = gateway.new_array(jvm.java.lang.String, len(arguments))
        for place, argument in enumerate(arguments):
            java_arguments[place] = argument
        said = jvm.java.io.ByteArrayOutputStream()
        if jvm.kafka.tools.StorageTool.execute(java_arguments, jvm.java.io.PrintStream(said)):
            raise OSError(said.toString().strip())
        config = jvm.kafka.server.KafkaConfig.fromProps(properties)
        server = jvm.kafka.server.KafkaRaftServer(config, jvm.org.apache.kafka.common.utils.Time.SYSTEM)
        self._server = server
        server.startup()

    def _properties(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self._controller_port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "log.cleaner.dedupe.buffer.size": "2000000",
            "broker.session.timeout.ms": "3000",  # after a kill, the next start waits so long for the old one
            "broker.heartbeat.interval.ms": "500",
            # Each no-op record makes the raft thread read its log; after an hour that would take a whole core.
            "metadata.max.idle.interval.ms": "0",
            "num.network.threads": "2",
            "num.io.threads": "2",
            "unstable.api.versions.enable": "false",
            **self._settings,
        }


def _is_unknown_topic(error: BaseException) -> bool:
    # By its text: with a Spark session in this process, PySpark takes errors of the broker's JVM for those of its own.
    return "UnknownTopicOrPartition" in str(error)


def fetch_kafka() -> Path:
    """The folder with the broker's jars, fetched if missing. Raises EnvironmentSetupError when they cannot be."""
    return fetch_jars(KAFKA_PACKAGE, "the Kafka broker's")


JARS = Path(pyspark.__file__).parent / "jars"
"""The folder of the jars that come with pyspark."""


def launched(
    classpath: Sequence[str], options: Sequence[str], output: IO[str]
) -> tuple[JavaObject, subprocess.Popen[bytes]]:
    """A new Java process and the gateway to it, with Spark's settings of its logs.

    It ends with this process: its JVM ends when the pipe to its standard input closes, even after a SIGKILL.

    Args:
        classpath: Jars, or folders with `/*`.
        options: Options of Java.
        output: What it prints goes there.
    """
    started: Any = launch_gateway(
        jarpath=str(next(JARS.glob("py4j-*.jar"))),
        classpath=":".join(classpath),
        javaopts=[*options, f"-Dlog4j2.configurationFile={LOG_SETTINGS}"],
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        return_proc=True,
        create_new_process_group=True,  # Ctrl-C goes to the owner, who stops it in order
        redirect_stdout=output,
        redirect_stderr=output,
    )
    port, token, process = started
    return JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token)), process
