"""One Structured Streaming query, run on the micro-batches that its checkpoint records.

    inputs -> filters -> [deduplication] -> groupBy(key, window).agg(...) -> rows by output mode

Each batch runs on the state that the batch before it left. A batch that runs again begins from that state anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from spark_jobs.eventtime.spark.aggregation import (
    Dropped,
    Given,
    Input,
    OutputMode,
    Row,
    SessionAggregation,
    is_late,
    is_out,
)
from spark_jobs.eventtime.spark.batches import Batch, Batches, BatchKind, BatchLog
from spark_jobs.eventtime.windows import Window, WindowAssigner
from spark_jobs.replay.deduplication import DeduplicationKind

E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class BatchSettings:
    """What can differ from one start of a query to the next, and is in no file of the checkpoint.

    `allow_multiple`: `spark.sql.streaming.statefulOperator.allowMultiple` (Spark rule 16). `delay` (in the query's
    unit): of the first input's watermark, for as long as deduplication holds an id. `merge_locally`:
    `spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition` (Spark rule 32).
    """

    allow_multiple: bool = True
    delay: int = 0
    merge_locally: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """The stateful part of a query. `windows` None: sessions, and each record brings its own window.

    `ticks_per_ms`: how many units of its event times make a millisecond of the watermark: 1, or 1,000.
    """

    windows: WindowAssigner | None
    output_mode: OutputMode
    deduplication: DeduplicationKind | None = None
    ticks_per_ms: int = 1


@dataclass(frozen=True, slots=True)
class ReadRecord(Generic[E]):
    """One record that a batch has read and no filter has rejected.

    `timestamp` None: no event time. With sessions `end` is the end of its own session, None where its gap is not
    positive. `task`: what one task reads of a batch, a partition of its topic. `id`: what duplicates share.
    """

    key: Hashable
    timestamp: int | None
    element: E
    end: int | None = None
    task: Hashable = None
    id: Hashable = None


@dataclass(slots=True)
class BatchResult(Generic[E]):
    """What one batch gave.

    `dropped` are (record, window) pairs that no window took, late ones and duplicates; of a session without its window.
    `ignored` are records that belong to no window at all (Spark rules 14, 29).
    """

    rows: list[Row[E]]
    dropped: list[Dropped[E]]
    ignored: list[E]


class WindowAggregation(Generic[E]):
    """Windows that do not merge. Complete mode drops no record and lets no window go (Spark rules 18, 21)."""

    def __init__(self, assigner: WindowAssigner, mode: OutputMode) -> None:
        self._assigner = assigner
        self._mode = mode
        self._state: dict[tuple[Hashable, Window], list[E]] = {}

    def run(self, records: Iterable[Input[E]], *, late: int, out: int) -> Given[E]:
        """Run one batch."""
        given: Given[E] = Given()
        touched: dict[tuple[Hashable, Window], None] = {}
        for record in records:
            for window in self._assigner.assign(record.timestamp):
                if self._mode is not OutputMode.COMPLETE and is_late(window, late):
                    given.dropped.append(Dropped(record.element, window))
                    continue
                self._state.setdefault((record.key, window), []).append(record.element)
                touched[record.key, window] = None
        closed = [] if self._mode is OutputMode.COMPLETE else [at for at in self._state if is_out(at[1], out)]
        match self._mode:
            case OutputMode.APPEND:
                chosen = closed
            case OutputMode.UPDATE:
                chosen = list(touched)
            case OutputMode.COMPLETE:
                chosen = list(self._state)
        given.rows += [Row(key, window, tuple(self._state[key, window])) for key, window in chosen]
        for at in closed:
            del self._state[at]
        return given

    def windows_of(self, record: Input[E]) -> Iterator[Window]:
        """The windows that a record belongs to."""
        return self._assigner.assign(record.timestamp)

    def held(self) -> list[Row[E]]:
        """The windows that wait in the state."""
        return [Row(key, window, tuple(elements)) for (key, window), elements in self._state.items()]


class Deduplication:
    """The ids that a query remembers. Call `takes` for each record of a batch in order, then `end_batch`."""

    def __init__(self, kind: DeduplicationKind) -> None:
        self._kind = kind
        self._expiry: dict[Hashable, int | None] = {}

    def takes(self, id: Hashable, timestamp: int | None, *, late: int, delay: int) -> bool:
        """Whether a record goes on: neither late (`ts <= W`) nor a duplicate.

        One without event time is not late, and takes its id as if its time were 0. `delay` is that of the first input,
        at this start: an id keeps the one that it came with.
        """
        if timestamp is not None and timestamp <= late:
            return False
        key, expiry = self._held(id, timestamp, delay)
        if key in self._expiry:
            return False
        self._expiry[key] = expiry
        return True

    def _held(self, id: Hashable, timestamp: int | None, delay: int) -> tuple[Hashable, int | None]:
        match self._kind:
            case DeduplicationKind.WITHIN_WATERMARK:
                return id, (timestamp or 0) + delay
            case DeduplicationKind.ID_AND_TIME:
                return (id, timestamp), timestamp
            case DeduplicationKind.ID:
                return id, None

    def end_batch(self, *, out: int) -> None:
        """Forget the ids whose time the batch's watermark has reached."""
        self._expiry = {key: expiry for key, expiry in self._expiry.items() if expiry is None or expiry > out}


class RunningQuery(Generic[E]):
    """A query that runs batch by batch, in the order of the log."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._deduplication = None if query.deduplication is None else Deduplication(query.deduplication)
        self._windows = None if query.windows is None else WindowAggregation[E](query.windows, query.output_mode)
        self._sessions = SessionAggregation[E](query.output_mode)

    def copy(self) -> RunningQuery[E]:
        """A copy of the query with a state of its own, for a run of a batch that is not committed."""
        return deepcopy(self)

    def run(self, batch: Batch, records: Iterable[ReadRecord[E]], settings: BatchSettings) -> BatchResult[E]:
        """Run one batch on the records that it reads, in the order of input, partition and offset."""
        late = batch.late_watermark(allow_multiple=settings.allow_multiple) * self._query.ticks_per_ms
        out = batch.watermark * self._query.ticks_per_ms
        result: BatchResult[E] = BatchResult([], [], [])
        arriving: list[Input[E]] = []
        for record in records:
            entering = self._entering(record)
            taken = self._deduplication is None or self._deduplication.takes(
                record.id, record.timestamp, late=late, delay=settings.delay
            )
            if entering is None:
                result.ignored.append(record.element)
            elif taken:
                arriving.append(entering)
            else:
                result.dropped += [Dropped(record.element, window) for window in self._windows_of(entering)]
        if self._deduplication is not None:
            self._deduplication.end_batch(out=out)
        given = self._aggregate(arriving, late, out, settings)
        return replace(result, rows=given.rows, dropped=result.dropped + given.dropped)

    def held(self) -> list[Row[E]]:
        """The windows that wait in the state."""
        return (self._windows or self._sessions).held()

    def _entering(self, record: ReadRecord[E]) -> Input[E] | None:
        if record.timestamp is None:
            return None
        entering = Input(record.key, record.timestamp, record.element, task=record.task)
        if self._windows is not None:
            return entering if any(True for _ in self._windows.windows_of(entering)) else None
        if record.end is None or record.end <= record.timestamp:
            return None
        return replace(entering, alone=Window(record.timestamp, record.end))

    def _windows_of(self, record: Input[E]) -> Iterable[Window | None]:
        return (self._windows or self._sessions).windows_of(record)

    def _aggregate(self, arriving: list[Input[E]], late: int, out: int, settings: BatchSettings) -> Given[E]:
        if self._windows is not None:
            return self._windows.run(arriving, late=late, out=out)
        return self._sessions.run(arriving, late=late, out=out, merge_locally=settings.merge_locally)


def running_batches(batches: Batches) -> BatchLog:
    """The batches in which the query runs."""
    return batches.batches.of_kind(BatchKind.COMMITTED, BatchKind.PENDING)


def batch_of_offset(batches: Batches, source: str, topic: str | None, partition: int, offset: int) -> int | None:
    """The batch that has read this record of a Kafka source; `topic` None: the only one of the source."""
    for place in (p for p in batches.ranges if p.source == source and p.number == partition):
        if topic is None or place.topic == topic:
            return batches.ranges[place].batch_of(offset)
    return None
