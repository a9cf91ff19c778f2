"""`suppress(untilWindowCloses(unbounded()))`: a window's newest row comes out when the window has closed (rule 7).

After `KTableSuppressProcessorSupplier` and `InMemoryTimeOrderedKeyValueChangeBuffer`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, NamedTuple, TypeVar

from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Ordered
from spark_jobs.eventtime.kafka_streams.store import UNKNOWN, Stored
from spark_jobs.eventtime.kafka_streams.windows import StreamsWindow

E = TypeVar("E", bound=Ordered)


class Update(NamedTuple, Generic[E]):
    """A row that an aggregation emits: the value of a window, or None, which withdraws what it emitted before."""

    stored: Stored
    window: StreamsWindow
    aggregate: Aggregate[E] | None
    timestamp: int


class _Due(NamedTuple):
    end: int
    serialized: bytes
    stored: Stored


class Suppression(Generic[E]):
    """The buffer of one task. Its time S is the largest timestamp of the rows that reached it.

    `wait` (ms) is the grace period, for sessions the gap as well: a window is out when `end <= S - wait`.
    """

    def __init__(self, wait: int) -> None:
        self._wait = wait
        self.time = UNKNOWN
        self._rows: dict[Stored, Update[E]] = {}
        self._due: list[_Due] = []

    def process(self, row: Update[E]) -> Iterator[Update[E]]:
        """Keep a row instead of the one before of this window, and let out what has closed.

        Ascending by end, then by the serialized key. A row that withdraws takes the place of what was kept, and is
        dropped when it is due.
        """
        self.time = max(self.time, row.timestamp)
        if row.stored not in self._rows:
            heapq.heappush(self._due, _Due(row.window.end, _serialized(row.stored), row.stored))
        self._rows[row.stored] = row
        while self._due and self._due[0].end <= self.time - self._wait:
            out = self._rows.pop(heapq.heappop(self._due).stored)
            if out.aggregate is not None:
                yield out

    def restart(self) -> None:
        """The buffer comes back from its changelog; S begins anew."""
        self.time = UNKNOWN

    def lose(self) -> None:
        """The buffer is gone."""
        self.time = UNKNOWN
        self._rows.clear()
        self._due.clear()

    def waiting(self) -> Iterator[Update[E]]:
        """What the buffer still holds, in the order in which it would come out."""
        for due in sorted(self._due):
            row = self._rows[due.stored]
            if row.aggregate is not None:
                yield row


def _serialized(stored: Stored) -> bytes:
    """The bytes of a windowed key: key, start; for sessions key, end, start."""
    times = (stored.time, stored.other) if stored.other != UNKNOWN else (stored.time,)
    return stored.key + b"".join(time.to_bytes(8, "big", signed=True) for time in times)
