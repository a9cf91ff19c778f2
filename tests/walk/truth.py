"""What a live job makes of records: by the sequential operator, one record at a time, without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_jobs.eventtime.durations import SECOND
from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.lateness import is_window_late
from spark_jobs.eventtime.flink.operator import Firing, WindowOperator
from spark_jobs.eventtime.flink.signals import Signal, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import BoundedOutOfOrderness
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batch, BatchKind
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import SessionWindows, SlidingWindows, TumblingWindows, Window, WindowAssigner
from tests.runs.small_runs import T0
from tests.sequential.flink import FirstByProcessingTime
from tests.sequential.spark import BatchSettings, Query, ReadRecord, RunningQuery
from tests.walk.log import Place, Record
from tests.walk.plan import Shape

MINUTE = 60 * SECOND
BOUND, GAP, LATENESS, TICK = 10 * SECOND, 20 * SECOND, 30 * SECOND, 5 * SECOND

Cell = tuple[str | None, int, int]
"""A key, and a window's start and end (epoch ms)."""
Value = tuple[int, int | None]
"""Count, and sum of the values (None: all of them are null)."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The records of a window by what became of them."""

    on_time: int = 0
    late: int = 0
    dropped: int = 0
    not_counted: int = 0

    @property
    def all(self) -> int:
        """All that the window has ever had."""
        return self.on_time + self.late + self.dropped + self.not_counted


@dataclass(slots=True)
class Truth:
    """What a live job made of records.

    `faithful` and `complete` are by window. `counted`: windows that lie on a grid have it. `late`: by place, how many
    windows a record came too late for. `closed`: the position (arrival, partition, offset) after which a window's value
    was final, or that of "never".
    """

    faithful: dict[Cell, Value] = field(default_factory=dict[Cell, Value])
    complete: dict[Cell, Value] = field(default_factory=dict[Cell, Value])
    counted: dict[Cell, Counted] = field(default_factory=dict[Cell, Counted])
    late: dict[Place, int] = field(default_factory=dict[Place, int])
    watermarks: list[tuple[tuple[int, int, int], int]] = field(default_factory=list[tuple[tuple[int, int, int], int]])
    pairs: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    def closed(self, end: int, lateness: int) -> tuple[int, int, int]:
        """The position after which a window that ends at `end` was final; above all others where it never was."""
        return next((at for at, mark in self.watermarks if mark >= end - 1 + lateness), (MAX_TIMESTAMP, 0, 0))


def assigner_of(shape: Shape) -> WindowAssigner:
    match shape:
        case Shape.SLIDING:
            return SlidingWindows(2 * MINUTE, MINUTE)
        case Shape.SESSION:
            return SessionWindows(GAP)
        case _:
            return TumblingWindows(MINUTE)


def lateness_of(shape: Shape) -> int:
    """The allowed lateness (ms)."""
    return LATENESS if shape is Shape.SLIDING else 0


def key_of(record: Record, shape: Shape, regions: Mapping[str, str]) -> str | None:
    """What the record counts for; None: the table of regions does not have its key."""
    return regions.get(record.key) if shape is Shape.LOOKUP else record.key


def truth_of(records: Sequence[Record], shape: Shape, regions: Mapping[str, str], *, periodic: bool = False) -> Truth:
    """What the job makes of `records`, which are in the order of positions, and of the end of its input.

    `periodic`: its watermarks come at the ticks of a timer.
    """
    job = _Job(shape, regions, periodic)
    for record in records:
        job.take(record)
    job.end()
    return job.truth


def truth_of_query(records: Sequence[Record], batches: Sequence[int]) -> Truth:
    """What a Structured Streaming query gives by tumbling windows, whose batches have read up to these numbers."""
    truth = Truth(complete=_complete(records, Shape.TUMBLING, {}))
    query: RunningQuery[Record] = RunningQuery(Query(TumblingWindows(MINUTE), OutputMode.APPEND))
    begin, before, watermark = 0, 0, 0
    for number, end in enumerate(batches):
        read = [r for r in records if begin <= r.number < end]
        batch = Batch(number, BatchKind.COMMITTED, 0, watermark, before)
        result = query.run(batch, [ReadRecord(r.key, r.time, r) for r in read], BatchSettings())
        for row in result.rows:
            truth.faithful[row.key, row.window.start, row.window.end] = value_of(row.elements)  # pyright: ignore[reportArgumentType]
        truth.late |= {dropped.element.place: 1 for dropped in result.dropped if dropped.element.place is not None}
        begin, before = end, watermark
        watermark = max([watermark, *(r.time - BOUND for r in read)])
    return truth


class _Job:
    """A live job; `truth` is whole when it has ended."""

    def __init__(self, shape: Shape, regions: Mapping[str, str], periodic: bool) -> None:
        self.truth = Truth()
        self._shape, self._regions = shape, regions
        self._assigner, self._lateness = assigner_of(shape), lateness_of(shape)
        timer = {"per_event": False, "interval": TICK, "timer_start": T0} if periodic else {}
        self._source = Source(WatermarkStrategy(BoundedOutOfOrderness(BOUND), (0, 1), ((0, 1),), **timer))
        self._operator: WindowOperator[Record] = WindowOperator(self._assigner, self._lateness)
        self._first = FirstByProcessingTime(None)
        self._entered: list[Record] = []

    def take(self, record: Record) -> None:
        for tick in self._source.ticks(record.arrival):
            self._handle(tick.signals, (tick.time, -1, -1))
        if self._shape is not Shape.DEDUPLICATE or self._first.takes(record.id, record.arrival):
            self._enter(record)
        position = (record.arrival, record.partition or 0, record.offset or 0)
        self._handle(self._source.on_event(record.partition or 0, _event(record)), position)

    def _enter(self, record: Record) -> None:
        assert record.place is not None
        self._entered.append(record)
        watermark, key = self._operator.watermark, key_of(record, self._shape, self._regions)
        if self._assigner.is_merging:
            missed = 0
        else:
            windows = list(self._assigner.assign(record.time))
            missed = sum(is_window_late(window, self._lateness, watermark) for window in windows)
            for window in windows:
                self._count((key, window.start, window.end), window, watermark)
        processed = self._operator.process(key, record.time, record)
        self._fired(processed.firings)
        if missed or (self._assigner.is_merging and processed.is_late):
            self.truth.late[record.place] = max(missed, 1)

    def _count(self, cell: Cell, window: Window, watermark: int) -> None:
        was = self.truth.counted.get(cell, Counted())
        if window.max_timestamp > watermark:
            now = Counted(was.on_time + 1, was.late, was.dropped)
        elif is_window_late(window, self._lateness, watermark):
            now = Counted(was.on_time, was.late, was.dropped + 1)
        else:
            now = Counted(was.on_time, was.late + 1, was.dropped)
        self.truth.counted[cell] = now
        self.truth.pairs[cell[1:]] = self.truth.pairs.get(cell[1:], 0) + 1

    def _handle(self, signals: Sequence[Signal], position: tuple[int, int, int] | None) -> None:
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                if position is not None:
                    self.truth.watermarks.append((position, signal.watermark))
                self._fired(self._operator.advance_watermark(signal.watermark))

    def _fired(self, firings: Sequence[Firing[Record]] | Iterator[Firing[Record]]) -> None:
        for firing in firings:
            cell = (firing.key, firing.window.start, firing.window.end)
            self.truth.faithful[cell] = value_of(firing.elements)  # pyright: ignore[reportArgumentType]

    def end(self) -> None:
        self._handle(self._source.end_of_input(), None)
        self.truth.complete = _complete(self._entered, self._shape, self._regions)


def value_of(records: Sequence[Record]) -> Value:
    """The count of records and the sum of their values."""
    values = [r.value for r in records if r.value is not None]
    return len(records), sum(values) if values else None


def _event(record: Record) -> Event:
    return Event(record.time, record.arrival, False, None)


def _complete(records: Sequence[Record], shape: Shape, regions: Mapping[str, str]) -> dict[Cell, Value]:
    """The windows where nothing is late."""
    assigner = assigner_of(shape)
    found: dict[Cell, list[Record]] = defaultdict(list)
    if not assigner.is_merging:
        for record in records:
            for window in assigner.assign(record.time):
                found[key_of(record, shape, regions), window.start, window.end].append(record)
        return {cell: value_of(rs) for cell, rs in found.items()}
    last: dict[str | None, Cell] = {}
    for record in sorted(records, key=lambda r: r.time):
        key = key_of(record, shape, regions)
        cell = last.get(key)
        if cell is None or record.time > cell[2]:
            found[cell := (key, record.time, record.time + GAP)] = []
        others = found.pop(cell)
        last[key] = (key, cell[1], record.time + GAP)
        found[last[key]] = [*others, record]
    return {cell: value_of(rs) for cell, rs in found.items()}
