"""Complete sessions through the live job's rules, in a Python worker of Spark.

The other half of `spark_jobs.replay.sessions`: the sessions that set operations cannot decide (golden rules 24 to 28).
Where nothing is allowed late, most of them are split as arrays (`spark_jobs.replay.session_splits`); the others go
through the sequential operator here, one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa

from spark_jobs.eventtime.flink.operator import Firing, MergeTooLateError, WindowOperator
from spark_jobs.eventtime.flink.wall_clock import WallClockWindow, disorder
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, saturating_add, wrapping_add
from spark_jobs.eventtime.windows import Window
from spark_jobs.replay.columns import NEVER, Position
from spark_jobs.replay.session_members import OUTCOMES, Members, RowKind, arrow_batch, whole_sessions
from spark_jobs.replay.session_splits import can_split, split


class _Outcome(NamedTuple):
    """What became of a member; the columns of `OUTCOMES`."""

    member: int
    kind: RowKind
    start: int | None = None
    end: int | None = None
    pane: int | None = None
    late: bool | None = None
    arrival: int | None = None
    major: int | None = None
    minor: int | None = None


class _Close(NamedTuple):
    """The earliest and the latest position at which the watermark can have reached a value."""

    earliest: Position
    latest: Position


class _Member(NamedTuple):
    """One of `Members`.

    `at_end` is the close of its last timestamp, `at_cleanup` that of its cleanup time; None without an allowed
    lateness, where both are the same.
    """

    number: int
    own: Window
    position: Position
    at_end: _Close
    at_cleanup: _Close | None


class _Step(NamedTuple):
    """A watermark at which something of the session closes (epoch ms), and where that is."""

    watermark: int
    close: _Close


class _OwnSession:
    """Assigns each member its own session, which the caller sets before: gaps can differ by record."""

    is_merging: ClassVar[bool] = True

    def __init__(self) -> None:
        self.window = Window(0, 0)

    def assign(self, timestamp: int) -> Iterator[Window]:
        yield self.window


def replay_groups(
    batches: Iterable[pa.RecordBatch],
    *,
    allowed_lateness: int,
    flush: bool,
    all_panes: bool,
    zone: ZoneInfo | None = None,
) -> Iterator[pa.RecordBatch]:
    """What the live job made of complete sessions.

    Args:
        batches: One row a record; the rows of a session lie together, in position order. Columns: the group, the
            record's partition, offset, timestamp, own session end and position (three BIGINT), the earliest and the
            latest close of its end and, with an allowed lateness, of its cleanup time (three BIGINT each), and whether
            it may have been behind the watermark; where not, it surely was not.
        allowed_lateness: In ms.
        flush: Whether the end of input fires what is open.
        all_panes: Whether every firing of a window counts, or the last one only.
        zone: In whose wall clock's time the sessions lie; None: they lie where their instants are.

    Yields:
        Rows of `SESSION_ROWS`.
    """
    splits_at_all = allowed_lateness == 0 and (zone is None or not disorder(zone))
    # With the lateness "forever" Flink fails at merges (rule 28), so that it matters which records merge.
    for members in whole_sessions(batches, told_apart=allowed_lateness == MAX_TIMESTAMP):
        splits = can_split(members) if splits_at_all else np.zeros(len(members), dtype=bool)
        if splits.any():
            some = members.where(splits)
            yield from some.rows(split(some, flush))
        if not splits.all():
            some = members.where(~splits)
            yield from some.rows(_operated(some, allowed_lateness, flush, all_panes, zone))


def _operated(
    members: Members, allowed_lateness: int, flush: bool, all_panes: bool, zone: ZoneInfo | None
) -> pa.RecordBatch:
    """The outcomes of whole sessions, one session after another."""
    found: list[_Outcome] = []
    rows = zip(
        *(column.tolist() for column in (members.ts, members.end, members.position, members.closes)), strict=True
    )
    taken = [_member(number, *values, zone=zone) for number, values in enumerate(rows)]
    firsts = [*np.flatnonzero(np.diff(members.numbered(), prepend=-1)).tolist(), len(taken)]
    for first, behind in pairwise(firsts):
        found += _replay_group(taken[first:behind], allowed_lateness, flush, all_panes)
    return arrow_batch(found, OUTCOMES)


def _member(
    number: int, start: int, end: int, position: list[int], closes: list[list[int]], *, zone: ZoneInfo | None
) -> _Member:
    own = Window(start, end) if zone is None else WallClockWindow(start, end, zone)
    bounds = [Position(*bound) for bound in closes]
    at_cleanup = _Close(bounds[2], bounds[3]) if len(bounds) > 2 else None
    return _Member(number, own, Position(*position), _Close(bounds[0], bounds[1]), at_cleanup)


def _replay_group(members: list[_Member], allowed_lateness: int, flush: bool, all_panes: bool) -> list[_Outcome]:
    """One complete session through the window operator; one row `UNCLEAR` where its closes are too vague.

    The watermark matters only where something of this session closes. So the operator is advanced to those values
    alone, each at its close position, and every comparison comes out as in the live job.
    """
    unclear = [_Outcome(members[0].number, RowKind.UNCLEAR)]
    own_session = _OwnSession()
    operator: WindowOperator[int] = WindowOperator(own_session, allowed_lateness)
    firings = _Firings(all_panes)
    late_rows: list[_Outcome] = []
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
        own_session.window = own = member.own
        try:
            fired, is_late = operator.process(None, own.start, index)
        except MergeTooLateError:
            failure = _Outcome(member.number, RowKind.FAILURE, None, None, None, None, *here)
            return [*late_rows, failure, *firings.outcomes(members)]
        firings.add(fired, here, late_element=index)
        if is_late:
            late_rows.append(_Outcome(member.number, RowKind.LATE, own.start, own.end))
    for watermark, close in steps[passed:]:
        if close.latest.arrival == NEVER and not flush:
            return unclear
        firings.add(operator.advance_watermark(max(watermark, operator.watermark)), close.earliest)
    if flush:
        firings.add(operator.advance_watermark(MAX_TIMESTAMP), Position(NEVER, NEVER, NEVER))
    return [*late_rows, *firings.outcomes(members)]


def _steps(members: list[_Member], allowed_lateness: int) -> list[_Step]:
    """The watermarks at which something of the session closes, ascending. The later one, the later its close."""
    closes: dict[int, _Close] = {}
    for member in members:
        last = member.own.max_timestamp
        closes[last] = member.at_end
        if member.at_cleanup is not None:
            # The lateness "forever" wraps around where a merge is checked, as in Flink.
            add = wrapping_add if allowed_lateness == MAX_TIMESTAMP else saturating_add
            closes[add(last, allowed_lateness)] = member.at_cleanup
    return [_Step(x, close) for x, close in sorted(closes.items()) if close.earliest.arrival != NEVER]


class _Firings:
    """The firings of one complete session, by window and pane; or the last one of each window alone."""

    def __init__(self, all_panes: bool) -> None:
        self._all_panes = all_panes
        self._fired: dict[tuple[Window, int], tuple[Firing[int], Position]] = {}
        self._late_elements: defaultdict[Window, set[int]] = defaultdict(set)

    def add(self, firings: Iterable[Firing[int]], position: Position, late_element: int | None = None) -> None:
        """Add what fired at `position`; `late_element`: the element that fired it, where no watermark did."""
        for firing in firings:
            self._fired[firing.window, firing.pane if self._all_panes else 0] = (firing, position)
            if late_element is not None:
                self._late_elements[firing.window].add(late_element)

    def outcomes(self, members: list[_Member]) -> list[_Outcome]:
        """One for each member of each firing."""
        found: list[_Outcome] = []
        for firing, position in self._fired.values():
            window, pane = firing.window, firing.pane
            late = self._late_elements.get(window, set())
            found += [
                _Outcome(members[at].number, RowKind.MEMBER, window.start, window.end, pane, at in late, *position)
                for at in firing.elements
            ]
        return found
