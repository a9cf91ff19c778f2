"""The boundaries of a run: the stages and the steps of its commits, each with a before and an after."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from spark_jobs.lakehouse.branches import PublicationBranches
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.side_tables import SideTable
from spark_jobs.lakehouse.staging import Staging
from spark_jobs.runs.life import publication
from spark_jobs.runs.life.store import RunFolder

STEPS: list[tuple[Any, str]] = [
    (Ledger, "change"), (Ledger, "delete_rows"), (Staging, "write"), (Staging, "drop"),
    (Ledger, "put_rows"), (publication, "save_state"), (RunFolder, "write"),
    (PublishedTable, "prepare"), (PublicationBranches, "write"), (PublicationBranches, "append"),
    (PublicationBranches, "share_append"), (PublicationBranches, "move"),
    (SideTable, "stage"), (SideTable, "follow"),
]  # fmt: skip


class Stopped(BaseException):
    """The process would have ended here. A BaseException: a run handles it in no way."""


def _stop() -> None:
    raise Stopped


@contextmanager
def watched_steps(boundary: Callable[[str], None]) -> Iterator[None]:
    """Call `boundary` with the name of each boundary that is passed."""

    def watched(function: Any, name: str) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            boundary(f"before {name}")
            result = function(*arguments, **named)
            boundary(f"after {name}")
            return result

        return call

    original = [(owner, name, getattr(owner, name)) for owner, name in STEPS]
    try:
        for owner, name, function in original:
            setattr(owner, name, watched(function, name.lstrip("_")))
        yield
    finally:
        for owner, name, function in original:
            setattr(owner, name, function)


@contextmanager
def stopped_at(number: int = 0, name: str = "", stop: Callable[[], None] = _stop) -> Iterator[list[str]]:
    """`stop` at the boundary of that number (from 1), or at those of that name; yields the names passed."""
    passed: list[str] = []

    def boundary(reached: str) -> None:
        passed.append(reached)
        if len(passed) == number or reached == name:
            stop()

    with watched_steps(boundary):
        yield passed
