"""What a window holds: its records, so that a caller can compute any aggregate of any row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

E = TypeVar("E")


@dataclass(frozen=True, slots=True, eq=False)
class Contents(Generic[E]):
    """An immutable bag of records. To add one or to unite two takes the same short time whatever they hold."""

    parts: tuple[Contents[E], ...] = ()
    own: tuple[E, ...] = ()

    def plus(self, element: E) -> Contents[E]:
        """These records and one more."""
        return Contents((self,), (element,))

    def united(self, other: Contents[E]) -> Contents[E]:
        """The records of both, which have none in common."""
        return Contents((self, other))

    def elements(self) -> list[E]:
        """All records, in no order."""
        found: list[E] = []
        waiting: list[Contents[E]] = [self]
        while waiting:
            bag = waiting.pop()
            found += bag.own
            waiting += bag.parts
        return found


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[E]):
    """The value of a window in its store: what it holds, and its time (epoch ms).

    The time is the largest of its records; a session's is its end.
    """

    contents: Contents[E]
    timestamp: int
