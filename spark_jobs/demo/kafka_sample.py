"""The flights sample as Kafka topics: what a live producer has written, and what the live Flink job has emitted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
from spark_jobs.demo.kafka_log import LogRecord, write_partition
from spark_jobs.errors import SourceError
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP

SAMPLE = Path("tests/data/flights/events.parquet")
TOPIC = "flights"
EMITTED = Path("tests/data/flights/emitted_hourly.parquet")
LIVE_TOPIC = "flights_hourly"
END_OF_INPUT = MAX_TIMESTAMP
"""The watermark of the windows that fire because the input ends: a live job has no such end."""


def load_sample(broker: KafkaBroker, *, since: datetime | None = None, before: datetime | None = None) -> int:
    """Both topics: what had arrived `before`, and what the live job emitted for it, see `load_emitted` for `since`.

    Returns how many records the topic of flights then contains.
    """
    count = load_flights(broker, before=before)
    load_emitted(broker, since=since, before=before)
    return count


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


def load_emitted(broker: KafkaBroker, *, since: datetime | None = None, before: datetime | None = None) -> int:
    """Append what the live job emitted for records that arrived from `since` up to `before`; return the number of rows.

    The rows are what Flink emitted, in its order, as its connector `upsert-kafka` writes them
    (`value.fields-include: EXCEPT_KEY`). Without `since`, a topic that exists stays as it is: it has these rows, and
    perhaps corrections. Raises SourceError when the sample is missing.
    """
    if not EMITTED.exists():
        raise SourceError("the flights sample is not here", str(EMITTED), "Run in a checkout's root folder.")
    if not broker.has_topic(LIVE_TOPIC):
        broker.create_topic(LIVE_TOPIC)
    elif since is None:
        return 0
    rows = list(_emitted(_instant(since, 0), _instant(before, END_OF_INPUT)))
    broker.produce(LIVE_TOPIC, rows)
    return len(rows)


def _emitted(since: int, before: int) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each emitted row whose last record arrived in [since, before) (epoch ms)."""
    # `at` counts the records, in the order of arrival, up to the one that made the window fire.
    arrivals = sorted(pq.read_table(SAMPLE, columns=["arrival"]).column("arrival").cast("int64").to_pylist())
    for row in pq.read_table(EMITTED).to_pylist():
        emitted_at = arrivals[row["at"] - 1]
        if row["watermark"] == END_OF_INPUT or not since <= emitted_at < before:
            continue
        key = {"carrier": row["key"], "window_start": f"{row['window_start'].astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"}
        names = {"flights": "count", "distance": "sum", "shortest": "min", "longest": "max"}
        value = {**{ours: row[theirs] for ours, theirs in names.items()}, "emitted_at": emitted_at}
        yield _json(key), _json(value)


def _instant(moment: datetime | None, default: int) -> int:
    return default if moment is None else round(moment.timestamp() * 1000)


def _json(fields: dict[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
