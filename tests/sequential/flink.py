"""A whole live job on a bounded history: the source, the window operator, and processing time.

Duplicates in front of the windows, as Flink's operators drop them. By processing time: SQL's
`ProcTimeDeduplicateKeepFirstRowFunction`, and keyed state with a time to live in a filter of one's own. By row time:
`RowTimeDeduplicateKeepFirstRowFunction`, insert-only, of Flink 2.1 and later. Times are epoch ms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

from spark_jobs.definition.deduplicate import UpdateType
from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.lateness import is_window_late
from spark_jobs.eventtime.flink.operator import Firing, MergeTooLateError, WindowOperator
from spark_jobs.eventtime.flink.signals import (
    PartitionStatusChanged,
    Signal,
    StreamSignal,
    StreamStatusChanged,
    WatermarkEmitted,
)
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.flink.wall_clock import fires_at
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import MissingTimestampError, WindowAssigner

E = TypeVar("E")


def _reached_at(slices: Slices, end: int) -> int:
    """The watermark (epoch ms) that reaches a slice end."""
    return end - 1 if slices.zone is None else fires_at(end - 1, slices.zone)


@dataclass(slots=True)
class LocalBuffer(Generic[E]):
    """One subtask's buffer. Flink counts its watermark from 0, so that one below does not exist."""

    slices: Slices
    watermark: int = 0
    flush_at: int = 0
    held: list[E] = field(default_factory=list[E])
    earliest_end: int = MAX_TIMESTAMP

    def add(self, timestamp: int, element: E) -> None:
        """Hold a record with this event time."""
        self.held.append(element)
        self.earliest_end = min(self.earliest_end, self.slices.end(timestamp))

    def advance(self, watermark: int) -> list[E]:
        """The subtask's own watermark: what goes on before it."""
        if watermark <= self.watermark:
            return []
        self.watermark = watermark
        if watermark < self.flush_at:
            return []
        self.flush_at = self.slices.next_flush(watermark)
        is_due = self.earliest_end < MAX_TIMESTAMP and _reached_at(self.slices, self.earliest_end) <= watermark
        return self.flush() if is_due else []

    def flush(self) -> list[E]:
        """All that is held goes on, as at a checkpoint."""
        out, self.held, self.earliest_end = self.held, [], MAX_TIMESTAMP
        return out


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a history, in position order. Times in epoch ms; `MIN_TIMESTAMP`: no event time."""

    partition: int
    offset: int
    arrival: int
    key: Hashable
    timestamp: int
    marker: bool = False
    stream: str | None = None


@dataclass(frozen=True, slots=True)
class At:
    """When something happened: how many records had been consumed, and processing time (epoch ms)."""

    records: int
    clock: int


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Flink would have failed the job while it processed the record number `at.records - 1`."""

    at: At
    java_class: str
    message: str


class RecordWatermark(NamedTuple):
    """The window operator's watermark (epoch ms) before the record number `record` (from 0) was processed."""

    record: int
    watermark: int


@dataclass(slots=True)
class JobResult:
    """What a live job did. Lists are in the order in which it happened.

    Attributes:
        firings: The firings of windows; their elements are record indices.
        late: The records of the late side output.
        watermarks_before: One entry for each record before which the window operator's watermark had changed.
        emissions: The watermarks that reached the window operator, but for that of the end of input.
        status_changes: When the whole stream became idle or active.
        partition_status_changes: When a partition became idle or active.
        partition_watermarks: The last watermark of each generator.
        source_watermark: The last watermark of the source.
        watermark: The last watermark of the window operator.
        failure: The failure of the job; None if it did not fail.
    """

    firings: list[tuple[At, Firing[int]]] = field(default_factory=list[tuple[At, Firing[int]]])
    late: list[RecordWatermark] = field(default_factory=list[RecordWatermark])
    watermarks_before: list[RecordWatermark] = field(default_factory=list[RecordWatermark])
    emissions: list[tuple[At, WatermarkEmitted]] = field(default_factory=list[tuple[At, WatermarkEmitted]])
    status_changes: list[tuple[At, StreamStatusChanged]] = field(default_factory=list[tuple[At, StreamStatusChanged]])
    partition_status_changes: list[tuple[At, PartitionStatusChanged]] = field(
        default_factory=list[tuple[At, PartitionStatusChanged]]
    )
    partition_watermarks: list[int] = field(default_factory=list[int])
    source_watermark: int = MIN_TIMESTAMP
    watermark: int = MIN_TIMESTAMP
    failure: JobFailure | None = None


@dataclass(frozen=True, slots=True)
class SubtaskReached:
    """A source subtask forwards a watermark of its own (epoch ms); it comes before what the valve makes of it."""

    subtask: int
    watermark: int


class _TellingSource(Source):
    """A source whose signals say what each subtask's own watermark reaches, too."""

    def end_of_input(self) -> list[Signal]:
        """Subtasks end one after the other, the idle ones last."""
        signals: list[Signal] = []
        for index in sorted(range(len(self._subtasks)), key=lambda i: self._subtasks[i].idle):
            signals += self._through_valve(index, [WatermarkEmitted(MAX_TIMESTAMP)])
        return signals

    def _through_valve(self, index: int, signals: list[StreamSignal]) -> list[Any]:
        out: list[Any] = []
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                out.append(SubtaskReached(index, signal.watermark))
            out += super()._through_valve(index, [signal])
        return out


def subtask_of(source: Source, partition: int) -> int:
    """The number of the subtask that reads a partition."""
    return source._by_partition[partition][0]


class LiveJob:
    """Runs records one at a time through the source and the window operator.

    A record that `before_watermark` rejects is filtered in front of the generator: it moves no watermark, and its
    partition becomes idle as if it had not come.

    With `slices` the windows are computed in two phases: each subtask holds its records back in slices, and late is
    what comes out of it too late. With `gathered` the window operator gathers records in such slices, too, and does not
    count what it takes out of them only after a close. `checkpoints`: the number of records after which one is taken,
    for each.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        assigner: WindowAssigner,
        allowed_lateness: int,
        before_watermark: Callable[[Record], bool] = lambda record: True,
        slices: Slices | None = None,
        checkpoints: Sequence[int] = (),
        gathered: Slices | None = None,
    ) -> None:
        self._before_watermark = before_watermark
        self._source = Source(strategy) if slices is None else _TellingSource(strategy)
        self._buffers: list[LocalBuffer[tuple[int, Record]]] | None = None
        if slices is not None:
            self._buffers = [LocalBuffer(slices) for _ in strategy.subtasks]
        self._gathered: LocalBuffer[tuple[int, Record]] | None = None if gathered is None else LocalBuffer(gathered)
        self._checkpoints = checkpoints
        self._assigner, self._allowed_lateness = assigner, allowed_lateness
        self._operator: WindowOperator[int] = WindowOperator(assigner, allowed_lateness)
        self.result = JobResult()
        self._consumed = 0
        self._clock = 0

    def run(self, records: list[Record], *, until: int | None = None, flush: bool) -> JobResult:
        """Consume all records, let the timer run until `until` (epoch ms), and end the input if `flush`."""
        result = self.result
        for record in records:
            if not self._consume(record):
                self._finish_watermarks()
                return result
        if until is not None:
            self._run_timer(until)
            self._clock = max(self._clock, until)
        self._take_checkpoint()
        self._finish_watermarks()
        if flush:
            self._handle(self._source.end_of_input(), final=True)
            result.watermark = self._operator.watermark
        return result

    def _finish_watermarks(self) -> None:
        self.result.partition_watermarks = self._source.partition_watermarks
        self.result.source_watermark = self._source.watermark
        self.result.watermark = self._operator.watermark

    def _consume(self, record: Record) -> bool:
        self._run_timer(record.arrival)
        self._take_checkpoint()
        self._clock = record.arrival
        index = self._consumed
        result = self.result
        before = self._operator.watermark
        if not result.watermarks_before or result.watermarks_before[-1][1] != before:
            result.watermarks_before.append(RecordWatermark(index, before))
        self._consumed += 1
        if not self._before_watermark(record):
            return True
        if self._buffers is not None:
            self._buffers[subtask_of(self._source, record.partition)].add(record.timestamp, (index, record))
        elif not self._enter(index, record):
            return False
        event = Event(record.timestamp, record.arrival, record.marker, record.stream)
        self._handle(self._source.on_event(record.partition, event))
        return True

    def _enter(self, index: int, record: Record) -> bool:
        """Hand a record to the window operator; False: the job fails."""
        if self._gathered is None or self._is_late(record.timestamp):
            return self._count(index, record)
        self._gathered.add(record.timestamp, (index, record))
        return True

    def _is_late(self, timestamp: int) -> bool:
        watermark, lateness = self._operator.watermark, self._allowed_lateness
        return all(is_window_late(one, lateness, watermark) for one in self._assigner.assign(timestamp))

    def _count(self, index: int, record: Record) -> bool:
        result, before = self.result, self._operator.watermark
        try:
            firings, late = self._operator.process(record.key, record.timestamp, index)
        except (MissingTimestampError, MergeTooLateError) as failure:
            result.failure = JobFailure(At(self._consumed, self._clock), failure.java_class, str(failure))
            return False
        result.firings += [(At(self._consumed, self._clock), firing) for firing in firings]
        if late:
            result.late.append(RecordWatermark(index, before))
        return True

    def _enter_all(self, held: Sequence[tuple[int, Record]]) -> None:
        for index, record in held:
            self._enter(index, record)

    def _take_checkpoint(self) -> None:
        if self._consumed not in self._checkpoints:
            return
        for buffer in self._buffers or ():
            self._enter_all(buffer.flush())
        for held in self._gathered.flush() if self._gathered is not None else ():
            self._count(*held)

    def _run_timer(self, until: int) -> None:
        for tick in self._source.ticks(until):
            self._clock = tick.time
            self._handle(tick.signals)

    def _handle(self, signals: Sequence[Any], *, final: bool = False) -> None:
        at = At(self._consumed, self._clock)
        result = self.result
        for signal in signals:
            match signal:
                case SubtaskReached(subtask, watermark):
                    if self._buffers is not None:
                        self._enter_all(self._buffers[subtask].advance(watermark))
                case WatermarkEmitted():
                    if not final:
                        result.emissions.append((at, signal))
                    for held in self._gathered.advance(signal.watermark) if self._gathered is not None else ():
                        self._count(*held)
                    result.firings += [(at, firing) for firing in self._operator.advance_watermark(signal.watermark)]
                case StreamStatusChanged():
                    result.status_changes.append((at, signal))
                case PartitionStatusChanged():
                    result.partition_status_changes.append((at, signal))


class FirstByProcessingTime:
    """The first record of each id goes on. `within`: how long an id is remembered; None: for ever.

    State written at t is gone at t + within: `TtlUtils.expired`.
    """

    def __init__(self, within: int | None, update_type: UpdateType = UpdateType.ON_CREATE_AND_WRITE) -> None:
        self._within = within
        self._renews = update_type is UpdateType.ON_READ_AND_WRITE
        self._touched: dict[Hashable, int] = {}

    def takes(self, id: Hashable, now: int) -> bool:
        """Whether a record that is processed at `now` goes on."""
        touched = self._touched.get(id)
        is_held = touched is not None and (self._within is None or touched + self._within > now)
        if not is_held or self._renews:
            self._touched[id] = now
        return not is_held


@dataclass(slots=True)
class _Waiting(Generic[E]):
    timestamp: int
    element: E


class FirstByRowTime(Generic[E]):
    """The record of each id with the smallest row time goes on, when the watermark reaches that time.

    A record with a row time below the watermark is dropped as late. What comes after an id was given is a duplicate,
    whatever its time, until the state that says so has lived for `within` of processing time (None: for ever). A record
    that waits for its watermark does not expire. Of equal row times the first one stays.
    """

    def __init__(self, within: int | None) -> None:
        self._within = within
        self._waiting: dict[Hashable, _Waiting[E]] = {}
        self._given: dict[Hashable, int] = {}

    def is_late(self, timestamp: int, watermark: int | None) -> bool:
        """Whether a record comes after the watermark has passed its row time. `watermark` None: there is none yet."""
        return watermark is not None and timestamp < watermark

    def add(self, id: Hashable, timestamp: int, element: E, now: int) -> None:
        """Take a record that is not late."""
        given = self._given.get(id)
        if given is not None and (self._within is None or given + self._within > now):
            return
        waiting = self._waiting.get(id)
        if waiting is None or timestamp < waiting.timestamp:
            self._waiting[id] = _Waiting(timestamp, element)

    def advance(self, watermark: int, now: int) -> list[E]:
        """The records that go on as the watermark gets there, before it goes on itself; by row time."""
        due = sorted(
            ((one.timestamp, id) for id, one in self._waiting.items() if one.timestamp <= watermark),
            key=lambda one: one[0],
        )
        for _, id in due:
            self._given[id] = now
        return [self._waiting.pop(id).element for _, id in due]
