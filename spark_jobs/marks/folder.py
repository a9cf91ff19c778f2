"""The folder of a Flink checkpoint: on this machine, in an object store or in HDFS."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from spark_jobs.errors import SourceError
from spark_jobs.spark.gateway import JAVA_ERRORS, JavaObject, all_bytes, hadoop_conf, hadoop_path
from spark_jobs.spark.java import java_reason


class CheckpointFolder(Protocol):
    """A folder whose files are read as a whole. A path that begins with `/` is one from the root of the same store."""

    def address(self, path: str) -> str:
        """Where the file lies, for people."""
        ...

    def written(self, path: str) -> int | None:
        """When the file was written, epoch ms; None: there is none. Raises SourceError where nobody can tell."""
        ...

    def read(self, path: str) -> bytes | None:
        """What the file holds; None: there is none. Raises SourceError where it cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFolder:
    """A folder of this machine."""

    folder: Path

    def address(self, path: str) -> str:
        return str(self.folder / path)

    def written(self, path: str) -> int | None:
        file = self.folder / path
        try:
            return file.stat().st_mtime_ns // 1_000_000 if file.is_file() else None
        except OSError as problem:
            raise _unreadable(self, path, problem.strerror) from problem

    def read(self, path: str) -> bytes | None:
        file = self.folder / path
        try:
            return file.read_bytes() if file.is_file() else None
        except OSError as problem:
            raise _unreadable(self, path, problem.strerror) from problem


@dataclass(frozen=True, slots=True)
class RemoteFolder:
    """A folder that Hadoop's file systems reach."""

    spark: SparkSession
    url: str

    def address(self, path: str) -> str:
        if not path.startswith("/"):
            return f"{self.url.rstrip('/')}/{path}"
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}{path}"

    def written(self, path: str) -> int | None:
        try:
            system, file = self._at(path)
            return int(system.getFileStatus(file).getModificationTime()) if system.exists(file) else None
        except JAVA_ERRORS as problem:
            raise _unreadable(self, path, java_reason(problem)) from problem

    def read(self, path: str) -> bytes | None:
        try:
            system, file = self._at(path)
            return all_bytes(system.open(file)) if system.exists(file) else None
        except JAVA_ERRORS as problem:
            raise _unreadable(self, path, java_reason(problem)) from problem

    def _at(self, path: str) -> tuple[JavaObject, JavaObject]:
        file = hadoop_path(self.spark, self.address(path))
        return file.getFileSystem(hadoop_conf(self.spark)), file


def _unreadable(folder: CheckpointFolder, path: str, why: str | None) -> SourceError:
    return SourceError(f"cannot be read: {why}", folder.address(path), "Check the address, and your rights to it.")
