"""Two processes that publish at the same moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from spark_jobs.lakehouse.published_table import PublishedTable

PATIENCE = 180
"""How long a process waits for another one, in seconds."""


def meet(folder: Path, me: str, other: str) -> None:
    """Make every publishing wait, before it begins, until the other process has come as far."""
    publish: Callable = PublishedTable.publish

    def waiting(self: PublishedTable, *arguments, **named):
        (folder / me).touch()
        until = time.monotonic() + PATIENCE
        while not (folder / other).exists():
            assert time.monotonic() < until, f"{other} did not come"
            time.sleep(0.01)
        return publish(self, *arguments, **named)

    PublishedTable.publish = waiting
