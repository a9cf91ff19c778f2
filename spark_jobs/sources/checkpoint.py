"""The checkpoint of a live Structured Streaming query: its small files, from a folder, an object store or HDFS."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from spark_jobs.errors import SourceError
from spark_jobs.eventtime.microbatch.checkpoint import Checkpoint, CheckpointError, is_checkpoint_file, read_checkpoint
from spark_jobs.spark.gateway import JAVA_ERRORS
from spark_jobs.spark.java import java_reason

_PARTS = ("metadata", "offsets", "commits", "sources")


def checkpoint_files(spark: SparkSession, path: str) -> dict[str, str]:
    """The texts of the files of the checkpoint `path`, by their names in it. Raises SourceError where there is none."""
    files = _local_files(path) if _is_local(path) else _remote_files(spark, path)
    if not any(name.startswith("offsets/") for name in files):
        raise SourceError(
            "there is no checkpoint of a Structured Streaming query: no offsets/N",
            path,
            "Name the folder that the query has as its `checkpointLocation`; the query must have planned a batch.",
        )
    return files


def parsed_checkpoint(files: Mapping[str, str], path: str) -> Checkpoint:
    """The checkpoint of these files. Raises SourceError for a file that cannot be understood."""
    try:
        return read_checkpoint(files)
    except CheckpointError as problem:
        hint = f"{problem.hint}." if problem.hint else ""
        raise SourceError(f"{problem.file}: {problem.what}", path, hint) from problem


def _is_local(path: str) -> bool:
    return urlparse(path).scheme in ("", "file")


def _local_files(path: str) -> dict[str, str]:
    folder = Path(unquote(urlparse(path).path)) if path.startswith("file:") else Path(path)
    found: dict[str, str] = {}
    for part in _PARTS:
        for file in [folder / part] if part == "metadata" else sorted((folder / part).rglob("*")):
            name = file.relative_to(folder).as_posix()
            if not is_checkpoint_file(name):
                continue
            try:
                found[name] = file.read_text(encoding="utf-8")
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                continue  # the live query removes old files
            except (OSError, UnicodeDecodeError) as problem:
                hint = "Check the file and its rights."
                raise SourceError(f"cannot be read: {problem}", str(file), hint) from problem
    return found


def _remote_files(spark: SparkSession, path: str) -> dict[str, str]:
    """One Spark job reads all files; Spark leaves out names that begin with `.` or `_`."""
    base = path.rstrip("/")
    try:
        rows = (
            spark.read.option("wholetext", "true")
            .option("recursiveFileLookup", "true")
            .option("ignoreMissingFiles", "true")
            .text([f"{base}/{part}" for part in _PARTS])
            .select(F.input_file_name().alias("file"), "value")
            .collect()
        )
    except JAVA_ERRORS as problem:
        raise SourceError(
            f"the checkpoint cannot be read: {java_reason(problem)}", path, "Check the address and the rights to it."
        ) from problem
    marker = "/" + base.rsplit("/", 1)[-1] + "/"
    files = {unquote(row["file"]).rpartition(marker)[2]: row["value"] for row in rows}
    return {name: text for name, text in files.items() if is_checkpoint_file(name)}
