"""What a window holds: its records, so that a caller can compute any aggregate of any row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar


class Ordered(Protocol):
    """What can be compared, such as an offset."""

    def __lt__(self, other: Any, /) -> bool: ...


E = TypeVar("E", bound=Ordered)


@dataclass(frozen=True, slots=True, eq=False)
class Contents(Generic[E]):
    """An immutable bag of records. To add one or to unite two takes the same short time whatever they hold.

    `least`: the smallest of them; None: there are none.
    """

    parts: tuple[Contents[E], ...] = ()
    own: tuple[E, ...] = ()
    least: E | None = None

    def plus(self, element: E) -> Contents[E]:
        """These records and one more."""
        return Contents((self,), (element,), element if self.least is None else min(self.least, element))

    def united(self, other: Contents[E]) -> Contents[E]:
        """The records of both, which have none in common."""
        known = [least for least in (self.least, other.least) if least is not None]
        return Contents((self, other), (), min(known, default=None))

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
