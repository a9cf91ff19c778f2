"""The state store of a windowed aggregation: segments of time, a retention, and a changelog (rules 15 and 16).

A store has a time of its own, R: the largest window start (sessions: end) written since it was opened. It finds
nothing older than R - retention. It deletes only whole segments, so after it is opened again with a smaller R, older
windows in live segments are found again. (`AbstractRocksDBSegmentedBytesStore`,
`AbstractDualSchemaRocksDBSegmentedBytesStore`, `AbstractSegments`.)
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Ordered
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP

E = TypeVar("E", bound=Ordered)

UNKNOWN = -1
"""Kafka's `NO_TIMESTAMP`: no record yet."""


class StoreTimes(NamedTuple):
    """The times of a store: R, and the largest that its changelog has."""

    found: int = UNKNOWN
    logged: int = UNKNOWN


_LEAST_SEGMENT = 60_000


class Stored(NamedTuple):
    """The identity of a window in a store: `time` is its start, `other` -1; for a session its end and its start."""

    key: bytes
    time: int
    other: int


class _ByTime(NamedTuple):
    time: int
    other: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a store keeps what (ms).

    `keeps_boundary`: a window that starts exactly at R - retention is still found. It is so only in the stores of time
    windows that are emitted on close.
    """

    period: int
    keeps_boundary: bool = False

    @property
    def segment(self) -> int:
        """The length of a segment."""
        return max(self.period // 2, _LEAST_SEGMENT)

    def segment_of(self, time: int) -> int:
        """The number of the segment that holds `time`; as in Java, the division rounds towards zero."""
        return time // self.segment if time >= 0 else -(-time // self.segment)

    def oldest(self, store_time: int) -> int:
        """The first time that is found while R is `store_time`."""
        return store_time - self.period + (0 if self.keeps_boundary else 1)


class SegmentedStore(Generic[E]):
    """The windows of one task, in segments of time.

    `restorable`: whether a changelog is kept, from which `restore` builds the store anew.
    """

    def __init__(self, retention: Retention, *, restorable: bool = False) -> None:
        self._retention = retention
        self._time = UNKNOWN
        self._empty()
        self._changelog: dict[Stored, Aggregate[E]] | None = {} if restorable else None
        self._logged = UNKNOWN

    @property
    def times(self) -> StoreTimes:
        """The times of the store, which `move_to` brings back."""
        return StoreTimes(self._time, self._logged)

    def move_to(self, times: StoreTimes) -> None:
        """Be an empty store with the times of another one."""
        self._time, self._logged = times

    def reopen(self) -> None:
        """A new process opens the files that are still on the disk: only R begins anew."""
        self._time = UNKNOWN

    def restore(self) -> None:
        """A new process fills an empty disk from the changelog, R included."""
        logged = self._changelog or {}
        self._empty()
        self._time = self._logged
        self._changelog = {}
        for window, aggregate in logged.items():
            self.put(window, aggregate)

    def lose(self) -> None:
        """Files and changelog are gone."""
        self._empty()
        self._time = self._logged = UNKNOWN
        self._changelog = None if self._changelog is None else {}

    def _empty(self) -> None:
        self._segments: dict[int, set[Stored]] = {}
        self._values: dict[Stored, Aggregate[E]] = {}
        self._times: dict[bytes, list[tuple[int, int]]] = {}
        self._by_time: list[_ByTime] = []

    def get(self, window: Stored) -> Aggregate[E] | None:
        """The value of a window; None where there is none, or the store does not find it any more."""
        if window.time < self._retention.oldest(self._time):
            return None
        return self._values.get(window)

    def put(self, window: Stored, aggregate: Aggregate[E]) -> None:
        """Write a window; what lies in a segment that is not live is forgotten, but the changelog has it."""
        self._time = max(self._time, window.time)
        self._log(window, aggregate)
        segment = self._retention.segment_of(window.time)
        oldest_live = self._retention.segment_of(self._time - self._retention.period)
        if segment >= oldest_live:
            if window not in self._values:
                self._segments.setdefault(segment, set()).add(window)
                insort(self._times.setdefault(window.key, []), (window.time, window.other))
                insort(self._by_time, _ByTime(window.time, window.other, window.key))
            self._values[window] = aggregate
        self._clean(oldest_live)

    def remove(self, window: Stored) -> None:
        """Delete a window; this moves R as well."""
        self._time = max(self._time, window.time)
        self._log(window, None)
        if window in self._values:
            self._segments[self._retention.segment_of(window.time)].discard(window)
            self._drop(window)

    def find(self, key: bytes, earliest: int, latest: int) -> Iterator[tuple[Stored, Aggregate[E]]]:
        """The windows of a key with `earliest <= time <= latest` that are found, ascending by time."""
        times = self._times.get(key, [])
        first = bisect_left(times, (max(earliest, self._retention.oldest(self._time)), UNKNOWN))
        for time, other in times[first : bisect_right(times, (latest, MAX_TIMESTAMP))]:
            window = Stored(key, time, other)
            yield window, self._values[window]

    def closed(self, earliest: int, latest: int, *, all_live: bool) -> Iterator[tuple[Stored, Aggregate[E]]]:
        """The windows of all keys with `earliest <= time <= latest`, by time, other, key.

        `all_live`: those in live segments are found even where they are older than the retention, as sessions are.
        """
        if not all_live:
            earliest = max(earliest, self._retention.oldest(self._time))
        first = bisect_left(self._by_time, _ByTime(earliest, UNKNOWN, b""))
        last = bisect_left(self._by_time, _ByTime(latest + 1, UNKNOWN, b""))
        for time, other, key in self._by_time[first:last]:
            window = Stored(key, time, other)
            yield window, self._values[window]

    def _log(self, window: Stored, aggregate: Aggregate[E] | None) -> None:
        self._logged = max(self._logged, window.time)
        if self._changelog is None:
            return
        if aggregate is None:
            self._changelog.pop(window, None)
        else:
            self._changelog[window] = aggregate

    def _clean(self, oldest_live: int) -> None:
        for segment in [number for number in self._segments if number < oldest_live]:
            for window in self._segments.pop(segment):
                self._drop(window)

    def _drop(self, window: Stored) -> None:
        del self._values[window]
        times = self._times[window.key]
        del times[bisect_left(times, (window.time, window.other))]
        if not times:
            del self._times[window.key]
        del self._by_time[bisect_left(self._by_time, _ByTime(window.time, window.other, window.key))]
