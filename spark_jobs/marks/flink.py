"""A Flink checkpoint or savepoint: how far its Kafka sources had read, by Flink's own reader of `_metadata`.

The reader runs in a JVM of its own with a filter on what Java may deserialize: Flink keeps the properties of a
checkpoint as a Java object, and no class but those that these consist of is let in. State of the job's own classes is
not read.

`SourceReaderState` is the list state in which each source operator keeps its splits: an element is the version of the
serializer, the length, and the split as Kafka's `KafkaPartitionSplitSerializer` (version 0) writes it: the topic (UTF),
the partition (int), the next offset (long), the offset at which it stops (long).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError

from spark_jobs.errors import SourceError
from spark_jobs.marks.folder import CheckpointFolder
from spark_jobs.marks.mark import Mark, MarkKind
from spark_jobs.spark.own_jvm import own_jvm

METADATA = "_metadata"
RUNTIME_PACKAGE = "org.apache.flink:flink-runtime:2.3.0"
READER_STATE = "SourceReaderState"

_ALLOWED = (
    "org.apache.flink.runtime.checkpoint.*", "org.apache.flink.core.execution.*", "java.lang.Enum", "java.lang.Object",
    "!*",
)  # fmt: skip
_FILTER = f"-Djdk.serialFilter=maxdepth=5;maxrefs=50;{';'.join(_ALLOWED)}"
_UNKNOWN = {-1: "the latest", -2: "the earliest", -3: "the group's committed"}
"""Offsets that Kafka's connector writes for a split that has read nothing yet."""


@dataclass(frozen=True, slots=True)
class _Split:
    topic: str
    partition: int
    offset: int


class _Foreign(ValueError):
    """Bytes that no Kafka source wrote."""


def read_flink(folder: CheckpointFolder) -> Mark | None:
    """The mark of a checkpoint's or savepoint's folder; None: it is none of Flink's.

    Raises SourceError where the files are damaged, of another program or of a newer Flink, or where state files are
    missing; EnvironmentSetupError where Flink's jars or Java are.
    """
    if (written := folder.written(METADATA)) is None or (content := folder.read(METADATA)) is None:
        return None
    with flink_jvm() as jvm:
        metadata = _loaded(jvm, content, folder)
        elements = [one for state in _operator_states(jvm, metadata) for one in _elements(state, folder)]
        number = int(metadata.getCheckpointId())
        properties = metadata.getCheckpointProperties()
        is_savepoint = properties is not None and bool(properties.isSavepoint())
    splits, foreign = _splits(elements)
    kind = MarkKind.FLINK_SAVEPOINT if is_savepoint else MarkKind.FLINK_CHECKPOINT
    offsets: dict[str, dict[int, int]] = {}
    for one in splits:
        if one.offset >= 0:
            offsets.setdefault(one.topic, {})[one.partition] = one.offset
    return Mark(kind, folder.address("").rstrip("/"), number, written, True, offsets, tuple(_notes(splits, foreign)))


def _notes(splits: list[_Split], foreign: int) -> Iterator[str]:
    for one in splits:
        if one.offset < 0:
            began = _UNKNOWN.get(one.offset, "an unknown")
            yield f"{one.topic}, partition {one.partition}: nothing had been read; the job begins at {began} offset"
    if foreign:
        yield f"{foreign} splits are of other sources than Kafka's, and are left out"
    if not splits:
        yield "no operator has splits of a Kafka source"


def _splits(elements: list[bytes]) -> tuple[list[_Split], int]:
    found, foreign = [], 0
    for element in elements:
        try:
            found.append(split_of(element))
        except _Foreign:
            foreign += 1
    return found, foreign


def split_of(element: bytes) -> _Split:
    """The split in an element of `SourceReaderState`. Raises ValueError for what no Kafka source wrote."""
    try:
        version, length = struct.unpack_from(">ii", element)
        (letters,) = struct.unpack_from(">H", element, 8)
        topic = element[10 : 10 + letters].decode()
        partition, offset, _stop = struct.unpack_from(">iqq", element, 10 + letters)
    except (struct.error, UnicodeDecodeError) as problem:
        raise _Foreign from problem
    if version != 0 or length != len(element) - 8 or length != 2 + letters + 20 or partition < 0:
        raise _Foreign
    return _Split(topic, partition, offset)


def _loaded(jvm: Any, content: bytes, folder: CheckpointFolder) -> Any:
    """Flink's `CheckpointMetadata`."""
    stream = jvm.java.io.DataInputStream(jvm.java.io.ByteArrayInputStream(content))
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    try:
        return jvm.org.apache.flink.runtime.checkpoint.Checkpoints.loadCheckpointMetadata(
            stream, loader, folder.address("")
        )
    except Py4JJavaError as problem:
        raise SourceError(
            f"it is no metadata of a Flink checkpoint, is damaged, or a newer Flink wrote it: {_reason(problem)}",
            folder.address(METADATA),
            f"Rewindow reads what Flink up to {RUNTIME_PACKAGE.rpartition(':')[2]} writes.",
        ) from None


def _operator_states(jvm: Any, metadata: Any) -> Iterator[Any]:
    """The handles of the operators' list state that have splits."""
    listed = jvm.java.util.ArrayList
    for operator in listed(metadata.getOperatorStates()):
        for subtask in listed(operator.getStates()):
            for handle in listed(subtask.getManagedOperatorState()):
                if handle.getStateNameToPartitionOffsets().containsKey(READER_STATE):
                    yield handle


def _elements(handle: Any, folder: CheckpointFolder) -> list[bytes]:
    starts = list(handle.getStateNameToPartitionOffsets().get(READER_STATE).getOffsets())
    content = _content(handle, folder)
    found = []
    for start in starts:
        try:
            (length,) = struct.unpack_from(">i", content, start)
        except struct.error:
            length = -1
        if length < 0 or start + 4 + length > len(content):
            raise SourceError(
                "the state of a source is cut off, or compressed", folder.address(METADATA),
                "Take another checkpoint or savepoint, without execution.checkpointing.snapshot-compression.",
            )  # fmt: skip
        found.append(content[start + 4 : start + 4 + length])
    return found


def _content(handle: Any, folder: CheckpointFolder) -> bytes:
    """What a handle points at: it is in `_metadata` itself, or in a file, which may have moved together with that."""
    within = handle.asBytesIfInMemory()
    if within.isPresent():
        return bytes(within.get())
    place = handle.maybeGetPath()
    name, own = (str(place.get().getName()), str(place.get().getPath())) if place.isPresent() else ("", "")
    for path in filter(None, (name, own)):
        if (content := folder.read(path)) is not None:
            return content
    raise SourceError(
        f"the state file {name or 'of a source'} is missing",
        folder.address(METADATA),
        "Copy the whole folder of the checkpoint; of a checkpoint that shares files take a savepoint.",
    )


def _reason(problem: Py4JJavaError) -> str:
    error = problem.java_exception
    text = str(error.getMessage() or error.getClass().getSimpleName())
    return text.splitlines()[0][:200]


def flink_jvm() -> AbstractContextManager[Any]:
    """A JVM with Flink's runtime, which lives as long as the block."""
    return own_jvm(RUNTIME_PACKAGE, "Flink's JVM", _FILTER, is_silent=True)
