"""Session windows of a query, batch by batch (Spark rules 26 to 32).

A record is judged alone, before it meets any session: what comes too late is dropped although an open session would
have taken it. Flink and Kafka Streams take it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_jobs.eventtime.spark.aggregation import Dropped, Given, Input, OutputMode, Row, is_late, is_out
from spark_jobs.eventtime.windows import Window

E = TypeVar("E")


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
