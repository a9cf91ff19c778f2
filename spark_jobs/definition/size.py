"""How large a history is, as far as that is known before Spark runs."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from fsspec.implementations.local import LocalFileSystem

from spark_jobs.definition.history import FilesHistory
from spark_jobs.definition.pipeline import Pipeline

SMALL = 64 * 1024 * 1024
"""Bytes. Spark works on so little for a few seconds, too short for the JVM's optimizing compiler."""
_MOST_FILES = 1_000


def is_small(pipeline: Pipeline) -> bool:
    """Whether the history is files on this machine of at most `SMALL` bytes. Of anything else the size is not known."""
    if pipeline.inputs:
        return all(is_small(one) for one in pipeline.inputs)
    history = pipeline.history
    if not isinstance(history, FilesHistory):
        return False
    files, sizes = LocalFileSystem(), list[int]()
    for pattern in history.path:
        address = urlsplit(pattern)
        if address.scheme not in ("", "file") or "{" in pattern:  # Hadoop's {a,b} is not known here
            return False
        for name in files.glob(unquote(address.path) if address.scheme else pattern):
            sizes += [int(files.info(str(file))["size"]) for file in files.find(str(name))]
            if len(sizes) > _MOST_FILES or sum(sizes) > SMALL:
                return False
    return bool(sizes)
