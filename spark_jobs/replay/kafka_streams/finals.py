"""What each window of one task has come to: the last row that came out of it, or that it is still open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from spark_jobs.eventtime.kafka_streams.task import Emission, Processed, Row, Task, Topology
from spark_jobs.eventtime.kafka_streams.windows import StreamsWindow


class Place(NamedTuple):
    """The record whose processing gave a row."""

    arrival: int
    offset: int


class _Window(NamedTuple):
    key: bytes
    times: StreamsWindow


@dataclass(slots=True)
class _Entry:
    first: int
    row: Row[int] | None = None
    place: Place | None = None
    rows: int = 0


class Final(NamedTuple):
    """One window at the end: its last row and where it came out; None: nothing has come out of it.

    `first`: the offset of a record that made it. `rows`: how many rows came out. `is_lost`: the emit strategy looked
    for it, and the store did not find it any more.
    """

    key: bytes
    window: StreamsWindow
    first: int
    row: Row[int] | None
    place: Place | None
    rows: int
    is_lost: bool


class FinalRows:
    """The windows of one task. Those that cannot change any more are let out on the way, so that few are held.

    `changes_late`: a restart may still bring old windows back; then all are held to the end.
    """

    def __init__(self, topology: Topology, task: Task[int], *, changes_late: bool) -> None:
        retention = topology.store_retention
        self._each_update = topology.emission is Emission.EACH_UPDATE
        self._task = task
        self._held = None if changes_late else topology.wait + retention.period + 2 * retention.segment
        self._windows: dict[_Window, _Entry] = {}
        self._next_sweep = 0

    def add(self, processed: Processed[int], place: Place) -> None:
        """Take in what one record caused."""
        for change in processed.changes:
            if change.aggregate is not None:
                self._windows.setdefault(_window(change), _Entry(place.offset))
            elif self._each_update or not self._entry_rows(change):
                self._windows.pop(_window(change), None)
        for row in processed.rows:
            if row.aggregate is not None:
                entry = self._windows.setdefault(_window(row), _Entry(place.offset))
                entry.row, entry.place, entry.rows = row, place, entry.rows + 1

    def lose(self) -> None:
        """The task lost its state: what had not come out never will."""
        self._windows = {window: entry for window, entry in self._windows.items() if entry.rows}

    def settled(self) -> Iterator[Final]:
        """The windows that stream time has left so far behind that the store has deleted them; from time to time."""
        time = self._task.stream_time
        if self._held is None or time < self._next_sweep:
            return
        self._next_sweep = time + self._held
        for window in [w for w in self._windows if w.times.end + self._held < time]:
            yield self._final(window, self._windows.pop(window))

    def rest(self) -> Iterator[Final]:
        """All that are left at the end of the log."""
        for window, entry in self._windows.items():
            yield self._final(window, entry)

    def _entry_rows(self, change: Row[int]) -> int:
        entry = self._windows.get(_window(change))
        return 0 if entry is None else entry.rows

    def _final(self, window: _Window, entry: _Entry) -> Final:
        is_lost = entry.row is None and self._task.has_looked_past(window.times)
        return Final(window.key, window.times, entry.first, entry.row, entry.place, entry.rows, is_lost)


def _window(row: Row[int]) -> _Window:
    return _Window(row.key, row.window)
