"""The write boundaries of a delivery, each with a before and an after, at which a process may end."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from spark_jobs.corrections.destination import IcebergTable
from spark_jobs.corrections.topic import Transaction
from spark_jobs.lakehouse.corrections import CorrectionTable
from tests.faults.boundaries import Stopped

LEDGER: list[tuple[Any, str]] = [(CorrectionTable, "prepare"), (CorrectionTable, "finish")]
TABLE = [*LEDGER, (IcebergTable, "_merge")]
TOPIC = [*LEDGER, (Transaction, "begin"), (Transaction, "send"), (Transaction, "commit")]


def boundaries_of(steps: list[tuple[Any, str]]) -> list[str]:
    return [f"{when} {name}" for _, name in steps for when in ("before", "after")]


@contextmanager
def ended_at(steps: list[tuple[Any, str]], boundary: str) -> Iterator[None]:
    """The process ends at this boundary: the block raises Stopped, which nothing handles."""

    def ending(function: Any, name: str) -> Any:
        @functools.wraps(function)
        def call(*arguments: Any, **named: Any) -> Any:
            if boundary == f"before {name}":
                raise Stopped
            result = function(*arguments, **named)
            if boundary == f"after {name}":
                raise Stopped
            return result

        return call

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in steps:
            patch.setattr(owner, name, ending(getattr(owner, name), name))
        yield
