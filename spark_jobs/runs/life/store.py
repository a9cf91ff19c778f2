"""What a run leaves for people and for its later stages: one folder a run, of small documents.

The documents are listed in docs/architecture.md; the models of those in JSON are in `spark_jobs.runs.life.documents`.

The store is a folder on disk or in an object store, any that fsspec knows: `REWINDOW_RUNS` (`s3://lake/runs`), by
default `$REWINDOW_HOME/runs`. Data stays in tables; nothing here grows with the history. No Spark in this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
from fsspec import AbstractFileSystem
from fsspec.config import conf
from fsspec.implementations.local import LocalFileSystem

from spark_jobs.addresses import without_passwords
from spark_jobs.atomic import replace_file
from spark_jobs.errors import DefinitionError, DocumentError, EnvironmentSetupError, first_line
from spark_jobs.parts import Part, install_command
from spark_jobs.settings import Variable, settings

DEFINITION = "pipeline.yaml"
STEPS = "timeline.arrow"
REPORT = "report.json"
PAGE = "report.html"

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,199}")
_DOCUMENT = re.compile(r"[a-z0-9][a-z0-9-]{0,60}\.(json|html|arrow|xml|yaml)")


def checked_run_id(run_id: str) -> str:
    """`run_id` itself. Raises DefinitionError where it is none: it becomes part of paths and of table names."""
    if not _RUN_ID.fullmatch(run_id) or ".." in run_id:
        raise DefinitionError(
            f"{run_id[:60]!r} is not a run id",
            hint="Write at most 200 letters, digits and any of _ . : + - (no two dots in a row).",
        )
    return run_id


_TRIES = 3
_READS = 2
"""How often s3fs begins anew, where an answer ends in its middle."""


def _options(url: str) -> dict[str, Any]:
    """How long s3fs waits, and how often it tries: of itself it tries each request 25 times."""
    if not url.startswith(("s3://", "s3a://")):
        return {}
    seconds = settings().store_seconds
    limits = {
        "connect_timeout": seconds,
        "read_timeout": seconds,
        "retries": {"mode": "standard", "total_max_attempts": _TRIES},
    }
    return {"config_kwargs": limits | conf.get("s3", {}).get("config_kwargs", {})}


@contextmanager
def _answers(files: AbstractFileSystem, done: str, path: str) -> Iterator[None]:
    """Translate what a file system raises in the block. Raises EnvironmentSetupError.

    That a file is not there passes unchanged, and so does why one on disk cannot be read.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except Exception as problem:  # each file system raises errors of its own
        is_local = isinstance(files, LocalFileSystem)
        if is_local and (done == "read" or not isinstance(problem, OSError)):
            raise
        reason = (problem.strerror if isinstance(problem, OSError) else None) or first_line(problem)
        hint = f"Check that it answers, its keys and {Variable.RUNS}, and run again: nothing is published in part."
        if is_local:
            hint = f"Check free space and permissions, or set {Variable.RUNS} to another folder."
        raise EnvironmentSetupError(
            f"the run store cannot be {done}: {without_passwords(reason)}", path, hint
        ) from problem


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The documents of one run."""

    run_id: str
    _files: AbstractFileSystem
    _path: str

    def write(self, document: str, content: Mapping[str, Any]) -> None:
        """Write a JSON document, whole or not at all."""
        self.write_bytes(document, json.dumps(content, indent=2, sort_keys=True, default=str).encode())

    def write_text(self, document: str, text: str) -> None:
        self.write_bytes(document, text.encode())

    def write_bytes(self, document: str, data: bytes) -> None:
        path = self._of(document)
        with _answers(self._files, "written", path):
            if isinstance(self._files, LocalFileSystem):
                self._files.makedirs(self._path, exist_ok=True)
                replace_file(Path(path), data)
                return
            try:  # an object store shows an object once it is complete
                self._files.pipe_file(path, data)
            except FileNotFoundError:  # of a bucket, or of a file system that has folders
                self._files.makedirs(self._path, exist_ok=True)
                self._files.pipe_file(path, data)

    def read(self, document: str) -> dict[str, Any] | None:
        """A JSON document; None where it has not been written."""
        data = self.read_bytes(document)
        return None if data is None else json.loads(data)

    def read_text(self, document: str) -> str | None:
        data = self.read_bytes(document)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as problem:
            hint = "Restore it from a copy, or discard the run and start it again."
            raise DocumentError("the document is damaged: not UTF-8 text", self.address(document), hint) from problem

    def read_bytes(self, document: str) -> bytes | None:
        path = self._of(document)
        try:
            with _answers(self._files, "read", path):
                data = self._files.cat_file(path)
        except FileNotFoundError:
            return None
        return data.encode() if isinstance(data, str) else data

    def remove(self, document: str) -> None:
        """Remove a document, there or not."""
        path = self._of(document)
        with _answers(self._files, "written", path):
            if self._files.exists(path):
                self._files.rm_file(path)

    def of_run(self, run_id: str) -> RunFolder:
        """The folder of another run of the same store. Raises DefinitionError for what is no run id."""
        root = self._path.rpartition("/")[0]
        return RunFolder(checked_run_id(run_id), self._files, f"{root}/{run_id}")

    def delete(self) -> None:
        """Remove the folder with all its documents, there or not."""
        with suppress(FileNotFoundError), _answers(self._files, "written", self._path):
            self._files.rm(self._path, recursive=True)

    def documents(self) -> list[str]:
        """The names of the documents that are there."""
        self._files.invalidate_cache(self._path)
        try:
            with _answers(self._files, "read", self._path):
                found = self._files.ls(self._path, detail=False)
        except FileNotFoundError:
            return []
        names = (path.rstrip("/").rsplit("/", 1)[-1] for path in found)
        return sorted(name for name in names if _DOCUMENT.fullmatch(name))

    def address(self, document: str) -> str:
        """Where a document lies, for people."""
        return self._files.unstrip_protocol(self._of(document)).removeprefix("file://")

    def _of(self, document: str) -> str:
        if not _DOCUMENT.fullmatch(document):
            raise DefinitionError(f"{document[:60]!r} is not the name of a run's document")
        return f"{self._path}/{document}"


class RunStore:
    """The folders of all runs."""

    def __init__(self, url: str) -> None:
        options = _options(url)
        try:
            self._files, root = fsspec.core.url_to_fs(url, **options)
        except (ValueError, ImportError) as problem:
            raise EnvironmentSetupError(
                f"no file system for this address: {problem}",
                url,
                f"Correct {Variable.RUNS}, or install its package (for s3: {install_command(Part.S3)}).",
            ) from problem
        if options:
            setattr(self._files, "retries", _READS)  # noqa: B010  # s3fs has it as an attribute alone
        self._root = root.rstrip("/")
        self.url = url

    @classmethod
    def configured(cls) -> RunStore:
        """The store that the environment names."""
        return cls(settings().run_store)

    def folder(self, run_id: str) -> RunFolder:
        """The folder of a run, there or not. Raises DefinitionError for what is no run id."""
        return RunFolder(checked_run_id(run_id), self._files, f"{self._root}/{run_id}")

    def of_pipeline(self, name: str) -> RunFolder:
        """What is known of a pipeline beside its runs; no run has such a folder."""
        return RunFolder(name, self._files, f"{self._root}/.pipelines/{name}")

    def run_ids(self) -> Iterator[str]:
        """The runs that are there, by name, last first."""
        yield from sorted(self.folders(), reverse=True)

    def folders(self) -> dict[str, float | None]:
        """The runs that are there, each with when its folder changed last (epoch seconds); None where that is unknown.

        A document that is written, replaced or removed changes its folder. Object stores tell no such time.
        """
        self._files.invalidate_cache(self._root)  # a process that lives long would see what it saw first
        try:
            with _answers(self._files, "read", self._root):
                found = self._files.ls(self._root, detail=True)
        except FileNotFoundError:
            return {}
        folders = {}
        for entry in found:
            name, at = entry["name"].rstrip("/").rsplit("/", 1)[-1], entry.get("mtime")
            if _RUN_ID.fullmatch(name) and ".." not in name and entry.get("type") != "file":
                folders[name] = at if isinstance(at, float) else None
        return folders
