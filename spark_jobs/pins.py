"""What a plan pins of a history: files, offsets, snapshots, schemas. No Spark in this module."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum, StrEnum
from hashlib import sha256
from typing import Any, Literal
from urllib.parse import quote

_ENCODED = re.compile(r"[^A-Za-z0-9_!.~'()*:@&=+$,;/\u0080-\U0010ffff-]|\s")
"""What Java's URI encodes in a path."""


@dataclass(frozen=True)
class PartitionRange:
    """The records of one partition: offsets `[first_offset, end_offset)`, arrivals in epoch ms, both included.

    Offsets may have holes. The arrivals are None where the definition names no arrival.
    """

    partition: int
    first_offset: int
    end_offset: int
    first_arrival: int | None
    last_arrival: int | None
    records: int


def ends_of(partitions: Iterable[PartitionRange]) -> dict[int, int]:
    """The end offset of each partition."""
    return {one.partition: one.end_offset for one in partitions}


@dataclass(frozen=True, order=True)
class ClockBound:
    """Arrivals of one partition that are ahead of records behind them: after `latest`, at offsets `[start, end)`.

    `latest`: epoch ms.
    """

    partition: int
    start: int
    end: int
    latest: int


@dataclass(frozen=True)
class PinnedFile:
    """One file as a plan pins it: its URI, its size in bytes, and when it was written (epoch ms)."""

    path: str
    size: int
    modified: int

    @property
    def named_by_spark(self) -> str:
        """The path as `_metadata.file_path` has it: an encoded URI."""
        return _ENCODED.sub(lambda found: quote(found[0], safe=""), self.path)


@dataclass(frozen=True, order=True)
class OffsetRange:
    """The offsets `[start, end)` of one partition that are read from the topic.

    In a stitched history, the Hive table has the offsets before `start`.
    """

    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class PinnedTopic:
    """A topic as a plan pins it.

    Attributes:
        topic_id: Kafka's id of the topic. A topic that is deleted and created again has another id.
        arrival_kind: Whether the records' timestamps are the broker's or the producer's.
        ranges: The offsets to read, by partition.
        notes: What is missing and was accepted by the definition. It becomes part of the run's fidelity.
    """

    topic: str
    topic_id: str
    arrival_kind: Literal["append_time", "producer_time"]
    ranges: tuple[OffsetRange, ...]
    notes: tuple[str, ...] = ()


class TableFormat(StrEnum):
    """The format of a lake table."""

    ICEBERG = "iceberg"
    DELTA = "delta"


@dataclass(frozen=True)
class PinnedSnapshot:
    """The state of a lake table that a run reads.

    `uuid`: the table's own identity; a table that is dropped and made again has another one. `snapshot`: an Iceberg
    table's snapshot, None where nothing has been written yet; a Delta table's version.
    """

    table: str
    uuid: str
    snapshot: int | None
    format: TableFormat = TableFormat.ICEBERG

    @property
    def description(self) -> str:
        """What is read, for people."""
        if self.format is TableFormat.DELTA:
            return f"Delta table {self.table}, version {self.snapshot}"
        at = "no snapshot yet" if self.snapshot is None else f"snapshot {self.snapshot}"
        return f"Iceberg table {self.table}, {at}"


class Change(Enum):
    """What became of a table's rows from one snapshot to a later one."""

    NONE = "has the same rows"
    APPENDED = "has more rows"
    FILLED = "has partitions that were written over, where no rows were"
    REMOVED = "has rows that were removed"
    REWRITTEN = "has rows that were changed"
    UNKNOWN = "lacks the snapshots between, which have expired"
    ROLLED_BACK = "was rolled back"
    ANOTHER = "was made anew"


@dataclass(frozen=True)
class PinnedSchemas:
    """The schemas of a subject.

    Attributes:
        version: The version that records are read by; None: the definition has a schema of its own.
        reader: That schema, as Avro JSON; empty for JSON.
        writers: The schemas of all versions by their ids, as Avro JSON; of JSON the ids alone, with empty texts.
    """

    subject: str
    version: int | None
    reader: str
    writers: dict[int, str]

    @property
    def digests(self) -> dict[str, str]:
        """What tells other schemas from these: digests of the reader's, and of each by its id."""
        named = {"reader": self.reader, **{str(number): text for number, text in sorted(self.writers.items())}}
        return {name: sha256(text.encode()).hexdigest()[:16] for name, text in named.items()}

    @property
    def description(self) -> str:
        """What is pinned, for people."""
        read_by = "the definition's schema" if self.version is None else f"version {self.version}"
        ids = ", ".join(map(str, sorted(self.writers)))
        return f"subject {self.subject}, read by {read_by}; schema ids {ids}"


@dataclass(frozen=True)
class Pins:
    """What a plan has pinned of a history; None: what is there now is read.

    Attributes:
        pinned: Exactly these files, in place of those that match now.
        behind: The files behind a table when the plan was made: none may be gone or changed, later ones are not read.
        topic: Exactly these offsets, in place of those that the topic has now.
        snapshot: Exactly this snapshot, in place of the table's current one.
        schemas: Exactly these schemas, in place of those that the registry has now.
        inputs: The same of each input of a union.
        lookup: Exactly this snapshot of the lookup's table, in place of its current one.
        clocks: The arrivals that are ahead of records behind them, see `sources.clocks`.
    """

    pinned: tuple[PinnedFile, ...] | None = None
    behind: tuple[PinnedFile, ...] | None = None
    topic: PinnedTopic | None = None
    snapshot: PinnedSnapshot | None = None
    schemas: PinnedSchemas | None = None
    inputs: tuple[Pins, ...] = ()
    lookup: PinnedSnapshot | None = None
    clocks: tuple[ClockBound, ...] = ()

    def by_name(self) -> dict[str, Any]:
        """What is pinned, by the names of a plan's fields."""
        return {name.name: getattr(self, name.name) for name in fields(self)} | {"pinned": self.pinned or ()}
