"""A whole live job on a bounded history: source, window operator and the clock between them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from spark_jobs.eventtime.generators import Event
from spark_jobs.eventtime.operator import Firing, MergeTooLateError, WindowOperator
from spark_jobs.eventtime.signals import PartitionStatusChanged, Signal, StreamStatusChanged, WatermarkEmitted
from spark_jobs.eventtime.source import Source
from spark_jobs.eventtime.strategy import WatermarkStrategy
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import MissingTimestampError, WindowAssigner


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
    """When something happened: `records` consumed so far (the global rank), and processing time."""

    records: int
    clock: int


@dataclass(frozen=True, slots=True)
class JobFailure:
    """Flink would have failed the job while it processed the record number `at.records - 1`."""

    at: At
    java_class: str
    message: str


@dataclass(slots=True)
class JobResult:
    """What a live job did. Lists are in the order in which it happened.

    `late` holds (record index, watermark) of the late side output; `watermarks_before` one
    (first record index, watermark) for each change of the window operator's watermark between records.
    """

    firings: list[tuple[At, Firing[int]]] = field(default_factory=list)
    late: list[tuple[int, int]] = field(default_factory=list)
    watermarks_before: list[tuple[int, int]] = field(default_factory=list)
    emissions: list[tuple[At, int]] = field(default_factory=list)
    status_changes: list[tuple[At, bool]] = field(default_factory=list)
    partition_status_changes: list[tuple[At, int, bool]] = field(default_factory=list)
    partition_watermarks: list[int] = field(default_factory=list)
    source_watermark: int = MIN_TIMESTAMP
    watermark: int = MIN_TIMESTAMP
    failure: JobFailure | None = None


class LiveJob:
    """Runs records one at a time through source and window operator.

    The elements of a firing are record indices. A record that `before_watermark` rejects is filtered ahead
    of the generator: it is no activity either.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        assigner: WindowAssigner,
        allowed_lateness: int,
        before_watermark: Callable[[Record], bool] = lambda record: True,
    ) -> None:
        self._before_watermark = before_watermark
        self._source = Source(strategy)
        self._operator: WindowOperator[int] = WindowOperator(assigner, allowed_lateness)
        self.result = JobResult()
        self._consumed = 0
        self._clock = 0

    def run(self, records: list[Record], *, until: int | None = None, flush: bool) -> JobResult:
        """Consume all records, run the timer on to `until` (epoch ms), end the input if `flush`."""
        result = self.result
        for record in records:
            if not self._consume(record):
                self._finish_watermarks()
                return result
        if until is not None:
            self._run_timer(until)
            self._clock = max(self._clock, until)
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
        self._clock = record.arrival
        index = self._consumed
        result = self.result
        before = self._operator.watermark
        if not result.watermarks_before or result.watermarks_before[-1][1] != before:
            result.watermarks_before.append((index, before))
        self._consumed += 1
        if not self._before_watermark(record):
            return True
        try:
            firings, late = self._operator.process(record.key, record.timestamp, index)
        except (MissingTimestampError, MergeTooLateError) as failure:
            result.failure = JobFailure(At(self._consumed, self._clock), failure.java_class, str(failure))
            return False
        result.firings += [(At(self._consumed, self._clock), firing) for firing in firings]
        if late:
            result.late.append((index, before))
        event = Event(record.timestamp, record.arrival, record.marker, record.stream)
        self._handle(self._source.on_event(record.partition, event))
        return True

    def _run_timer(self, until: int) -> None:
        for now, signals in self._source.ticks(until):
            self._clock = now
            self._handle(signals)

    def _handle(self, signals: list[Signal], *, final: bool = False) -> None:
        at = At(self._consumed, self._clock)
        result = self.result
        for signal in signals:
            match signal:
                case WatermarkEmitted(watermark):
                    if not final:
                        result.emissions.append((at, watermark))
                    result.firings += [(at, firing) for firing in self._operator.advance_watermark(watermark)]
                case StreamStatusChanged(idle):
                    result.status_changes.append((at, idle))
                case PartitionStatusChanged(partition, idle):
                    result.partition_status_changes.append((at, partition, idle))
