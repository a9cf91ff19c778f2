"""A Flink checkpoint's offsets, from files that Flink's own classes wrote."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.errors import SourceError
from spark_jobs.marks.flink import METADATA, READER_STATE, flink_jvm, read_flink
from spark_jobs.marks.mark import MarkKind


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with flink_jvm() as started:
        yield started


def element(topic: str, partition: int, offset: int) -> bytes:
    """A split as the connector's serializer and Flink's `SimpleVersionedSerialization` write it."""
    name = topic.encode()
    split = struct.pack(">H", len(name)) + name + struct.pack(">iqq", partition, offset, -(2**63))
    return struct.pack(">ii", 0, len(split)) + split


def checkpoint(jvm: Any, folder: Path, subtasks: list[list[bytes]], *, savepoint: bool = False) -> Path:
    """The folder of checkpoint 7, whose one operator keeps these elements, a state file for each subtask."""
    folder.mkdir()
    flink = jvm.org.apache.flink
    operator = flink.runtime.checkpoint.OperatorState(
        "Source: orders", None, flink.runtime.jobgraph.OperatorID(1, 2), len(subtasks), 128
    )
    for number, elements in enumerate(subtasks):
        content, starts = b"head", []
        for one in elements:
            starts.append(len(content))
            content += struct.pack(">i", len(one)) + one
        state = folder / f"state-{number}"
        state.write_bytes(content)
        offsets = jvm.java.lang.reflect.Array.newInstance(jvm.java.lang.Long.TYPE, len(starts))
        for i, start in enumerate(starts):
            jvm.java.lang.reflect.Array.setLong(offsets, i, start)
        handle_class = "org.apache.flink.runtime.state.OperatorStateHandle"
        mode = jvm.java.lang.Enum.valueOf(jvm.java.lang.Class.forName(f"{handle_class}$Mode"), "SPLIT_DISTRIBUTE")
        names = jvm.java.util.HashMap()
        info = flink.runtime.state.OperatorStateHandle.StateMetaInfo(offsets, mode)
        names.put(READER_STATE, info)
        path = flink.core.fs.Path(str(state))
        handle = flink.runtime.state.OperatorStreamStateHandle(
            names, flink.runtime.state.filesystem.FileStateHandle(path, len(content))
        )
        builder = flink.runtime.checkpoint.OperatorSubtaskState.builder()
        operator.putState(number, builder.setManagedOperatorState(handle).build())
    operators, masters = jvm.java.util.ArrayList(), jvm.java.util.ArrayList()
    operators.add(operator)
    properties = flink.runtime.checkpoint.CheckpointProperties
    formats = jvm.org.apache.flink.core.execution.SavepointFormatType.CANONICAL
    retained = jvm.org.apache.flink.runtime.checkpoint.CheckpointRetentionPolicy.RETAIN_ON_CANCELLATION
    kind = properties.forSavepoint(False, formats) if savepoint else properties.forCheckpoint(retained)
    metadata = flink.runtime.checkpoint.metadata.CheckpointMetadata(7, operators, masters, kind)
    out = jvm.java.io.FileOutputStream(str(folder / METADATA))
    flink.runtime.checkpoint.Checkpoints.storeCheckpointMetadata(metadata, out)
    out.close()
    return folder


SUBTASKS = [[element("orders", 0, 120), element("orders", 2, -2)], [element("orders", 1, 95), b"another source"]]


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_checkpoint_says_the_next_offset_of_each_partition(jvm, tmp_path, savepoint) -> None:
    folder = checkpoint(jvm, tmp_path / "chk-7", SUBTASKS, savepoint=savepoint)
    moved = folder.rename(tmp_path / "moved")
    mark = read_flink(moved)
    assert mark.kind is (MarkKind.FLINK_SAVEPOINT if savepoint else MarkKind.FLINK_CHECKPOINT)
    assert (mark.number, mark.offsets) == (7, {"orders": {0: 120, 1: 95}})
    assert mark.notes == (
        "orders, partition 2: nothing had been read; the job begins at the earliest offset",
        "1 splits are of other sources than Kafka's, and are left out",
    )


def test_damaged_foreign_and_newer_files_are_refused_in_a_sentence(jvm, tmp_path) -> None:
    folder = checkpoint(jvm, tmp_path / "chk-7", SUBTASKS)
    whole = (folder / METADATA).read_bytes()
    newer = whole[:4] + struct.pack(">i", 99) + whole[8:]
    for content in (b"", b"not Flink's", whole[: len(whole) // 2], newer):
        (folder / METADATA).write_bytes(content)
        with pytest.raises(SourceError, match="is damaged, or a newer Flink wrote it"):
            read_flink(folder)
    (folder / METADATA).write_bytes(whole)
    (folder / "state-1").write_bytes(b"head")
    with pytest.raises(SourceError, match="cut off, or compressed"):
        read_flink(folder)
    (folder / "state-1").unlink()
    with pytest.raises(SourceError, match="state-1 is missing"):
        read_flink(folder)


def test_no_class_of_a_job_is_deserialized(jvm, tmp_path) -> None:
    folder = checkpoint(jvm, tmp_path / "chk-7", SUBTASKS)
    whole = (folder / METADATA).read_bytes()
    at = whole.index(b"\xac\xed\x00\x05")  # where Java's stream of the properties begins
    bytes_out = jvm.java.io.ByteArrayOutputStream()
    out = jvm.java.io.ObjectOutputStream(bytes_out)
    out.writeObject(jvm.java.util.HashMap())
    out.flush()
    (folder / METADATA).write_bytes(whole[:at] + bytes(bytes_out.toByteArray()))
    with pytest.raises(SourceError, match="REJECTED"):
        read_flink(folder)
