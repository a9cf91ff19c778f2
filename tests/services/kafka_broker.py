"""The Kafka broker of the tests: users who log in, a second broker, and what an administrator does to topics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_jobs.demo.kafka_broker import KafkaBroker
from spark_jobs.demo.ports import free_port


class AdministeredBroker(KafkaBroker):
    """A broker whose topics can be changed.

    `users` (name to password) opens a second listener, `sasl_servers`, which requires them (SASL_PLAINTEXT, mechanism
    PLAIN).
    """

    def __init__(self, directory: Path, *, users: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(directory, **options)
        self._users = dict(users or {})
        self._sasl_port = free_port()

    @property
    def sasl_servers(self) -> str:
        """`bootstrap.servers` for clients with a name and a password."""
        return f"127.0.0.1:{self._sasl_port}"

    def joining(self, directory: Path) -> KafkaBroker:
        """Another broker of the same cluster, number 2, not started yet. This one stays the only controller."""
        port = free_port()
        settings = {
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": self._properties()["controller.quorum.voters"],
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        }
        return KafkaBroker(directory, port=port, heap=self._heap, settings=settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""
        self.admin.deleteTopics(self._running().jvm.java.util.List.of(name)).all().get()

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Remove the records below an offset, as retention does."""
        gateway = self._running()
        jvm = gateway.jvm
        package = "org.apache.kafka.clients.admin"
        # Called through reflection: py4j does not find a static method that shares its name with another one.
        types = gateway.new_array(jvm.java.lang.Class, 1)
        types[0] = jvm.java.lang.Long.TYPE
        arguments = gateway.new_array(jvm.java.lang.Object, 1)
        arguments[0] = before
        found = jvm.java.lang.Class.forName(f"{package}.RecordsToDelete").getMethod("beforeOffset", types)
        below = jvm.java.util.HashMap()
        below.put(jvm.org.apache.kafka.common.TopicPartition(topic, partition), found.invoke(None, arguments))
        self.admin.deleteRecords(below).all().get()

    def alter_topic(self, name: str, settings: Mapping[str, str]) -> None:
        """Change settings of a topic."""
        jvm = self._running().jvm
        package = jvm.org.apache.kafka.clients.admin
        resource = jvm.org.apache.kafka.common.config.ConfigResource
        changes = jvm.java.util.ArrayList()
        for key, value in settings.items():
            changes.add(package.AlterConfigOp(package.ConfigEntry(key, value), package.AlterConfigOp.OpType.SET))
        topic = resource(resource.Type.TOPIC, name)
        self.admin.incrementalAlterConfigs(jvm.java.util.Map.of(topic, changes)).all().get()

    def add_partitions(self, topic: str, count: int) -> None:
        """Let the topic have `count` partitions, and wait until each can be written to."""
        jvm = self._running().jvm
        more = jvm.java.util.Map.of(topic, jvm.org.apache.kafka.clients.admin.NewPartitions.increaseTo(count))
        self.admin.createPartitions(more).all().get()
        self._latest_offsets(topic, range(count))

    def _properties(self) -> dict[str, str]:
        own = super()._properties()
        if not self._users:
            return own
        users = " ".join(f'user_{name}="{password}"' for name, password in self._users.items())
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            **own,
            "listeners": f"{own['listeners']},SASL_PLAINTEXT://{self.sasl_servers}",
            "listener.security.protocol.map": f"{own['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {users};",
        }
