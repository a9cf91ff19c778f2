"""Progress of long work: a live display on a terminal, one structured line a stage elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import structlog
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
        structlog.configure(
            processors=[
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.add_log_level,
                structlog.processors.JSONRenderer(),
            ],
            logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        )
        self._log = structlog.get_logger()

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        began = time.monotonic()
        self._log.info("stage started", stage=name, detail=detail)
        yield
        self._log.info("stage ended", stage=name, detail=detail, seconds=round(time.monotonic() - began, 3))


class NoProgress:
    """Shows nothing."""

    @contextmanager
    def stage(self, name: str, detail: str = "") -> Iterator[None]:
        yield


def progress_for(console: Console) -> Progress:
    """The live display on a terminal, structured lines elsewhere."""
    return TerminalProgress(console) if console.is_terminal else LogProgress()
