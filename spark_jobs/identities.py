"""What a history is known by, as values, and what that proves of the records that were read of it. No Spark.

`spark_jobs.sources.identity` finds it out.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b

from spark_jobs.pins import PinnedFile, PinnedSnapshot


@dataclass(frozen=True)
class TableShape:
    """What decides which rows the files of a Hive table give, beside the files.

    `views`: digests of the texts of the views between. `partitions`: the digest of each partition's values by the
    digest of its folder.
    """

    views: tuple[str, ...]
    partitions: dict[str, str]

    def differs_from(self, now: TableShape) -> str:
        """What has changed, for people; empty: nothing that was there before."""
        if self.views != now.views:
            return "the view has another text"
        moved = [place for place, values in self.partitions.items() if now.partitions.get(place, values) != values]
        return f"{len(moved)} partitions have other values" if moved else ""


LISTED_FILES = 2_000
"""So many files are kept by name; of more, a state would have megabytes."""
_DIGEST = 6


@dataclass(frozen=True)
class FileDigests:
    """Many files, each by a digest of its path, size and modification time alone. `packed`: in order, as base64."""

    packed: str

    @classmethod
    def of(cls, files: Iterable[PinnedFile]) -> FileDigests:
        return cls(b64encode(b"".join(sorted(map(_digest_of, files)))).decode("ascii"))

    def known(self) -> set[bytes]:
        """The digests."""
        every = b64decode(self.packed)
        return {every[start : start + _DIGEST] for start in range(0, len(every), _DIGEST)}


def _digest_of(file: PinnedFile) -> bytes:
    return blake2b(f"{file.size} {file.modified} {file.path}".encode(), digest_size=_DIGEST).digest()


@dataclass(frozen=True, slots=True)
class FilesSince:
    """How files differ from those that an earlier run has read.

    `gone`: how many are not there any more; `changed`: those that were written again, then and now; `added`: the others
    that are there now. Where that run's files are known by digests alone, one that was written again is gone and added.
    """

    gone: int
    changed: tuple[tuple[PinnedFile, PinnedFile], ...]
    added: tuple[PinnedFile, ...]

    @classmethod
    def between(cls, then: Identity, now: Identity) -> FilesSince:
        """Both have files, or none."""
        there = now.files or ()
        if then.many_files is not None:
            known = then.many_files.known()
            by_digest = {_digest_of(file): file for file in there}
            added = tuple(file for digest, file in by_digest.items() if digest not in known)
            return cls(len(known - by_digest.keys()), (), added)
        read, by_path = {file.path: file for file in then.files or ()}, {file.path: file for file in there}
        changed = ((file, by_path[path]) for path, file in read.items() if path in by_path and by_path[path] != file)
        return cls(len(read.keys() - by_path.keys()), tuple(changed), tuple(f for f in there if f.path not in read))


@dataclass(frozen=True)
class LastRecord:
    """The last record that was read of a partition of a topic, and a hash of its position, key and value."""

    offset: int
    digest: int


@dataclass(frozen=True)
class Identity:
    """What a history, or one input of a union, was known by when it was read. What a kind of history lacks is None.

    Attributes:
        topic_id: Kafka's id of the topic.
        starts: The first offset of each partition of the topic.
        last_records: The last record of each partition of the topic below its end offset.
        files: The files, or those behind a Hive table. None, too, where Spark does not know them.
        many_files: The files where there are too many to be listed.
        snapshot: The snapshot of a lake table.
        columns: The identity of each column of a table: a lake table's field id, a Hive table's place and type.
        shape: The views of a Hive table, and the values of its partitions.
        schemas: Digests of a registry's schemas, see `PinnedSchemas.digests`.
        subject: Their subject.
    """

    topic_id: str | None = None
    starts: dict[int, int] | None = None
    last_records: dict[int, LastRecord] = field(default_factory=dict)
    files: tuple[PinnedFile, ...] | None = None
    snapshot: PinnedSnapshot | None = None
    columns: dict[str, str] = field(default_factory=dict)
    shape: TableShape | None = None
    schemas: dict[str, str] | None = None
    subject: str = ""
    many_files: FileDigests | None = None

    @property
    def knows_files(self) -> bool:
        """Whether the files are known."""
        return self.files is not None or self.many_files is not None

    def with_files(self, files: tuple[PinnedFile, ...] | None) -> Identity:
        """The identity with these files, as it is kept."""
        if files is None or len(files) <= LISTED_FILES:
            return replace(self, files=files)
        return replace(self, files=None, many_files=FileDigests.of(files))


class Sign(Enum):
    """What the signs of a history prove of the records that were read before."""

    SAME = "all of them are there, and none has come among them"
    GONE = "some are gone, the others are as they were"
    BY_POSITION = "none was changed; their positions tell which are there"
    UNPROVEN = "they have to be read again"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is proven of the records that were read before. `why`: what has changed, for people; empty: nothing has."""

    sign: Sign
    why: str = ""


def worst(found: Iterable[Evidence]) -> Evidence:
    """The evidence that proves least; of several the first."""
    order = list(Sign)
    return max(found, key=lambda one: order.index(one.sign))


def other_schemas(then: Identity, now: Identity) -> str:
    """How a registry's schemas differ from those of now; empty where all of them are there as they were."""
    if then.schemas is None or now.schemas is None:
        return ""
    for name, digest in then.schemas.items():
        if now.schemas.get(name, digest) != digest:
            other = f"schema id {name} of the subject {now.subject} is another schema"
            return "records are read by another schema" if name == "reader" else other
        if name not in now.schemas:
            return f"schema id {name} is gone from the subject {now.subject}"
    return ""


def without_files(identity: Identity) -> Identity:
    """The identity without its files: a plan names these already."""
    return replace(identity, files=None)
