"""The flights sample as a Kafka topic, with the partitions, append times and order of a live producer."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.devtools.services.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.devtools.services.kafka_log import LogRecord, write_partition
from spark_jobs.errors import SourceError

SAMPLE = Path("tests/data/flights/events.parquet")
TOPIC = "flights"


def load_flights(
    broker: KafkaBroker, sample: Path = SAMPLE, topic: str = TOPIC, *, before: datetime | None = None
) -> int:
    """Put the records that arrived `before` (default: all) into the topic; return how many records it then contains.

    Records that the topic already contains stay; the others look as if they had arrived since. The broker restarts,
    unless the topic contains all of them already. Raises SourceError when the sample is missing.
    """
    if not sample.exists():
        raise SourceError("the flights sample is not here", str(sample), "Run in a checkout's root folder.")
    events = pq.read_table(sample).sort_by([("partition", "ascending"), ("offset", "ascending")])
    partitions = max(events.column("partition").to_pylist()) + 1
    if before is not None:
        events = events.filter(pc.field("arrival") < before)
    if broker.has_topic(topic):
        present = sum(broker.end_offsets(topic).values())
        if present >= events.num_rows:
            return present
    else:
        broker.create_topic(topic, partitions=partitions, settings=APPEND_TIME)
    columns = [events.column(name).to_pylist() for name in ("partition", "key", "value")]
    arrivals = events.column("arrival").cast("int64").to_pylist()
    logs: dict[int, list[LogRecord]] = {partition: [] for partition in range(partitions)}
    for partition, key, value, arrival in zip(*columns, arrivals, strict=True):
        logs[partition].append(LogRecord(arrival, key.encode(), value.encode()))
    broker.stop()
    for partition, records in logs.items():
        write_partition(broker.data, topic, partition, records)
    broker.start()
    return events.num_rows
