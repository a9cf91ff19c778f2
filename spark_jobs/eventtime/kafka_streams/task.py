"""One task of an application: the records of one partition, its stream time, what comes out and what is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from spark_jobs.eventtime.kafka_streams.aggregation import (
    Aggregation,
    SessionAggregation,
    Skipped,
    TimeWindowAggregation,
)
from spark_jobs.eventtime.kafka_streams.contents import Aggregate, Ordered
from spark_jobs.eventtime.kafka_streams.sliding import SlidingAggregation
from spark_jobs.eventtime.kafka_streams.store import UNKNOWN, Retention, SegmentedStore, Stored, StoreTimes
from spark_jobs.eventtime.kafka_streams.suppression import Suppression, Update
from spark_jobs.eventtime.kafka_streams.windows import (
    BetweenEvents,
    HoppingWindows,
    Sessions,
    StreamsWindow,
    StreamsWindows,
)

E = TypeVar("E", bound=Ordered)


class Emission(StrEnum):
    """When a window's row comes out."""

    EACH_UPDATE = "each_update"
    SUPPRESS = "suppress_until_window_closes"
    ON_WINDOW_CLOSE = "emit_on_window_close"


class StoreState(StrEnum):
    """What a restarted task finds of its store."""

    LOCAL = "local"
    RESTORED = "restored"
    LOST = "lost"


class Ignored(StrEnum):
    """Why a record did not reach the aggregation."""

    NEGATIVE_TIMESTAMP = "negative timestamp"
    NULL_KEY = "null key"
    NULL_KEY_OR_VALUE = "null key or value"


@dataclass(frozen=True, slots=True)
class Topology:
    """`groupByKey -> windowedBy -> aggregate [-> suppress]`. Durations are milliseconds.

    `retention`: of the store; None is the least that the library allows. `emit_interval`: how often an aggregation that
    emits on close looks, by the wall clock. Raises ValueError for a grace below 0 and a retention that is too short.
    """

    windows: StreamsWindows
    grace: int
    emission: Emission = Emission.EACH_UPDATE
    retention: int | None = None
    emit_interval: int = 1_000

    def __post_init__(self) -> None:
        if self.grace < 0:
            raise ValueError(f"the grace must not be below 0, not {self.grace}")
        if self.retention is not None and self.retention < self.least_retention:
            raise ValueError(f"the retention must be at least {self.least_retention} ms, not {self.retention}")

    @property
    def least_retention(self) -> int:
        """The shortest retention, and the one that the library takes by itself."""
        return self.windows.least_retention + self.grace

    @property
    def wait(self) -> int:
        """How far stream time must be past a window's end, to close it: the grace, for sessions the gap as well."""
        return self.grace + (self.windows.gap if isinstance(self.windows, Sessions) else 0)

    @property
    def store_retention(self) -> Retention:
        """What the store keeps."""
        time_ordered = self.emission is Emission.ON_WINDOW_CLOSE and not isinstance(self.windows, Sessions)
        period = self.least_retention if self.retention is None else self.retention
        return Retention(period, keeps_boundary=time_ordered)

    def aggregation(self, *, restorable: bool) -> Aggregation[E]:
        """A new aggregation with an empty store."""
        store = SegmentedStore[E](self.store_retention, restorable=restorable)
        match self.windows:
            case HoppingWindows():
                return TimeWindowAggregation(self.windows, store)
            case BetweenEvents():
                return SlidingAggregation(self.windows, store)
            case Sessions():
                return SessionAggregation(self.windows, store)


class Row(NamedTuple, Generic[E]):
    """A row that the application emits. `aggregate` None withdraws what it emitted for this session before."""

    key: bytes
    window: StreamsWindow
    timestamp: int
    aggregate: Aggregate[E] | None


class Late(NamedTuple):
    """A (record, window) pair that was dropped as late, by which close time and stream time (epoch ms)."""

    window: StreamsWindow
    close_time: int
    stream_time: int


@dataclass(frozen=True, slots=True)
class Processed(Generic[E]):
    """What one record caused: rows in their order, dropped pairs, or why it was ignored.

    `changes`: what it did to the windows, whether or not a row came out; None withdraws a session that was merged.
    """

    rows: tuple[Row[E], ...] = ()
    changes: tuple[Row[E], ...] = ()
    late: tuple[Late, ...] = ()
    ignored: Ignored | None = None


class TaskTimes(NamedTuple):
    """All that a task knows beside what its windows hold: its stream time, and the times of its parts (epoch ms)."""

    stream_time: int = UNKNOWN
    store: StoreTimes = StoreTimes()
    suppression: int = UNKNOWN
    next_look: int = 0
    last_close_time: int = UNKNOWN


class Task(Generic[E]):
    """One task. Call `process` for each record of its partition, in the order of the log.

    `restorable`: whether a restart may restore the store from its changelog.
    """

    def __init__(self, topology: Topology, *, restorable: bool = False) -> None:
        self._topology = topology
        self._aggregation: Aggregation[E] = topology.aggregation(restorable=restorable)
        suppresses = topology.emission is Emission.SUPPRESS
        self._suppression = Suppression[E](topology.wait) if suppresses else None
        self._close = CloseEmission(topology) if topology.emission is Emission.ON_WINDOW_CLOSE else None
        self.stream_time = UNKNOWN

    def process(
        self, key: bytes | None, timestamp: int, element: E, *, has_value: bool = True, clock: int
    ) -> Processed[E]:
        """Take one record. `clock`: the wall clock at that time (epoch ms)."""
        ignored = self._ignored(key, timestamp, has_value)
        if ignored is not None or key is None:
            return Processed(ignored=ignored)
        self.stream_time = max(self.stream_time, timestamp)
        close_time = self.stream_time - self._topology.wait
        rows: list[Row[E]] = []
        changes: list[Row[E]] = []
        late: list[Late] = []
        for change in self._aggregation.process(key, timestamp, element, close_time):
            if isinstance(change, Skipped):
                late.append(Late(change.window, close_time, self.stream_time))
            else:
                changes.append(_row(change))
                rows += map(_row, self._emitted(change))
        if self._close is not None and self._looks(timestamp, close_time):
            rows += map(_row, self._close.look(self._aggregation.store, close_time, clock))
        return Processed(tuple(rows), tuple(changes), tuple(late))

    def restart(self, state: StoreState) -> None:
        """The task begins anew, in a new process: stream time is unknown."""
        self.stream_time = UNKNOWN
        store = self._aggregation.store
        match state:
            case StoreState.LOCAL:
                store.reopen()
            case StoreState.RESTORED:
                store.restore()
            case StoreState.LOST:
                store.lose()
        if self._suppression is not None:
            self._suppression.lose() if state is StoreState.LOST else self._suppression.restart()
        if self._close is not None:
            self._close.restart()

    @property
    def times(self) -> TaskTimes:
        """What `move_to` brings back."""
        suppression = UNKNOWN if self._suppression is None else self._suppression.time
        looks = (0, UNKNOWN) if self._close is None else (self._close.next_look, self._close.last_close_time)
        return TaskTimes(self.stream_time, self._aggregation.store.times, suppression, *looks)

    def move_to(self, times: TaskTimes) -> None:
        """Be a task with the times of another one, whose windows are empty."""
        self.stream_time = times.stream_time
        self._aggregation.store.move_to(times.store)
        if self._suppression is not None:
            self._suppression.time = times.suppression
        if self._close is not None:
            self._close.next_look, self._close.last_close_time = times.next_look, times.last_close_time

    def waiting(self) -> Iterator[Row[E]]:
        """What the suppression still holds, in the order in which it would come out."""
        if self._suppression is not None:
            yield from map(_row, self._suppression.waiting())

    def has_looked_past(self, window: StreamsWindow) -> bool:
        """Whether the emit strategy has looked for closed windows up to this one: what it did not find then is lost."""
        return self._close is not None and self._close.has_looked_past(window)

    def _ignored(self, key: bytes | None, timestamp: int, has_value: bool) -> Ignored | None:
        if timestamp < 0:
            return Ignored.NEGATIVE_TIMESTAMP
        if isinstance(self._topology.windows, BetweenEvents):
            return Ignored.NULL_KEY_OR_VALUE if key is None or not has_value else None
        return Ignored.NULL_KEY if key is None else None

    def _emitted(self, change: Update[E]) -> Iterator[Update[E]]:
        match self._topology.emission:
            case Emission.EACH_UPDATE:
                yield change
            case Emission.SUPPRESS if self._suppression is not None:
                yield from self._suppression.process(change)
            case _:
                return

    def _looks(self, timestamp: int, close_time: int) -> bool:
        """Whether the aggregation comes to look after this record: for sliding windows it may end before."""
        windows = self._topology.windows
        if not isinstance(windows, BetweenEvents):
            return True
        return timestamp >= windows.time_difference and timestamp + windows.time_difference >= close_time


class CloseEmission:
    """`EmitStrategy.onWindowClose()`: looks at most once in an interval of the wall clock (rules 8 and 14)."""

    def __init__(self, topology: Topology) -> None:
        self._windows = topology.windows
        self._interval = topology.emit_interval
        self.next_look = 0
        self.last_close_time = UNKNOWN

    def restart(self) -> None:
        """The last close time comes back with the committed offsets; the throttle does not."""
        self.next_look = 0

    def look(self, store: SegmentedStore[E], close_time: int, clock: int) -> Iterator[Update[E]]:
        """What has closed since the last look, as far as the store still finds it."""
        if clock < self.next_look:
            return
        self.next_look = clock + self._interval
        last = self.last_close_time
        if last != UNKNOWN and last >= close_time:
            return
        earliest, latest = self._range(last, close_time)
        if latest < 0:
            return
        self.last_close_time = close_time
        is_session = isinstance(self._windows, Sessions)
        for stored, aggregate in list(store.closed(earliest, latest, all_live=is_session)):
            yield Update(stored, self._window(stored), aggregate, aggregate.timestamp)

    def has_looked_past(self, window: StreamsWindow) -> bool:
        """Whether a window that ends there has had its turn."""
        inclusive = not isinstance(self._windows, HoppingWindows)
        return window.end + (1 if inclusive else 0) <= self.last_close_time

    def _range(self, last: int, close_time: int) -> tuple[int, int]:
        """The first and the last start (sessions: end) that come out now, both included."""
        match self._windows:
            case HoppingWindows(size=size):
                return 0 if last == UNKNOWN else max(0, last - size) + 1, close_time - size
            case BetweenEvents(time_difference=difference):
                return 0 if last == UNKNOWN else max(0, last - difference), close_time - difference - 1
            case Sessions():
                return max(0, last), close_time - 1

    def _window(self, stored: Stored) -> StreamsWindow:
        match self._windows:
            case HoppingWindows(size=length) | BetweenEvents(time_difference=length):
                return StreamsWindow(stored.time, stored.time + length)
            case Sessions():
                return StreamsWindow(stored.other, stored.time)


def _row(update: Update[E]) -> Row[E]:
    return Row(update.stored.key, update.window, update.timestamp, update.aggregate)
