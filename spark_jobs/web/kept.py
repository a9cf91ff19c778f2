"""Summaries of ended runs, kept in a file of this user: a new process need not read the documents of each run again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from spark_jobs import __version__
from spark_jobs.errors import EnvironmentSetupError
from spark_jobs.runs.store import replace_file
from spark_jobs.settings import cache_folder
from spark_jobs.web.summary import Run

_SUMMARIES = TypeAdapter(dict[str, tuple[float, Run]])


def kept_summaries(url: str) -> Path:
    """The file for the run store at this address."""
    return cache_folder() / f"runs-{__version__}-{hashlib.sha256(url.encode()).hexdigest()[:16]}.json"


def read_summaries(file: Path) -> dict[str, tuple[float, Run]]:
    """By run id: when its folder had changed (epoch seconds), and its summary; empty for what cannot be read."""
    with suppress(OSError, ValidationError):
        return _SUMMARIES.validate_json(file.read_bytes())
    return {}


def keep_summaries(file: Path, summaries: Mapping[str, tuple[float, Run]]) -> None:
    """Write what `read_summaries` reads; where nothing can be written, nothing is kept."""
    with suppress(OSError, EnvironmentSetupError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(file, _SUMMARIES.dump_json(dict(summaries)), mode=0o600)
