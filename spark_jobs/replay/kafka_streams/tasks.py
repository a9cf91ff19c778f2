"""One partition of a topic at a time through the sequential model, in a Python worker of Spark.

For what needs the order of a whole partition: sliding windows, restarts, rows of the emit strategy, every single row.

`FinalRows` keeps what each window of one task has come to: the last row that came out of it, or that it is still open.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, groupby
from operator import attrgetter
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.kafka_streams.store import UNKNOWN
from spark_jobs.eventtime.kafka_streams.task import Emission, Processed, Row, StoreState, Task, Topology
from spark_jobs.eventtime.kafka_streams.windows import HoppingWindows, StreamsWindow
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION


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


KEY = "rw_key"
"""The record's key in bytes; null: no key."""
HAS_VALUE = "rw_has_value"
"""Whether the record has a value."""

_BATCH = 32_768


@dataclass(frozen=True, slots=True)
class TaskRestart:
    """A task begins anew before the first record with this offset or a later one, or at this instant (epoch ms)."""

    state: StoreState = StoreState.LOCAL
    offset: int | None = None
    instant: int | None = None

    def is_before(self, offset: int, arrival: int) -> bool:
        """Whether the task had begun anew when it read this record."""
        if self.offset is not None:
            return offset >= self.offset
        return self.instant is None or arrival >= self.instant


Restarts = Mapping[int, Sequence[TaskRestart]]
"""The restarts of each partition's task, in their order."""


class Kind(StrEnum):
    """What a row of the result says."""

    EMITTED = "emitted"
    """A row that came out."""

    WITHDRAWN = "withdrawn"
    """A row that withdraws what came out for a session before."""

    WAITING = "waiting"
    """The suppression still holds this row at the end."""

    FINAL = "final"
    """What a window has come to; where nothing has come out of it, `members` is one record that is in it."""

    LATE = "late"
    """A pair of record and window that was dropped."""

    IGNORED = "ignored"
    """The record did not reach the aggregation."""


class TaskRow(NamedTuple):
    """One row of the result, in the order of the columns of `TASK_ROWS`.

    `offset` and `arrival` are those of the record whose processing gave the row. `number` orders the rows of a
    partition. `members` are the offsets of the records that the window holds. `reason`: why a record was ignored, or
    `lost` for a window that the store did not find when it closed. `missed_by`: from the close of a late pair's window
    to the record (ms). `entered`: whether the late record is in another window. `rows`: how many rows have come out of
    a final window.
    """

    kind: Kind
    partition: int
    offset: int
    number: int
    key: bytes | None = None
    start: int | None = None
    end: int | None = None
    timestamp: int | None = None
    close_time: int | None = None
    stream_time: int | None = None
    reason: str | None = None
    members: list[int] | None = None
    arrival: int | None = None
    missed_by: int | None = None
    entered: bool | None = None
    rows: int | None = None


TASK_ROWS = (
    f"kind STRING, {PARTITION} INT, {OFFSET} BIGINT, number BIGINT, {KEY} BINARY, {START} BIGINT, {END} BIGINT, "
    "timestamp BIGINT, close_time BIGINT, stream_time BIGINT, reason STRING, members ARRAY<BIGINT>, arrival BIGINT, "
    "missed_by BIGINT, entered BOOLEAN, rows INT"
)
_ARROW_SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        (PARTITION, pa.int32()),
        (OFFSET, pa.int64()),
        ("number", pa.int64()),
        (KEY, pa.binary()),
        (START, pa.int64()),
        (END, pa.int64()),
        ("timestamp", pa.int64()),
        ("close_time", pa.int64()),
        ("stream_time", pa.int64()),
        ("reason", pa.string()),
        ("members", pa.list_(pa.int64())),
        ("arrival", pa.int64()),
        ("missed_by", pa.int64()),
        ("entered", pa.bool_()),
        ("rows", pa.int32()),
    ]
)


class _Read(NamedTuple):
    partition: int
    offset: int
    arrival: int
    key: bytes | None
    timestamp: int
    has_value: bool


class Order(StrEnum):
    """What one task reads, and in which order."""

    LOG = "log"
    """A partition, by offset: what the live application did."""

    TIME = "time"
    """One key of a partition, by event time: what is true now, since nothing is late then."""


def run_tasks(
    records: DataFrame,
    topology: Topology,
    restarts: Restarts,
    *,
    of_all: Sequence[TaskRestart] = (),
    finals: bool = False,
    order: Order = Order.LOG,
) -> DataFrame:
    """What the tasks give, drop and ignore: `TASK_ROWS`, in no order.

    Args:
        records: Canonical records with `rw_key` and `rw_has_value`; those without an event time are left out.
        topology: The aggregation.
        restarts: Of each partition's task; by `Order.TIME` there are none.
        of_all: Restarts of all tasks at once.
        finals: One row for each window at the end, in place of every row.
        order: What a task reads.
    """
    columns: list[Column] = [F.col(c) for c in (PARTITION, OFFSET, ARRIVAL, KEY, EVENT_TIME, HAS_VALUE)]
    read = records.where(F.col(EVENT_TIME).isNotNull()).select(*columns)
    by = [PARTITION] if order is Order.LOG else [PARTITION, KEY]
    within = [OFFSET] if order is Order.LOG else [EVENT_TIME, OFFSET]
    ordered = read.repartition(*by).sortWithinPartitions(*by, *within)
    given = {partition: tuple(of_task) for partition, of_task in restarts.items()}
    everywhere = tuple(of_all)
    task_of = attrgetter("partition") if order is Order.LOG else attrgetter("partition", "key")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[TaskRow] = []
        for _, reads in groupby(_reads(batches), key=task_of):
            for row in _run_task(reads, topology, given, everywhere, finals=finals):
                rows.append(row)
                if len(rows) >= _BATCH:
                    yield _arrow_batch(rows)
                    rows = []
        yield _arrow_batch(rows)

    return ordered.mapInArrow(run, TASK_ROWS)


def _reads(batches: Iterable[pa.RecordBatch]) -> Iterator[_Read]:
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield _Read(*values)


def _run_task(
    reads: Iterator[_Read], topology: Topology, of_tasks: Restarts, of_all: Sequence[TaskRestart], *, finals: bool
) -> Iterator[TaskRow]:
    first = next(reads)
    ahead = [*of_tasks.get(first.partition, ()), *of_all]
    task = Task[int](topology, restorable=any(restart.state is StoreState.RESTORED for restart in ahead))
    windows = FinalRows(topology, task, changes_late=bool(ahead)) if finals else None
    closes = Closes(topology)
    number = 0
    last = first
    for read in chain((first,), reads):
        for restart in [restart for restart in ahead if restart.is_before(read.offset, read.arrival)]:
            ahead.remove(restart)
            _restart(task, windows, restart)
            closes = Closes(topology)
        processed = task.process(read.key, read.timestamp, read.offset, has_value=read.has_value, clock=read.arrival)
        closes.add(task.stream_time, read.arrival)
        last = read
        for row in _dropped(processed, read, closes):
            yield row._replace(number=number)
            number += 1
        if windows is not None:
            windows.add(processed, Place(read.arrival, read.offset))
            yield from (_final(read.partition, final) for final in windows.settled())
            continue
        for row in processed.rows:
            yield _row(Kind.WITHDRAWN if row.aggregate is None else Kind.EMITTED, read, row)._replace(number=number)
            number += 1
    for restart in ahead:
        _restart(task, windows, restart)
    if windows is not None:
        yield from (_final(last.partition, final) for final in windows.rest())
        return
    for row in task.waiting():
        yield _row(Kind.WAITING, last, row)._replace(number=number)
        number += 1


def _restart(task: Task[int], windows: FinalRows | None, restart: TaskRestart) -> None:
    task.restart(restart.state)
    if windows is not None and restart.state is StoreState.LOST:
        windows.lose()


class Closes:
    """When stream time has passed what, since the task began.

    Of the steps of stream time those are kept that pass the end of a window, 16 bytes each: of hopping windows at most
    one for each advance, of sliding windows and sessions, which can end at any millisecond, each.
    """

    def __init__(self, topology: Topology) -> None:
        windows = topology.windows
        if isinstance(windows, HoppingWindows):
            self._wait, self._first_end, self._step = topology.wait, windows.size, windows.advance
        else:
            self._wait, self._first_end, self._step = topology.wait + 1, 0, 1
        self._times, self._arrivals = array("q"), array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, stream_time: int, arrival: int) -> None:
        """A record has been read."""
        if not self._times or self._ends_passed(stream_time) > self._ends_passed(self._times[-1]):
            self._times.append(stream_time)
            self._arrivals.append(arrival)

    def _ends_passed(self, stream_time: int) -> int:
        return (stream_time - self._wait - self._first_end) // self._step

    def since(self, end: int, arrival: int) -> int | None:
        """How long (ms) before `arrival` a window with this end was first too old; None: before the task began."""
        at = bisect_left(self._times, end + self._wait)
        return arrival - self._arrivals[at] if at < len(self._times) else None


def _dropped(processed: Processed[int], read: _Read, closes: Closes) -> Iterator[TaskRow]:
    if processed.ignored is not None:
        yield TaskRow(Kind.IGNORED, read.partition, read.offset, 0, read.key, reason=str(processed.ignored))
    for window, close_time, stream_time in processed.late:
        yield TaskRow(
            Kind.LATE,
            read.partition,
            read.offset,
            0,
            read.key,
            *_times(window),
            close_time=close_time,
            stream_time=stream_time,
            arrival=read.arrival,
            missed_by=closes.since(window.end, read.arrival),
            entered=bool(processed.changes),
        )


def _row(kind: Kind, read: _Read, row: Row[int]) -> TaskRow:
    members = None if row.aggregate is None else row.aggregate.contents.elements()
    times = _times(row.window)
    return TaskRow(kind, read.partition, read.offset, 0, row.key, *times, timestamp=row.timestamp, members=members)


def _final(partition: int, final: Final) -> TaskRow:
    row, place = final.row, final.place
    return TaskRow(
        Kind.FINAL,
        partition,
        UNKNOWN if place is None else place.offset,
        0,
        final.key,
        *_times(final.window),
        timestamp=None if row is None else row.timestamp,
        reason="lost" if final.is_lost else None,
        members=[final.first] if row is None or row.aggregate is None else row.aggregate.contents.elements(),
        arrival=None if place is None else place.arrival,
        rows=final.rows,
    )


def _times(window: StreamsWindow) -> tuple[int, int]:
    return window.start, window.end


def _arrow_batch(rows: list[TaskRow]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(_ARROW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
