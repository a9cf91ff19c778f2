"""The windowed aggregations, record by record: each takes a record into its windows, or skips it as late.

Late is judged by the close time, stream time - grace (sessions: - gap as well), the record's own time included.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Contents, Ordered
from spark_jobs.eventtime.kafka_streams.store import UNKNOWN, SegmentedStore, Stored
from spark_jobs.eventtime.kafka_streams.suppression import Update
from spark_jobs.eventtime.kafka_streams.windows import HoppingWindows, Sessions, StreamsWindow
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP

E = TypeVar("E", bound=Ordered)


class Skipped(NamedTuple):
    """A (record, window) pair that is dropped as late."""

    window: StreamsWindow


class Aggregation(Protocol[E]):
    """Takes one record into its windows."""

    store: SegmentedStore[E]

    def process(self, key: bytes, timestamp: int, element: E, close_time: int) -> Iterator[Update[E] | Skipped]:
        """What the record causes, in the order of Kafka Streams."""
        ...


def is_window_late(window: StreamsWindow, close_time: int) -> bool:
    """`end <= close time`: for windows whose end is exclusive (rule 5)."""
    return window.end <= close_time


def is_inclusive_window_late(window: StreamsWindow, close_time: int) -> bool:
    """`end < close time`: for sliding windows and sessions, whose end is inclusive (rules 10 and 12)."""
    return window.end < close_time


class TimeWindowAggregation(Generic[E]):
    """Tumbling and hopping windows (`KStreamWindowAggregate`)."""

    def __init__(self, windows: HoppingWindows, store: SegmentedStore[E]) -> None:
        self._windows = windows
        self.store = store

    def process(self, key: bytes, timestamp: int, element: E, close_time: int) -> Iterator[Update[E] | Skipped]:
        """One update for each window that takes the record, ascending by start (rules 5 and 6)."""
        for window in self._windows.of(timestamp):
            if is_window_late(window, close_time):
                yield Skipped(window)
                continue
            stored = Stored(key, window.start, UNKNOWN)
            old = self.store.get(stored)
            held, latest = (Contents(), timestamp) if old is None else (old.contents, max(timestamp, old.timestamp))
            new = Aggregate(held.plus(element), latest)
            self.store.put(stored, new)
            yield Update(stored, window, new, latest)


class SessionAggregation(Generic[E]):
    """Session windows (`KStreamSessionWindowAggregate`)."""

    def __init__(self, windows: Sessions, store: SegmentedStore[E]) -> None:
        self._gap = windows.gap
        self.store = store

    def process(self, key: bytes, timestamp: int, element: E, close_time: int) -> Iterator[Update[E] | Skipped]:
        """The sessions that the record joins are withdrawn, then the merged one is emitted (rules 9 to 11)."""
        # A session reaches the record if it ends at or after ts - gap and starts at or before ts + gap.
        found = [
            (stored, aggregate)
            for stored, aggregate in self.store.find(key, timestamp - self._gap, MAX_TIMESTAMP)
            if stored.other <= timestamp + self._gap
        ]
        own = StreamsWindow(timestamp, timestamp)
        starts, ends = [timestamp], [timestamp]
        for stored, _ in found:
            starts.append(stored.other)
            ends.append(stored.time)
        merged = StreamsWindow(min(starts), max(ends))
        if is_inclusive_window_late(merged, close_time):
            yield Skipped(merged)
            return
        contents: Contents[E] = Contents()
        for stored, aggregate in found:
            contents = contents.united(aggregate.contents)
            if merged != own:
                self.store.remove(stored)
                yield Update(stored, StreamsWindow(stored.other, stored.time), None, stored.time)
        new = Aggregate(contents.plus(element), merged.end)
        stored = Stored(key, merged.end, merged.start)
        self.store.put(stored, new)
        yield Update(stored, merged, new, merged.end)
