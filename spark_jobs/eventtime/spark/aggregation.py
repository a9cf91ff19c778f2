"""The windowed aggregation of a query, batch by batch, on windows of a grid (Spark rules 15 to 23) and on sessions.

`late` and `out` are watermarks of a batch in the unit of the windows: late records are found by the first, windows come
out by the second. A window's contents are the list of its elements, so that a caller can compute any aggregate.

Of sessions (Spark rules 26 to 32) a record is judged alone, before it meets any session: what comes too late is dropped
although an open session would have taken it. Flink and Kafka Streams take it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from spark_jobs.eventtime.windows import Window

E = TypeVar("E")


class OutputMode(StrEnum):
    """Which rows a batch gives: closed windows once, changed ones as they are, or all."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Input(Generic[E]):
    """One record in front of the aggregation: its event time, and with sessions its own end (`alone`).

    `task`: the part of a batch that one task reads, which is a partition of the topic.
    """

    key: Hashable
    timestamp: int
    element: E
    alone: Window | None = None
    task: Hashable = None


@dataclass(frozen=True, slots=True)
class Row(Generic[E]):
    """One row that the sink gets, with all that the window holds."""

    key: Hashable
    window: Window
    elements: tuple[E, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Generic[E]):
    """One record that a window did not take. `window` None: one of a session, which belongs to none."""

    element: E
    window: Window | None


@dataclass(slots=True)
class Given(Generic[E]):
    """What one batch gave: rows in any order, and the records that it dropped as late."""

    rows: list[Row[E]] = field(default_factory=list["Row[E]"])
    dropped: list[Dropped[E]] = field(default_factory=list["Dropped[E]"])


def is_late(window: Window, watermark: int) -> bool:
    """`end <= W`: a record is dropped from this window (Spark rule 15; `WatermarkSupport`)."""
    return window.end <= watermark


def is_out(window: Window, watermark: int) -> bool:
    """`end <= W`: the window comes out, and its state goes (Spark rules 19, 20)."""
    return window.end <= watermark


@dataclass(frozen=True, slots=True)
class _Session(Generic[E]):
    window: Window
    elements: tuple[E, ...]

    def joined(self, other: _Session[E]) -> _Session[E]:
        return _Session(self.window.cover(other.window), self.elements + other.elements)


class SessionAggregation(Generic[E]):
    """Sessions, which merge where they overlap or touch.

    Complete mode drops late records, too, yet lets no session go (Spark rule 31). `merge_locally` merges the records
    of a task before any is judged (Spark rule 32).
    """

    def __init__(self, mode: OutputMode) -> None:
        self._mode = mode
        self._state: dict[Hashable, list[_Session[E]]] = {}

    def run(self, records: Iterable[Input[E]], *, late: int, out: int, merge_locally: bool = False) -> Given[E]:
        """Run one batch; every record has its own window, `alone`."""
        given: Given[E] = Given()
        arriving: dict[Hashable, list[_Session[E]]] = {}
        for key, session in _arriving(records, merge_locally):
            if is_late(session.window, late):
                given.dropped += [Dropped(element, None) for element in session.elements]
            else:
                arriving.setdefault(key, []).append(session)
        for key, sessions in arriving.items():
            self._state[key] = _merged(self._state.get(key, []) + sessions)
        complete = self._mode is OutputMode.COMPLETE
        for key, sessions in list(self._state.items()):
            chosen = [s for s in sessions if complete or is_out(s.window, out)]
            given.rows += [Row(key, s.window, s.elements) for s in chosen]
            if not complete:
                self._state[key] = [s for s in sessions if not is_out(s.window, out)]
        return given

    def windows_of(self, record: Input[E]) -> Iterator[None]:
        """One entry: a record is in one session, whose bounds the others of the session decide."""
        yield None

    def held(self) -> list[Row[E]]:
        """The sessions that wait in the state."""
        return [Row(key, s.window, s.elements) for key, sessions in self._state.items() for s in sessions]


def _arriving(records: Iterable[Input[E]], merge_locally: bool) -> Iterator[tuple[Hashable, _Session[E]]]:
    alone = [(r, _Session(r.alone, (r.element,))) for r in records if r.alone is not None]
    if not merge_locally:
        yield from ((record.key, session) for record, session in alone)
        return
    tasks: dict[tuple[Hashable, Hashable], list[_Session[E]]] = {}
    for record, session in alone:
        tasks.setdefault((record.task, record.key), []).append(session)
    for (_, key), sessions in tasks.items():
        yield from ((key, session) for session in _merged(sessions))


def _merged(sessions: list[_Session[E]]) -> list[_Session[E]]:
    merged: list[_Session[E]] = []
    for session in sorted(sessions, key=lambda s: s.window):
        if merged and merged[-1].window.intersects(session.window):
            merged[-1] = merged[-1].joined(session)
        else:
            merged.append(session)
    return merged
