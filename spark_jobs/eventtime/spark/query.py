"""One Structured Streaming query, run on the micro-batches that its checkpoint records.

    inputs -> filters -> [deduplication] -> groupBy(key, window).agg(...) -> rows by output mode

Each batch runs on the state that the batch before it left. A batch that runs again begins from that state anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from spark_jobs.eventtime.spark.aggregation import Dropped, Given, Input, OutputMode, Row, WindowAggregation
from spark_jobs.eventtime.spark.batches import Batch
from spark_jobs.eventtime.spark.deduplication import Deduplication, DeduplicationKind
from spark_jobs.eventtime.spark.sessions import SessionAggregation
from spark_jobs.eventtime.windows import Window, WindowAssigner

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
