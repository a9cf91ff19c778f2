"""The flights sample as Kafka topics: what a live producer has written, and what the live Flink job has emitted.

A partition's log files are written here, so that a broker serves records with append times in the past. Only the
broker's clock sets the time at which a record is appended; no client can. So a history becomes a segment of the log,
in Kafka's own format (record batches, version 2), while the broker is stopped.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from spark_jobs.demo.kafka_broker import APPEND_TIME, KafkaBroker
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


_LOG_APPEND_TIME = 0x08
_BATCH_RECORDS = 1000
_HEAD = struct.Struct(">qiib")  # base offset, length, leader epoch, magic
_BODY = struct.Struct(">hiqqqhii")  # attributes, last offset, times, producer id and epoch, sequence, records
_CLEAN_SHUTDOWN = ".kafka_cleanshutdown"


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record: when the broker appended it (epoch ms), key and value."""

    arrival: int
    key: bytes | None
    value: bytes | None


def write_partition(data: Path, topic: str, partition: int, records: Iterable[LogRecord]) -> int:
    """Write the log of a partition whose broker is stopped, from offset 0; return how many records it contains.

    `data` is the broker's log folder, in which the topic exists. The broker rebuilds the indexes when it starts.
    """
    folder = data / f"{topic}-{partition}"
    bodies, heads = [], []
    count = 0
    for body, offset in _batches(records):
        bodies.append(body)
        heads.append(offset)
        count = offset + struct.unpack_from(">i", body, 2)[0] + 1
    for index in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        index.unlink()
    (data / _CLEAN_SHUTDOWN).unlink(missing_ok=True)
    with (folder / f"{0:020}.log").open("wb") as segment:
        for body, offset, crc in zip(bodies, heads, crc32c(bodies), strict=True):
            segment.write(_HEAD.pack(offset, len(body) + 9, 0, 2) + struct.pack(">I", crc) + body)
    return count


def crc32c(texts: Sequence[bytes]) -> list[int]:
    """The CRC-32C (Castagnoli) of each text; all texts are processed side by side."""
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")
    ends = np.cumsum(lengths)
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    starts = (ends - lengths)[order]
    lengths = lengths[order]
    crc = np.full(len(texts), 0xFFFFFFFF, dtype=np.uint32)
    for place in range(int(lengths[0]) if len(texts) else 0):
        live = int(np.searchsorted(-lengths, -place, side="left"))  # the longer ones come first
        part = crc[:live]
        crc[:live] = _TABLE[(part ^ data[starts[:live] + place]) & 0xFF] ^ (part >> np.uint32(8))
    found = np.empty(len(texts), dtype=np.uint32)
    found[order] = crc ^ np.uint32(0xFFFFFFFF)
    return found.tolist()


def _table() -> np.ndarray:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(0x82F63B78), table >> np.uint32(1))
    return table.astype(np.uint32)


_TABLE = _table()


def _batches(records: Iterable[LogRecord]) -> Iterator[tuple[bytes, int]]:
    """The batches' bytes from the attributes on, and their first offsets. A batch has one append time."""
    offset = 0
    for arrival, group in itertools.groupby(records, key=lambda record: record.arrival):
        while chunk := list(itertools.islice(group, _BATCH_RECORDS)):
            packed = b"".join(_record(place, record) for place, record in enumerate(chunk))
            numbers = (_LOG_APPEND_TIME, len(chunk) - 1, arrival, arrival, -1, -1, -1, len(chunk))
            yield _BODY.pack(*numbers) + packed, offset
            offset += len(chunk)


def _record(place: int, record: LogRecord) -> bytes:
    body = b"\x00" + _varint(0) + _varint(place) + _sized(record.key) + _sized(record.value) + _varint(0)
    return _varint(len(body)) + body


def _sized(text: bytes | None) -> bytes:
    return _varint(-1) if text is None else _varint(len(text)) + text


def _varint(number: int) -> bytes:
    """Zigzag, seven bits a byte, the lowest first."""
    rest = (number << 1) ^ (number >> 63)
    packed = bytearray()
    while rest > 0x7F:
        packed.append((rest & 0x7F) | 0x80)
        rest >>= 7
    packed.append(rest)
    return bytes(packed)
