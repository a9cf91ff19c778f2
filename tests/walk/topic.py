"""A walk's records in a topic of a real broker, with the times of their producer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from pyspark.sql import SparkSession

from tests.kafka import Sent, produce
from tests.services.kafka_broker import AdministeredBroker
from tests.walk import plan as s
from tests.walk.log import Log
from tests.walk.places import Place

_SETTINGS = {"message.timestamp.type": "CreateTime", "retention.ms": "-1"}


class Topic(Place):
    """`broker` is set before the first walk."""

    broker: ClassVar[AdministeredBroker]
    value: ClassVar[str | None] = '{format: json, schema: "k STRING, t BIGINT, v BIGINT, i BIGINT"}'

    def __init__(self, spark: SparkSession, folder: Path, name: str, walk: s.Walk) -> None:
        super().__init__(spark, folder, name, walk)
        self.broker.create_topic(name, 2, _SETTINGS)

    @property
    def history(self) -> str:
        more = ", going_back: running_maximum" if self.walk.running_maximum else ""
        where = f"servers: '{self.broker.servers}', topic: {self.name}"
        return f"{{kind: kafka, {where}, timestamps: producer_time, accept: [lost_start]{more}}}"

    def change(self, step: s.Step, before: Log, after: Log) -> None:
        if isinstance(step, s.AnotherLog):
            self.broker.delete_topic(self.name)
            self.broker.create_topic(self.name, 2, _SETTINGS)
            before = Log()
        new = [r for n, r in after.records.items() if n not in before.records]
        sent = [
            Sent(json.dumps({"k": r.key, "t": r.time, "v": r.value, "i": r.id}), r.partition or 0, timestamp=r.arrival)
            for r in new
        ]
        if sent:
            produce(self.spark, self.broker.servers, self.name, sent)
        for partition in (0, 1):
            gone = [r.offset for n, r in before.records.items() if r.partition == partition and n not in after.records]
            if gone:
                self.broker.delete_records(self.name, partition, max(o for o in gone if o is not None) + 1)
