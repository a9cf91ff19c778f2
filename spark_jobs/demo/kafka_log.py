"""Write a partition's log files, so that a broker serves records with append times in the past.

Only the broker's clock sets the time at which a record is appended; no client can. This module writes a history as a
segment of the log, in Kafka's own format (record batches, version 2), while the broker is stopped.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
