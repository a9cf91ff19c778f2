"""Progress of long work: a live display on a terminal, one structured line a stage elsewhere."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Protocol

from rich.console import Console


class Progress(Protocol):
    """Shows how far a run is."""

    def stage(self, name: str, detail: str = "") -> AbstractContextManager[None]: ...


class TerminalProgress:
    """A spinner for the stage at work, and a line with its time when it has ended."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = time.monotonic()
        with self._console.status(f"{name}: {detail}"):
            yield
        self._console.print(f"  [green]ok[/] {name:<14} {time.monotonic() - began:6.1f} s  [dim]{detail}[/]")


class LogProgress:
    """One JSON line at the start and the end of each stage, on standard error."""

    def __init__(self) -> None:
        self._out = sys.stderr

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = time.monotonic()
        self._write(stage=name, detail=detail, event="stage started")
        yield
        self._write(stage=name, detail=detail, seconds=round(time.monotonic() - began, 3), event="stage ended")

    def _write(self, **fields: str | float) -> None:
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        print(json.dumps({**fields, "timestamp": now, "level": "info"}), file=self._out, flush=True)


class NoProgress:
    """Shows nothing."""

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        yield


def progress_for(console: Console) -> Progress:
    """The live display on a terminal, structured lines elsewhere."""
    return TerminalProgress(console) if console.is_terminal else LogProgress()
