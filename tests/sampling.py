"""How much a test does: a sample in `make test`, everything in `make test-long`, which is for a night."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from tests.tiers import Tests

T = TypeVar("T")

IN_FULL = Tests.chosen() is Tests.LONG


def sample(some: T, everything: T) -> T:
    """`some` in `make test`, `everything` in `make test-long`."""
    return everything if IN_FULL else some


def first_of(values: Iterable[Any], count: int = 1) -> list[Any]:
    """The values of a parametrized test, of which `make test` has the first `count`."""
    found = list(values)
    long = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in found[count:]
    ]
    return [*found[:count], *long]
