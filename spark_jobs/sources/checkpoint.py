"""The checkpoint of a live Structured Streaming query: its small files, from a folder, an object store or HDFS.

A run needs it several times and reads it once: what was read is kept until a file of it is another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar
from urllib.parse import unquote, urlparse

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, CheckpointError, is_checkpoint_file, read_checkpoint
from spark_jobs.spark.gateway import JAVA_ERRORS
from spark_jobs.spark.java import java_reason

_PARTS = ("metadata", "offsets", "commits", "sources")
T = TypeVar("T")


class LastRead(Generic[T]):
    """What was read last, for a few keys: each with a stamp of what it was read from."""

    def __init__(self) -> None:
        self._kept: dict[object, tuple[object, T]] = {}

    def get(self, key: object, stamp: object) -> T | None:
        """What was read under the key from what has this stamp; None: that has to be read."""
        kept = self._kept.get(key)
        return None if kept is None or kept[0] != stamp else kept[1]

    def keep(self, key: object, stamp: object, value: T) -> T:
        """Keep it in place of what the key had, and of what was kept before all others."""
        self._kept.pop(key, None)
        self._kept[key] = stamp, value
        if len(self._kept) > _MOST_KEPT:
            self._kept.pop(next(iter(self._kept)))
        return value


_MOST_KEPT = 4
_CHECKPOINTS: LastRead[Checkpoint] = LastRead()


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """The files of a checkpoint as they lie there now: size and time of change of each, by its path within it."""

    path: str
    stamps: Mapping[str, tuple[int, int]]


def checkpoint_files(spark: SparkSession, path: str) -> CheckpointFiles:
    """The files of the checkpoint `path`; none is opened. Raises SourceError where there is none, or not all of it."""
    stamps = dict(_local_stamps(_folder(path)) if _is_local(path) else _remote_stamps(spark, path))
    if not any(name.startswith("offsets/") for name in stamps):
        raise SourceError(
            "there is no checkpoint of a Structured Streaming query: no offsets/N",
            path,
            "Name the folder that the query has as its `checkpointLocation`; the query must have planned a batch.",
        )
    if "metadata" not in stamps:
        raise SourceError(
            "the checkpoint has no file `metadata`, in which the query's id is",
            path,
            "Without it nobody can tell a query from another one that was begun anew: copy the whole checkpoint.",
        )
    return CheckpointFiles(path, stamps)


def texts_of(
    spark: SparkSession, files: CheckpointFiles, names: Collection[str] | None = None
) -> Iterator[tuple[str, str]]:
    """The files, or those with these names, and their texts, one by one. Raises SourceError."""
    if not _is_local(files.path):
        return ((name, text) for name, text in _remote_texts(spark, files.path) if names is None or name in names)
    return _local_texts(_folder(files.path), files.stamps if names is None else names)


def read_once(spark: SparkSession, files: CheckpointFiles) -> Checkpoint:
    """The checkpoint of these files, or what was read of the same ones before.

    Raises SourceError where it cannot be read.
    """
    known = _CHECKPOINTS.get(files.path, files)
    if known is not None:
        return known
    return _CHECKPOINTS.keep(files.path, files, parsed_checkpoint(texts_of(spark, files), files.path))


def parsed_checkpoint(files: Iterable[tuple[str, str]], path: str) -> Checkpoint:
    """The checkpoint of these files. Raises SourceError for a file that cannot be understood."""
    try:
        return read_checkpoint(files)
    except CheckpointError as problem:
        hint = f"{problem.hint}." if problem.hint else ""
        raise SourceError(f"{problem.file}: {problem.what}", path, hint) from problem


def _is_local(path: str) -> bool:
    return urlparse(path).scheme in ("", "file")


def _folder(path: str) -> Path:
    return Path(unquote(urlparse(path).path)) if path.startswith("file:") else Path(path)


def _local_stamps(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    for part in _PARTS:
        for file in [folder / part] if part == "metadata" else sorted((folder / part).rglob("*")):
            name = file.relative_to(folder).as_posix()
            if not is_checkpoint_file(name):
                continue
            try:
                status = file.stat()
            except FileNotFoundError:
                continue  # the live query removes old files
            except OSError as problem:
                raise _unreadable(file, problem) from problem
            if not file.is_dir():
                yield name, (status.st_size, status.st_mtime_ns)


def _local_texts(folder: Path, names: Iterable[str]) -> Iterator[tuple[str, str]]:
    for name in names:
        try:
            text = (folder / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            continue  # the live query removes old files
        except (OSError, UnicodeDecodeError) as problem:
            raise _unreadable(folder / name, problem) from problem
        yield name, text


def _unreadable(file: Path, problem: Exception) -> SourceError:
    return SourceError(f"cannot be read: {problem}", str(file), "Check the file and its rights.")


def _remote_stamps(spark: SparkSession, path: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """One Spark job lists all files, and opens none of them."""
    found = _remote(spark, path, "binaryFile").select("path", "length", F.unix_micros("modificationTime"))
    for batch in _arrow(found, path).to_batches(1024):
        for file, *stamp in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if is_checkpoint_file(name := _name_in(path, file)):
                yield name, (stamp[0], stamp[1])


def _remote_texts(spark: SparkSession, path: str) -> Iterator[tuple[str, str]]:
    """One Spark job reads all files."""
    found = _remote(spark, path, "text").select(F.input_file_name().alias("file"), "value")
    for batch in _arrow(found, path).to_batches(1024):
        for file, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if is_checkpoint_file(name := _name_in(path, file)):
                yield name, text


def _remote(spark: SparkSession, path: str, kind: str) -> DataFrame:
    """Rows of the files; Spark leaves out names that begin with `.` or `_`."""
    options = {"wholetext": "true", "recursiveFileLookup": "true", "ignoreMissingFiles": "true"}
    try:
        return spark.read.format(kind).options(**options).load([f"{path.rstrip('/')}/{part}" for part in _PARTS])
    except JAVA_ERRORS as problem:
        raise _unreachable(path, problem) from problem


def _arrow(frame: DataFrame, path: str) -> pa.Table:
    try:
        return frame.toArrow()
    except JAVA_ERRORS as problem:
        raise _unreachable(path, problem) from problem


def _unreachable(path: str, problem: Exception) -> SourceError:
    what = f"the checkpoint cannot be read: {java_reason(problem)}"
    return SourceError(what, path, "Check the address and the rights to it.")


def _name_in(path: str, file: str) -> str:
    return unquote(file).rpartition("/" + path.rstrip("/").rsplit("/", 1)[-1] + "/")[2]
