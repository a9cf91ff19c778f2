"""Complete sessions without allowed lateness, thousands at once as arrays.

A session splits only where a record comes that was behind the watermark. Until then what has arrived lies in sessions
as batch would make them, and those of them that have closed are final: the other records are ahead of the watermark
and touch none of them. So a round for each such record is enough, and a round takes all sessions of a batch together:

    round k: the k-th record behind the watermark of each session; the sessions of the records before it; those that
             have closed are taken out; the record joins one that is open, stands alone, or is late (golden rule 24)

What is left then are the sessions that close later. `spark_jobs.replay.session_groups` has the rules record by record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.session_members import OUTCOMES, Members, RowKind, Runs, fit_on_a_line, touching

_ROUNDS = 32
"""The most records behind the watermark of a session that is split here."""
_KINDS = pa.array([RowKind.MEMBER.value, RowKind.LATE.value, RowKind.UNCLEAR.value])


def can_split(members: Members) -> np.ndarray:
    """By member: whether its session has few records behind the watermark, and all of them an event time."""
    group = members.numbered()
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    start, end = np.minimum.reduceat(members.ts, firsts), np.maximum.reduceat(members.end, firsts)
    longest = float((end.astype(float) - start).max())
    can = np.bincount(group, weights=members.behind) <= _ROUNDS
    can &= (start != MIN_TIMESTAMP) & fit_on_a_line(len(firsts), longest)
    return can[group]


def split(members: Members, flush: bool) -> pa.RecordBatch:
    """What became of whole sessions, in the columns of `OUTCOMES`; `flush`: the end of input fires what is open."""
    return _Sessions.of(members, flush).split()


def _before(position: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether each position comes before the other one: int64 of shape (n, 3)."""
    (a, b, c), (x, y, z) = position.T, other.T
    return (a < x) | ((a == x) & ((b < y) | ((b == y) & (c < z))))


@dataclass(slots=True)
class _Sessions:
    """Members of complete sessions, and what has become of each.

    Attributes:
        members: In the order of their sessions and positions.
        flush: Whether the end of input fires what is open.
        group: The number of each member's complete session, ascending.
        place: The members by session and event time.
        fired: For each member the start, the end and the member that ends the session in which it came out.
        is_open, is_late: Whether the member is in no session yet that has closed; whether it entered none.
        is_unclear: By complete session: its closes are not known well enough.
    """

    members: Members
    flush: bool
    group: np.ndarray
    place: np.ndarray
    fired: np.ndarray
    is_open: np.ndarray
    is_late: np.ndarray
    is_unclear: np.ndarray

    @classmethod
    def of(cls, members: Members, flush: bool) -> _Sessions:
        group, count = members.numbered(), len(members)
        return cls(
            members, flush, group,
            place=np.lexsort((members.ts, group)),
            fired=np.full((count, 3), -1, dtype=np.int64),
            is_open=np.ones(count, dtype=bool),
            is_late=np.zeros(count, dtype=bool),
            is_unclear=np.zeros(int(group[-1]) + 1, dtype=bool),
        )  # fmt: skip

    def split(self) -> pa.RecordBatch:
        """Each member's outcome."""
        suspects = np.flatnonzero(self.members.behind)
        of_group = self.group[suspects]
        round_of = np.arange(len(suspects)) - np.searchsorted(of_group, of_group)
        places = self.place
        for number in range(int(round_of.max(initial=-1)) + 1):
            chosen = suspects[round_of == number]
            places = self._take_out_closed(places, chosen)
        self._close_rest()
        return self._outcomes()

    def _take_out_closed(self, places: np.ndarray, suspects: np.ndarray) -> np.ndarray:
        """One round; `suspects` has at most one record of each complete session. The places that are still open."""
        suspect_of = np.full(len(self.is_unclear), -1, dtype=np.int64)
        suspect_of[self.group[suspects]] = suspects
        places = places[(suspect_of[self.group[places]] >= 0) & self.is_open[places]]
        before = places[places < suspect_of[self.group[places]]]
        joins = np.zeros(len(self.is_unclear), dtype=bool)
        if len(before):
            runs = self._runs(before)
            of_run = self.group[runs.ended_by]
            suspect = suspect_of[of_run]
            closed = self._closed_before(runs.ended_by, suspect)
            ts, end = self.members.ts, self.members.end
            touches = ~closed & (runs.start <= end[suspect]) & (end[runs.ended_by] >= ts[suspect])
            joins[of_run[touches]] = True
            self._fire(before, runs, closed)
        alone = suspects[~joins[self.group[suspects]]]
        late = alone[self._closed_before(alone, alone)]
        self.is_late[late] = True
        self.is_open[late] = False
        return places

    def _closed_before(self, ended_by: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Whether the sessions that these members end had closed when each `record` came."""
        position, closes = self.members.position[record], self.members.closes[ended_by]
        closed = _before(closes[:, 0], position)
        vague = closed & ~_before(closes[:, 1], position)
        self.is_unclear[self.group[ended_by[vague]]] = True
        return closed

    def _close_rest(self) -> None:
        places = self.place[self.is_open[self.place]]
        if not len(places):
            return
        runs = self._runs(places)
        earliest, latest = self.members.closes[runs.ended_by, :, 0].T
        closes = earliest != NEVER
        if not self.flush:
            vague = closes & (latest == NEVER)
            self.is_unclear[self.group[runs.ended_by[vague]]] = True
        self._fire(places, runs, closes | self.flush)

    def _fire(self, places: np.ndarray, runs: Runs, closed: np.ndarray) -> None:
        number = runs.number[closed[runs.number]]
        inside = places[closed[runs.number]]
        self.fired[inside] = np.stack((runs.start, self.members.end[runs.ended_by], runs.ended_by), axis=1)[number]
        self.is_open[inside] = False

    def _runs(self, places: np.ndarray) -> Runs:
        return touching(self.group, places, self.members.ts, self.members.end)

    def _outcomes(self) -> pa.RecordBatch:
        clear = ~self.is_unclear[self.group]
        fired = np.flatnonzero(clear & (self.fired[:, 2] >= 0))
        late = np.flatnonzero(clear & self.is_late)
        unclear = np.flatnonzero(np.diff(self.group, prepend=-1) * self.is_unclear[self.group])
        chosen = np.concatenate((fired, late, unclear))
        kinds = np.repeat([0, 1, 2], [len(fired), len(late), len(unclear)])
        not_fired, empty = kinds != 0, kinds == 2
        starts, ends = self.members.ts[chosen], self.members.end[chosen]
        starts[: len(fired)], ends[: len(fired)], ended_by = self.fired[fired].T
        position = np.zeros((len(chosen), 3), dtype=np.int64)
        position[: len(fired)] = self.members.closes[ended_by, 0]
        columns = [
            pa.array(chosen),
            _KINDS.take(pa.array(kinds)),
            pa.array(starts, mask=empty),
            pa.array(ends, mask=empty),
            pa.array(np.zeros(len(chosen), dtype=np.int32), mask=not_fired),
            pa.array(np.zeros(len(chosen), dtype=bool), mask=not_fired),
            *(pa.array(position[:, part], mask=not_fired) for part in range(3)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=OUTCOMES)
