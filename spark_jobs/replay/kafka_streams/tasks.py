"""One partition of a topic at a time through the sequential model, in a Python worker of Spark.

For what needs the order of a whole partition: sliding windows, restarts, rows of the emit strategy, every single row.

`FinalRows` keeps what each window of one task has come to: the last row that came out of it, or that it is still open.
"""

from __future__ import annotations

import json
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

from spark_jobs.eventtime.kafka_streams.contents import Aggregate
from spark_jobs.eventtime.kafka_streams.store import UNKNOWN
from spark_jobs.eventtime.kafka_streams.task import Emission, Processed, Row, StoreState, Task, Topology
from spark_jobs.eventtime.kafka_streams.windows import HoppingWindows, StreamsWindow
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION
from spark_jobs.replay.kafka_streams.task_states import StateKeeper, TaskPoint


class Place(NamedTuple):
    """The record whose processing gave a row."""

    arrival: int
    offset: int


class _Window(NamedTuple):
    key: bytes
    times: StreamsWindow


@dataclass(slots=True)
class _Entry:
    least: int
    held: Aggregate[int] | None = None
    row: Row[int] | None = None
    place: Place | None = None
    rows: int = 0


class Final(NamedTuple):
    """One window at the end: its last row and where it came out; None: nothing has come out of it.

    `least`: the lowest offset of the records that it has held. `held`: what it holds. `rows`: how many rows came out.
    `is_lost`: the emit strategy looked for it, and the store did not find it any more.
    """

    key: bytes
    window: StreamsWindow
    least: int
    held: Aggregate[int] | None
    row: Row[int] | None
    place: Place | None
    rows: int
    is_lost: bool


class FinalRows:
    """The windows of one task. Those that cannot change any more are let out on the way, so that few are held.

    `is_settling`: no restart is ahead that may still bring old windows back.
    """

    def __init__(self, topology: Topology, task: Task[int], *, is_settling: bool) -> None:
        retention = topology.store_retention
        self._each_update = topology.emission is Emission.EACH_UPDATE
        self._task = task
        self._held = topology.wait + retention.period + 2 * retention.segment
        self._windows: dict[_Window, _Entry] = {}
        self._next_sweep = 0
        self.is_settling = is_settling

    def add(self, processed: Processed[int], place: Place) -> None:
        """Take in what one record caused."""
        for change in processed.changes:
            if change.aggregate is not None:
                entry, least = self._entry(change, place), change.aggregate.contents.least
                entry.least = entry.least if least is None else min(entry.least, least)
                entry.held = change.aggregate
            elif self._each_update or not self._entry_rows(change):
                self._windows.pop(_window(change), None)
        for row in processed.rows:
            if row.aggregate is not None:
                entry = self._entry(row, place)
                entry.row, entry.place, entry.rows = row, place, entry.rows + 1

    def lose(self) -> None:
        """The task lost its state: what had not come out never will."""
        self._windows = {window: entry for window, entry in self._windows.items() if entry.rows}

    def settled(self) -> Iterator[Final]:
        """The windows that stream time has left so far behind that the store has deleted them; from time to time."""
        time = self._task.stream_time
        if not self.is_settling or time < self._next_sweep:
            return
        self._next_sweep = time + self._held
        for window in [w for w in self._windows if w.times.end < self.undecided_from]:
            yield self._final(window, self._windows.pop(window))

    @property
    def undecided_from(self) -> int:
        """The store has deleted the windows that end before (epoch ms)."""
        return self._task.stream_time - self._held

    def rest(self) -> Iterator[Final]:
        """All that are left at the end of the log."""
        for window, entry in self._windows.items():
            yield self._final(window, entry)

    def _entry(self, row: Row[int], place: Place) -> _Entry:
        return self._windows.setdefault(_window(row), _Entry(place.offset))

    def _entry_rows(self, change: Row[int]) -> int:
        entry = self._windows.get(_window(change))
        return 0 if entry is None else entry.rows

    def _final(self, window: _Window, entry: _Entry) -> Final:
        is_deleted = self.is_settling and window.times.end < self.undecided_from
        is_lost = entry.row is None and (is_deleted or self._task.has_looked_past(window.times))
        return Final(window.key, window.times, entry.least, entry.held, entry.row, entry.place, entry.rows, is_lost)


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
    """What a window has come to; where nothing has come out of it, `members` is what it holds."""

    LATE = "late"
    """A pair of record and window that was dropped."""

    IGNORED = "ignored"
    """The record did not reach the aggregation."""

    STATE = "state"
    """What the task has come to at the end: `reason` is a `TaskState` as JSON."""


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


class Order(StrEnum):
    """What one task reads, and in which order."""

    LOG = "log"
    """A partition, by offset: what the live application did."""

    TIME = "time"
    """One key of a partition, by event time: what is true now, since nothing is late then."""


@dataclass(frozen=True, slots=True)
class Resumed:
    """Tasks that go on from an earlier run: from which point of each partition.

    `end`: of windows that end before (epoch ms) not all records are read, and they are left out.
    """

    points: Mapping[int, TaskPoint]
    end: int


def run_tasks(
    records: DataFrame,
    topology: Topology,
    restarts: Restarts,
    *,
    of_all: Sequence[TaskRestart] = (),
    finals: bool = False,
    order: Order = Order.LOG,
    resumed: Resumed | None = None,
) -> DataFrame:
    """What the tasks give, drop and ignore: `TASK_ROWS`, in no order.

    Args:
        records: Canonical records with `rw_key` and `rw_has_value`; those without an event time are left out.
        topology: The aggregation.
        restarts: Of each partition's task; by `Order.TIME` there are none.
        of_all: Restarts of all tasks at once.
        finals: One row for each window at the end, in place of every row; by `Order.LOG` the tasks' states too.
        order: What a task reads.
        resumed: Where the tasks go on from; the records begin at its points. Late pairs whose window closed before that
            have no `missed_by`.
    """
    columns: list[Column] = [F.col(c) for c in (PARTITION, OFFSET, ARRIVAL, KEY, EVENT_TIME, HAS_VALUE)]
    read = records.where(F.col(EVENT_TIME).isNotNull()).select(*columns)
    by = [PARTITION] if order is Order.LOG else [PARTITION, KEY]
    within = [OFFSET] if order is Order.LOG else [EVENT_TIME, OFFSET]
    ordered = read.repartition(*by).sortWithinPartitions(*by, *within)
    given = {partition: tuple(of_task) for partition, of_task in restarts.items()}
    everywhere = tuple(of_all)
    states = finals and order is Order.LOG
    task_of = attrgetter("partition") if order is Order.LOG else attrgetter("partition", "key")

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows: list[TaskRow] = []
        for _, reads in groupby(_reads(batches), key=task_of):
            for row in run_task(reads, topology, given, everywhere, finals=finals, states=states, resumed=resumed):
                rows.append(row)
                if len(rows) >= _BATCH:
                    yield _arrow_batch(rows)
                    rows = []
        yield _arrow_batch(rows)

    return ordered.mapInArrow(run, TASK_ROWS)


def _reads(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskRead]:
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield TaskRead(*values)


class TaskRead(NamedTuple):
    """One record, as a task reads it."""

    partition: int
    offset: int
    arrival: int
    key: bytes | None
    timestamp: int
    has_value: bool


def run_task(
    reads: Iterator[TaskRead],
    topology: Topology,
    of_tasks: Restarts,
    of_all: Sequence[TaskRestart] = (),
    *,
    finals: bool,
    states: bool = False,
    resumed: Resumed | None = None,
) -> Iterator[TaskRow]:
    """What one task gives; see `run_tasks`. `states`: with `finals`, the state at the end too."""
    first = next(reads)
    every = [*of_tasks.get(first.partition, ()), *of_all]
    point = None if resumed is None else resumed.points.get(first.partition)
    ahead = {n: one for n, one in enumerate(every) if point is None or n not in point.restarted}
    task = Task[int](topology, restorable=any(restart.state is StoreState.RESTORED for restart in ahead.values()))
    closes = Closes(topology)
    life_from = first.offset
    if point is not None:
        task.move_to(point.times)
        life_from = point.life_from
        closes.begin_late(task.stream_time)
    windows = FinalRows(topology, task, is_settling=not ahead) if finals else None
    keeper = StateKeeper(topology)
    number = 0
    last = first

    def here(offset: int) -> TaskPoint:
        return TaskPoint(offset, life_from, task.times, tuple(n for n in range(len(every)) if n not in ahead))

    def told(final: Final) -> Iterator[TaskRow]:
        row = _final(first.partition, final)
        if resumed is None or row.end is None or row.end >= resumed.end:
            if states:
                keeper.holds(final.window.end, final.least)
            yield row

    for read in chain((first,), reads):
        for n in [n for n, restart in ahead.items() if restart.is_before(read.offset, read.arrival)]:
            _restart(task, windows, ahead.pop(n))
            closes, life_from = Closes(topology), read.offset
        if windows is not None:
            windows.is_settling = not ahead
            if states and keeper.is_due():
                keeper.add(here(read.offset))
        processed = task.process(read.key, read.timestamp, read.offset, has_value=read.has_value, clock=read.arrival)
        closes.add(task.stream_time, read.arrival)
        last = read
        for row in _dropped(processed, read, closes):
            yield row._replace(number=number)
            number += 1
        if windows is not None:
            windows.add(processed, Place(read.arrival, read.offset))
            yield from chain.from_iterable(map(told, windows.settled()))
            continue
        for row in processed.rows:
            yield _row(Kind.WITHDRAWN if row.aggregate is None else Kind.EMITTED, read, row)._replace(number=number)
            number += 1
    for restart in ahead.values():
        _restart(task, windows, restart)
    if windows is not None:
        yield from chain.from_iterable(map(told, windows.rest()))
        if states:
            state = keeper.state(windows.undecided_from, here(last.offset + 1), is_past_restarts=not ahead)
            yield TaskRow(Kind.STATE, first.partition, last.offset, number, reason=json.dumps(state.to_json()))
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

    def begin_late(self, stream_time: int) -> None:
        """The task has come this far already: when it passed earlier times is not known."""
        if stream_time != UNKNOWN:
            self._times.append(stream_time)
            self._arrivals.append(NEVER)

    def add(self, stream_time: int, arrival: int) -> None:
        """A record has been read."""
        if not self._times or self._ends_passed(stream_time) > self._ends_passed(self._times[-1]):
            self._times.append(stream_time)
            self._arrivals.append(arrival)

    def _ends_passed(self, stream_time: int) -> int:
        return (stream_time - self._wait - self._first_end) // self._step

    def since(self, end: int, arrival: int) -> int | None:
        """How long (ms) before `arrival` a window with this end was first too old; None: it is not known."""
        at = bisect_left(self._times, end + self._wait)
        return None if at == len(self._times) or self._arrivals[at] == NEVER else arrival - self._arrivals[at]


def _dropped(processed: Processed[int], read: TaskRead, closes: Closes) -> Iterator[TaskRow]:
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


def _row(kind: Kind, read: TaskRead, row: Row[int]) -> TaskRow:
    members = None if row.aggregate is None else row.aggregate.contents.elements()
    times = _times(row.window)
    return TaskRow(kind, read.partition, read.offset, 0, row.key, *times, timestamp=row.timestamp, members=members)


def _final(partition: int, final: Final) -> TaskRow:
    row, place = final.row, final.place
    out = final.held if row is None else row.aggregate
    return TaskRow(
        Kind.FINAL,
        partition,
        UNKNOWN if place is None else place.offset,
        0,
        final.key,
        *_times(final.window),
        timestamp=None if row is None else row.timestamp,
        reason="lost" if final.is_lost else None,
        members=[final.least] if out is None else out.contents.elements(),
        arrival=None if place is None else place.arrival,
        rows=final.rows,
    )


def _times(window: StreamsWindow) -> tuple[int, int]:
    return window.start, window.end


def _arrow_batch(rows: list[TaskRow]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(_ARROW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)
