"""A Flink checkpoint's offsets, from files that Flink's own classes wrote."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from spark_jobs.errors import SourceError
from spark_jobs.marks.flink import METADATA, flink_jvm, read_flink
from spark_jobs.marks.folder import LocalFolder
from spark_jobs.marks.mark import MarkKind
from tests.marks.flink_checkpoint import SUBTASKS, checkpoint


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    with flink_jvm() as started:
        yield started


@pytest.mark.parametrize("savepoint", [False, True])
def test_a_checkpoint_says_the_next_offset_of_each_partition(jvm, tmp_path, savepoint) -> None:
    folder = checkpoint(jvm, tmp_path / "chk-7", SUBTASKS, savepoint=savepoint)
    moved = folder.rename(tmp_path / "moved")
    mark = read_flink(LocalFolder(moved))
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
            read_flink(LocalFolder(folder))
    (folder / METADATA).write_bytes(whole)
    (folder / "state-1").write_bytes(b"head")
    with pytest.raises(SourceError, match="cut off, or compressed"):
        read_flink(LocalFolder(folder))
    (folder / "state-1").unlink()
    with pytest.raises(SourceError, match="state-1 is missing"):
        read_flink(LocalFolder(folder))


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
        read_flink(LocalFolder(folder))
