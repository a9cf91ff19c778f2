"""One complete session at a time through the sequential operator, in a Python worker of Spark.

The other half of `spark_jobs.replay.sessions`: the sessions that set operations cannot decide (golden rules 24 to 28).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from spark_jobs.eventtime.operator import Firing, MergeTooLateError, WindowOperator
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, saturating_add, wrapping_add
from spark_jobs.eventtime.windows import Window
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import NEVER, Position
from spark_jobs.replay.windows import PANE

GROUP = "rw_group"
"""The column that names a complete session."""

_BATCH = 65_536


class RowKind(StrEnum):
    """What a row of the result says."""

    MEMBER = "member"
    """The record is in the contents of a firing."""

    LATE = "late"
    """The record entered no window and goes to the late output."""

    FAILURE = "failure"
    """Flink fails the job at this record (rule 28)."""

    UNCLEAR = "unclear"
    """The positions of the session's closes are not known well enough; the whole session has this row alone."""


class SessionRow(NamedTuple):
    """One row of the result, in the order of the columns of `SESSION_ROWS`.

    `start` and `end` are those of the session that fired or, for a late record, of the record's own session (epoch ms).
    `arrival`, `major` and `minor` are the position of the firing or of the failure.
    """

    group: str
    kind: RowKind
    partition: int | None = None
    offset: int | None = None
    start: int | None = None
    end: int | None = None
    pane: int | None = None
    late: bool | None = None
    arrival: int | None = None
    major: int | None = None
    minor: int | None = None


SESSION_ROWS = (
    f"{GROUP} STRING, kind STRING, partition INT, offset BIGINT, {START} BIGINT, {END} BIGINT, {PANE} INT, "
    "late BOOLEAN, f_arrival BIGINT, f_major BIGINT, f_minor BIGINT"
)
ARROW_SCHEMA = pa.schema(
    [
        (GROUP, pa.string()),
        ("kind", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        (START, pa.int64()),
        (END, pa.int64()),
        (PANE, pa.int32()),
        ("late", pa.bool_()),
        ("f_arrival", pa.int64()),
        ("f_major", pa.int64()),
        ("f_minor", pa.int64()),
    ]
)


class Close(NamedTuple):
    """The earliest and the latest position at which the watermark can have reached a value."""

    earliest: Position
    latest: Position


class Member(NamedTuple):
    """One record of a complete session.

    `timestamp` and `end` (epoch ms) are the record's own session, before any merge. `at_end` is the close of its last
    timestamp, `at_cleanup` that of its cleanup time; None without an allowed lateness, where both are the same.
    """

    group: str
    partition: int
    offset: int
    timestamp: int
    end: int
    position: Position
    at_end: Close
    at_cleanup: Close | None


class _Step(NamedTuple):
    """A watermark at which something of the session closes (epoch ms), and where that is."""

    watermark: int
    close: Close


class _OwnSession:
    """Assigns each record its own session, which the caller sets before: gaps can differ by record."""

    is_merging: ClassVar[bool] = True

    def __init__(self) -> None:
        self.window = Window(0, 0)

    def assign(self, timestamp: int) -> Iterator[Window]:
        yield self.window


def replay_groups(
    batches: Iterable[pa.RecordBatch], *, allowed_lateness: int, flush: bool, all_panes: bool
) -> Iterator[pa.RecordBatch]:
    """Run complete sessions through the window operator, each on its own.

    Args:
        batches: One row a record; the rows of a session lie together, in position order. Columns: the group, the
            record's partition, offset, timestamp, own session end and position (three BIGINT), then the earliest and
            the latest close of its end and, with an allowed lateness, of its cleanup time (three BIGINT each).
        allowed_lateness: In ms.
        flush: Whether the end of input fires what is open.
        all_panes: Whether every firing of a window counts, or the last one only.

    Yields:
        Rows of `SESSION_ROWS`.
    """
    members: list[Member] = []
    rows: list[SessionRow] = []
    for batch in batches:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if members and values[0] != members[0].group:
                rows += _replay_group(members, allowed_lateness, flush, all_panes)
                members = []
            members.append(_member(values))
        if len(rows) > _BATCH:
            yield arrow_batch(rows)
            rows = []
    rows += _replay_group(members, allowed_lateness, flush, all_panes)
    yield arrow_batch(rows)


def _member(values: tuple[Any, ...]) -> Member:
    group, partition, offset, timestamp, end = values[:5]
    at_end = Close(Position(*values[8:11]), Position(*values[11:14]))
    at_cleanup = Close(Position(*values[14:17]), Position(*values[17:20])) if len(values) > 14 else None
    return Member(group, partition, offset, timestamp, end, Position(*values[5:8]), at_end, at_cleanup)


def arrow_batch(rows: list[SessionRow]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(ARROW_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _replay_group(members: list[Member], allowed_lateness: int, flush: bool, all_panes: bool) -> list[SessionRow]:
    """One complete session through the window operator; one row `UNCLEAR` where its closes are too vague.

    The watermark matters only where something of this session closes. So the operator is advanced to those values
    alone, each at its close position, and every comparison comes out as in the live job.
    """
    if not members:
        return []
    group = members[0].group
    unclear = [SessionRow(group, RowKind.UNCLEAR)]
    own_session = _OwnSession()
    operator: WindowOperator[int] = WindowOperator(own_session, allowed_lateness)
    firings = _Firings()
    late_rows: list[SessionRow] = []
    steps = _steps(members, allowed_lateness)
    passed = 0
    for index, member in enumerate(members):
        here = member.position
        while passed < len(steps) and steps[passed].close.earliest < here:
            watermark, close = steps[passed]
            if close.latest >= here:
                return unclear
            firings.add(operator.advance_watermark(max(watermark, operator.watermark)), close.earliest)
            passed += 1
        own_session.window = Window(member.timestamp, member.end)
        try:
            fired, is_late = operator.process(None, member.timestamp, index)
        except MergeTooLateError:
            failure = SessionRow(group, RowKind.FAILURE, member.partition, member.offset, None, None, None, None, *here)
            return [*late_rows, failure, *firings.rows(members, all_panes)]
        firings.add(fired, here, late_element=index)
        if is_late:
            own = own_session.window
            late_rows.append(SessionRow(group, RowKind.LATE, member.partition, member.offset, own.start, own.end))
    for watermark, close in steps[passed:]:
        if close.latest.arrival == NEVER and not flush:
            return unclear
        firings.add(operator.advance_watermark(max(watermark, operator.watermark)), close.earliest)
    if flush:
        firings.add(operator.advance_watermark(MAX_TIMESTAMP), Position(NEVER, NEVER, NEVER))
    return [*late_rows, *firings.rows(members, all_panes)]


def _steps(members: list[Member], allowed_lateness: int) -> list[_Step]:
    """The watermarks at which something of the session closes, ascending. The later one, the later its close."""
    closes: dict[int, Close] = {}
    for member in members:
        last = member.end - 1
        closes[last] = member.at_end
        if member.at_cleanup is not None:
            # The lateness "forever" wraps around where a merge is checked, as in Flink.
            add = wrapping_add if allowed_lateness == MAX_TIMESTAMP else saturating_add
            closes[add(last, allowed_lateness)] = member.at_cleanup
    return [_Step(x, close) for x, close in sorted(closes.items()) if close.earliest.arrival != NEVER]


class _Firings:
    """The firings of one complete session, by window and pane."""

    def __init__(self) -> None:
        self._fired: dict[tuple[Window, int], tuple[tuple[int, ...], Position]] = {}
        self._late_elements: defaultdict[Window, set[int]] = defaultdict(set)

    def add(self, firings: Iterable[Firing[int]], position: Position, late_element: int | None = None) -> None:
        """Add what fired at `position`; `late_element`: the element that fired it, where no watermark did."""
        for firing in firings:
            self._fired[firing.window, firing.pane] = (firing.elements, position)
            if late_element is not None:
                self._late_elements[firing.window].add(late_element)

    def rows(self, members: list[Member], all_panes: bool) -> list[SessionRow]:
        """One row for each record of each firing; of the last pane of each window, or of all."""
        last_pane: dict[Window, int] = {}
        for window, pane in self._fired:
            last_pane[window] = max(pane, last_pane.get(window, 0))
        rows: list[SessionRow] = []
        for (window, pane), (elements, position) in self._fired.items():
            if not all_panes and pane != last_pane[window]:
                continue
            late = self._late_elements.get(window, set())
            for index in elements:
                member = members[index]
                rows.append(
                    SessionRow(
                        member.group,
                        RowKind.MEMBER,
                        member.partition,
                        member.offset,
                        window.start,
                        window.end,
                        pane,
                        index in late,
                        *position,
                    )
                )
        return rows
