"""Sliding windows between events, after `KStreamSlidingWindowAggregate` (rules 12 and 13).

Each record has a left window `[ts - d, ts]` and, if another record of the key is in it, a right window
`[ts + 1, ts + 1 + d]`; both ends are inclusive. The store holds the windows that there are. A new record goes into all
that hold its time, and makes those that are missing from the values of its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from spark_jobs.eventtime.kafka_streams.aggregation import Skipped, is_inclusive_window_late
from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Contents, Ordered
from spark_jobs.eventtime.kafka_streams.store import UNKNOWN, SegmentedStore, Stored
from spark_jobs.eventtime.kafka_streams.suppression import Update
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents, StreamsWindow

E = TypeVar("E", bound=Ordered)


@dataclass(slots=True)
class _Around(Generic[E]):
    """What the store told about the neighbourhood of a record."""

    left: Aggregate[E] | None = None
    right: Aggregate[E] | None = None
    has_left_window: bool = False
    has_right_window: bool = False
    previous: int | None = None
    starts: set[int] = field(default_factory=set[int])


class SlidingAggregation(Generic[E]):
    """Sliding windows of one task."""

    def __init__(self, windows: BetweenEvents, store: SegmentedStore[E]) -> None:
        self._difference = windows.time_difference
        self.store = store

    def process(self, key: bytes, timestamp: int, element: E, close_time: int) -> Iterator[Update[E] | Skipped]:
        """All windows that the record is in, in the order in which Kafka Streams comes upon them."""
        whole = self._window(timestamp)
        if is_inclusive_window_late(whole, close_time):
            yield Skipped(whole)
        elif timestamp < self._difference:
            yield from self._process_early(key, timestamp, element, close_time)
        else:
            yield from self._process_reverse(key, timestamp, element, close_time)

    def _window(self, start: int) -> StreamsWindow:
        return StreamsWindow(start, start + self._difference)

    def _process_reverse(
        self, key: bytes, timestamp: int, element: E, close_time: int
    ) -> Iterator[Update[E] | Skipped]:
        around = _Around[E]()
        earliest = max(0, timestamp - 2 * self._difference)
        for stored, aggregate in reversed(list(self.store.find(key, earliest, timestamp + 1))):
            window = self._window(stored.time)
            around.starts.add(window.start)
            if window.start == timestamp + 1:
                around.has_right_window = True
            elif window.end > timestamp:
                if around.right is None:
                    around.right = aggregate
                yield self._update(key, window, aggregate, timestamp, element, close_time)
            elif window.end == timestamp:
                around.has_left_window = True
                yield self._update(key, window, aggregate, timestamp, element, close_time)
                if aggregate.timestamp >= timestamp:  # a record of this very time has made all its windows
                    return
                around.previous = aggregate.timestamp
            else:
                around.left = aggregate
                around.previous = aggregate.timestamp
                break
        yield from self._create(around, key, timestamp, element, close_time)

    def _create(
        self, around: _Around[E], key: bytes, timestamp: int, element: E, close_time: int
    ) -> Iterator[Update[E] | Skipped]:
        previous = around.previous
        if previous is not None and previous + 1 not in around.starts and self._window(previous + 1).end >= timestamp:
            yield self._update(key, self._window(previous + 1), None, timestamp, element, close_time)
        if not around.has_left_window:
            follows = previous is not None and timestamp - self._difference <= previous
            left = around.left if follows else None
            yield self._update(key, self._window(timestamp - self._difference), left, timestamp, element, close_time)
        if not around.has_right_window:
            yield from self._create_right(around.right, key, timestamp)

    def _process_early(self, key: bytes, timestamp: int, element: E, close_time: int) -> Iterator[Update[E] | Skipped]:
        """A record with ts < d: all of them share the window [0, d], since none starts before 0 (rule 13)."""
        around = _Around[E]()
        combined: Aggregate[E] | None = None
        for stored, aggregate in list(self.store.find(key, 0, timestamp + 1)):
            around.starts.add(stored.time)
            if stored.time == 0:
                combined = aggregate
                if aggregate.timestamp < timestamp:
                    around.previous = aggregate.timestamp
            elif stored.time <= timestamp:
                around.right = aggregate
                yield self._update(key, self._window(stored.time), aggregate, timestamp, element, close_time)
            else:
                around.has_right_window = True
        if around.right is None and combined is not None and combined.timestamp > timestamp:
            around.right = combined
        if not around.has_right_window:
            yield from self._create_right(around.right, key, timestamp)
        if around.previous is not None and around.previous + 1 not in around.starts:
            yield self._update(key, self._window(around.previous + 1), None, timestamp, element, close_time)
        yield self._update(key, self._window(0), combined, timestamp, element, close_time)

    def _create_right(self, right: Aggregate[E] | None, key: bytes, timestamp: int) -> Iterator[Update[E]]:
        """The window behind an out-of-order record holds what came before it; it is made without a look at its end."""
        if right is not None and right.timestamp > timestamp:
            window = self._window(timestamp + 1)
            stored = Stored(key, window.start, UNKNOWN)
            self.store.put(stored, right)
            yield Update(stored, window, right, right.timestamp)

    def _update(
        self,
        key: bytes,
        window: StreamsWindow,
        old: Aggregate[E] | None,
        timestamp: int,
        element: E,
        close_time: int,
    ) -> Update[E] | Skipped:
        if is_inclusive_window_late(window, close_time):
            return Skipped(window)
        held, latest = (Contents(), timestamp) if old is None else (old.contents, max(timestamp, old.timestamp))
        new = Aggregate(held.plus(element), latest)
        stored = Stored(key, window.start, UNKNOWN)
        self.store.put(stored, new)
        return Update(stored, window, new, latest)
