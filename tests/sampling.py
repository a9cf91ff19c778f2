"""How much a test does: a sample in `make test`, everything in `make test-long`, which is for a night."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

from tests.tiers import Tests, turn

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

IN_FULL = Tests.chosen() is Tests.LONG


def sample(some: T, everything: T) -> T:
    """`some` in `make test`, `everything` in `make test-long`."""
    return everything if IN_FULL else some


def drawn(values: Sequence[T], one_in: int) -> list[T]:
    """All values in `make test-long`; in `make test` one in `one_in`, others at each commit: all are seen in time."""
    return list(values) if IN_FULL else list(values[turn() % one_in :: one_in])


def seeds(some: int, everything: int) -> list[int]:
    """In `make test` `some` of the seeds below `everything`, others at each commit; in `make test-long` all."""
    return list(range(everything)) if IN_FULL else [(turn() * some + n) % everything for n in range(some)]


def in_turn(values: Iterable[T]) -> list[T]:
    """The values, of which another one stands first at each commit."""
    found = list(values)
    start = turn() % len(found)
    return [*found[start:], *found[:start]]


def first_of(values: Iterable[Any], count: int = 1) -> list[Any]:
    """The values of a parametrized test, of which `make test` has the first `count`."""
    found = list(values)
    long = [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.long)
        for value in found[count:]
    ]
    return [*found[:count], *long]


def one_of(variants: int, number: int) -> Callable[[F], F]:
    """Decorates a test that is one of so many variants of a guarantee: `make test` takes another one at each commit."""
    is_now = (turn() + number) % variants == 0
    return (lambda test: test) if is_now else pytest.mark.long
