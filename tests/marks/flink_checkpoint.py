"""Flink checkpoints that Flink's own classes write."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

from spark_jobs.marks.flink import METADATA, READER_STATE


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
