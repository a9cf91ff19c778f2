"""The flights sample as a Kafka topic: partitions, append times and order as a live producer would have left them."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from spark_jobs.errors import SourceError
from spark_jobs.services.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.services.kafka_log import LogRecord, write_partition

SAMPLE = Path("tests/data/flights/events.parquet")
TOPIC = "flights"


def load_flights(broker: KafkaBroker, sample: Path = SAMPLE, topic: str = TOPIC) -> int:
    """Make the topic where it is missing, and return how many records it holds; the broker restarts for it.

    Raises SourceError where the sample is not there.
    """
    if not sample.exists():
        raise SourceError("the flights sample is not here", str(sample), "Run in a checkout's root folder.")
    events = pq.read_table(sample).sort_by([("partition", "ascending"), ("offset", "ascending")])
    if broker.has_topic(topic):
        return events.num_rows
    columns = [events.column(name).to_pylist() for name in ("partition", "key", "value")]
    arrivals = events.column("arrival").cast("int64").to_pylist()
    logs: dict[int, list[LogRecord]] = {}
    for partition, key, value, arrival in zip(*columns, arrivals, strict=True):
        logs.setdefault(partition, []).append(LogRecord(arrival, key.encode(), value.encode()))
    broker.create_topic(topic, partitions=len(logs), settings=APPEND_TIME)
    broker.stop()
    for partition, records in logs.items():
        write_partition(broker.data, topic, partition, records)
    broker.start()
    return events.num_rows
