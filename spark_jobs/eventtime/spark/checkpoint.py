"""The files of a Structured Streaming checkpoint, as typed documents.

Read are `metadata`, `offsets/N` (version 1 and 2), `commits/N` (versions 1 to 3) and `sources/I/N`. Files that Spark
keeps beside them are passed over: checksums (`.0.crc`, `0.crc`), temporary files, `state/`. An unknown version is
refused, with its number; fields that are unknown are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeGuard, cast
from urllib.parse import unquote, urlsplit

from spark_jobs.eventtime.spark.logs import (
    CommitEntry,
    CommitLog,
    CommitLogBuilder,
    FileOffset,
    KafkaOffsets,
    OffsetLog,
    OffsetLogBuilder,
    OffsetLogEntry,
    SourceOffset,
)
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP

OFFSET_LOG_VERSIONS: Final = (1, 2)
COMMIT_LOG_VERSIONS: Final = (1, 2, 3)
SOURCE_LOG_VERSIONS: Final = (1,)

_NUMBERED = re.compile(r"(offsets|commits)/(0|[1-9][0-9]*)")
_SOURCE = re.compile(r"sources/([^/]+)/(0|[1-9][0-9]*)(\.compact)?")
_VERSION = re.compile(r"v([1-9][0-9]*)")
_NO_OFFSET: Final = "-"


class CheckpointError(ValueError):
    """A file of a checkpoint that is not what Spark writes: `file`, `what` is wrong with it, and the `hint`."""

    def __init__(self, file: str, what: str, hint: str = "") -> None:
        super().__init__(f"{file}: {what}" + (f". {hint}" if hint else ""))
        self.file = file
        self.what = what
        self.hint = hint


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that a file source has listed: in entry `entry` of its log."""

    path: str
    timestamp: int
    entry: int

    @property
    def hadoop_path(self) -> str:
        """The path as Hadoop writes it: the log has it encoded, with `file:///`."""
        address = urlsplit(self.path)
        host = f"//{address.netloc}" if address.netloc else ""
        return f"{address.scheme}:{host}{unquote(address.path)}" if address.scheme else unquote(address.path)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint as it lies there. Of an archive's batches it has columns, and no document (`OffsetLog`).

    `first_offsets` says where batch 0 of a Kafka source begins, by source id. `files` are those of the file sources'
    logs. `query` is the id that every start of this query has; another one is another query.
    """

    query: str
    offsets: OffsetLog
    commits: CommitLog
    first_offsets: Mapping[str, KafkaOffsets] = field(default_factory=dict[str, KafkaOffsets])
    files: Mapping[str, tuple[SourceFile, ...]] = field(default_factory=dict[str, tuple[SourceFile, ...]])

    def then(self, later: Checkpoint) -> Checkpoint:
        """What an archive has kept of a checkpoint, and the checkpoint itself; that counts where both have a file."""
        return Checkpoint(
            later.query,
            self.offsets.then(later.offsets),
            self.commits.then(later.commits),
            {**self.first_offsets, **later.first_offsets},
            {**self.files, **later.files},
        )

    def below(self, number: int) -> Checkpoint:
        """The checkpoint without the batches from this number on."""
        return replace(self, offsets=self.offsets.below(number), commits=self.commits.below(number))


def is_checkpoint_file(name: str) -> bool:
    """Whether `read_checkpoint` needs this file, named by its path within the checkpoint."""
    return name == "metadata" or bool(_NUMBERED.fullmatch(name) or _SOURCE.fullmatch(name))


def read_checkpoint(files: Iterable[tuple[str, str]]) -> Checkpoint:
    """The checkpoint of these files: the path of each within it, and its text. Other files are passed over.

    Raises CheckpointError for a file that is not what Spark writes.
    """
    offsets, commits = OffsetLogBuilder(), CommitLogBuilder()
    sources: dict[str, dict[int, tuple[str, str, bool]]] = {}
    query = ""
    for name, text in files:
        if numbered := _NUMBERED.fullmatch(name):
            batch = _batch(name, numbered[2])
            if numbered[1] == "offsets":
                offsets.add(read_offset_log_entry(name, batch, text))
            else:
                commits.add(read_commit_entry(name, batch, text))
        elif source := _SOURCE.fullmatch(name):
            logs = sources.setdefault(source[1], {})
            entry, compact = _batch(name, source[2]), source[3] is not None
            if compact or entry not in logs:
                logs[entry] = (name, text, compact)
        elif name == "metadata":
            query = str(_object("metadata", text).get("id", ""))
    first_offsets: dict[str, KafkaOffsets] = {}
    source_files: dict[str, tuple[SourceFile, ...]] = {}
    for source_id, logs in sources.items():
        name, text, _ = logs[min(logs)]
        if text.startswith("\0"):
            first_offsets[source_id] = _first_offsets(name, text)
        else:
            source_files[source_id] = _source_files(logs.values())
    return Checkpoint(query, offsets.log(), commits.log(), first_offsets, source_files)


def read_offset_log_entry(name: str, batch: int, text: str) -> OffsetLogEntry:
    """One file of `offsets/`, of either version. The order of the lines of version 2 means nothing."""
    version, lines = _versioned(name, text, OFFSET_LOG_VERSIONS)
    if not lines:
        raise CheckpointError(name, "it has no line of metadata", "The file is cut short")
    metadata = _object(name, lines[0])
    numbered: Iterable[tuple[str, str]] = (
        ((str(index), line) for index, line in enumerate(lines[1:]))
        if version == 1
        else (_named_offset(name, line) for line in lines[1:])
    )
    return OffsetLogEntry(
        batch,
        _integer(name, metadata, "batchWatermarkMs"),
        _integer(name, metadata, "batchTimestampMs"),
        {source: None if offset == _NO_OFFSET else _source_offset(name, offset) for source, offset in numbered},
        _settings(name, metadata.get("conf")),
    )


def read_commit_entry(name: str, batch: int, text: str) -> CommitEntry:
    """One file of `commits/`, of any version. Spark before 2.4 wrote `{}`: no watermark, which is 0."""
    _, lines = _versioned(name, text, COMMIT_LOG_VERSIONS)
    metadata = _object(name, lines[0]) if lines else {}
    return CommitEntry(batch, _integer(name, metadata, "nextBatchWatermarkMs") if metadata else 0)


def _named_offset(name: str, line: str) -> tuple[str, str]:
    """`sourceId:offset`, apart at the first colon: an offset has colons, too."""
    source, colon, offset = line.partition(":")
    if not colon:
        raise CheckpointError(name, f"a line has no source id: {line[:80]!r}")
    return source, offset


def _source_offset(name: str, text: str) -> SourceOffset:
    offset = _object(name, text)
    if set(offset) == {"logOffset"}:
        return FileOffset(_integer(name, offset, "logOffset"))
    return _kafka_offsets(name, offset)


def _kafka_offsets(name: str, offset: Mapping[str, Any]) -> KafkaOffsets:
    try:
        ends = {topic: {int(p): end for p, end in partitions.items()} for topic, partitions in offset.items()}
        if not all(0 <= p < 2**31 and is_bigint(end) for partitions in ends.values() for p, end in partitions.items()):
            raise ValueError("a number of too many bits")
        return KafkaOffsets(ends)
    except (AttributeError, TypeError, ValueError):
        raise CheckpointError(
            name,
            f"an offset is of no known source: {json.dumps(offset)[:80]}",
            "Kafka's and file sources can be replayed",
        ) from None


def _first_offsets(name: str, text: str) -> KafkaOffsets:
    """`sources/I/0` of a Kafka source: a NUL byte, `v1`, the first offsets."""
    _, lines = _versioned(name, text[1:], SOURCE_LOG_VERSIONS)
    return _kafka_offsets(name, _object(name, "".join(lines)))


def _source_files(logs: Iterable[tuple[str, str, bool]]) -> tuple[SourceFile, ...]:
    """The files of a file source's log; a compact entry repeats all before it."""
    files: dict[str, SourceFile] = {}
    for name, text, _ in logs:
        _, lines = _versioned(name, text, SOURCE_LOG_VERSIONS)
        for line in lines:
            entry = _object(name, line)
            path = entry.get("path")
            if not isinstance(path, str):
                raise CheckpointError(name, f"a line names no file: {line[:80]!r}")
            file = SourceFile(path, _integer(name, entry, "timestamp"), _integer(name, entry, "batchId"))
            if files.setdefault(path, file) != file:
                what = f"the file {path} is there twice, in the entries {files[path].entry} and {file.entry}"
                raise CheckpointError(name, what, "The query has read it twice, which cannot be replayed")
    return tuple(sorted(files.values(), key=lambda file: (file.entry, file.path)))


def _versioned(name: str, text: str, known: tuple[int, ...]) -> tuple[int, list[str]]:
    """The version of the first line, and the other lines that are not empty."""
    first, *lines = text.split("\n")
    version = _VERSION.fullmatch(first.strip())
    if version is None:
        raise CheckpointError(name, f"its first line is no version: {first[:40]!r}", "The file is cut short or damaged")
    if int(version[1]) not in known:
        raise CheckpointError(
            name,
            f"version {version[1]} is unknown",
            f"Versions {', '.join(map(str, known))} can be read; a newer Spark may have written this one",
        )
    return int(version[1]), [line for line in lines if line.strip()]


def _object(name: str, text: str) -> dict[str, Any]:
    document = _json(name, text)
    if not isinstance(document, dict):
        raise CheckpointError(name, f"not a JSON object: {text[:80]!r}")
    return cast("dict[str, Any]", document)


def _settings(name: str, conf: object) -> dict[str, str]:
    if not isinstance(conf, dict | None):
        raise CheckpointError(name, f"conf is not a JSON object: {str(conf)[:80]!r}", "The file is damaged")
    return {str(key): str(value) for key, value in cast("dict[Any, Any]", conf or {}).items()}


def _json(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CheckpointError(name, f"not JSON: {text[:80]!r}", "The file is cut short or damaged") from None


def is_bigint(value: object) -> TypeGuard[int]:
    """Whether a value of a JSON document is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and MIN_TIMESTAMP <= value <= MAX_TIMESTAMP


def _integer(name: str, document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if not is_bigint(value):
        raise CheckpointError(name, f"{key} is not a whole number of 64 bits: {str(value)[:80]}", "The file is damaged")
    return value


def _batch(name: str, digits: str) -> int:
    """The number in a file's name."""
    if len(digits) > 19 or not is_bigint(int(digits)):
        raise CheckpointError(
            name[:80], "its name is no number of 64 bits", "Remove the file: Spark has not written it"
        )
    return int(digits)
