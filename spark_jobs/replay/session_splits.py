"""Complete sessions without allowed lateness, thousands at once, in a Python worker of Spark.

A session splits only where a record comes that was behind the watermark. Until then what has arrived lies in sessions
as batch would make them, and those of them that have closed are final: the other records are ahead of the watermark
and touch none of them. So a round for each such record is enough, and a round takes all sessions of a batch together:

    round k: the k-th record behind the watermark of each session; the sessions of the records before it; those that
             have closed are taken out; the record joins one that is open, stands alone, or is late (golden rule 24)

What is left then are the sessions that close later. `spark_jobs.replay.session_groups` has the rules record by record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.session_groups import ARROW_SCHEMA, RowKind, replay_groups

_BATCH = 131_072
"""Records that are taken together, where sessions are not longer."""
_ROUNDS = 32
"""Sessions with more records behind the watermark go through the operator, record by record."""
_KINDS = pa.array([RowKind.MEMBER.value, RowKind.LATE.value, RowKind.UNCLEAR.value])
_NUMBERED = 2**62


def split_groups(batches: Iterable[pa.RecordBatch], *, flush: bool, all_panes: bool) -> Iterator[pa.RecordBatch]:
    """`replay_groups` without allowed lateness, with one column more at the end: whether the record may be late.

    A record of which that is false was surely ahead of the watermark.
    """
    for table in _whole_groups(batches):
        sessions = _Sessions.of(table, flush)
        slow = sessions.too_many_rounds()
        if slow.any():
            rows = pa.array(slow[sessions.group])
            some = table.filter(rows).drop_columns(table.column_names[-1:])
            yield from replay_groups(
                some.combine_chunks().to_batches(), allowed_lateness=0, flush=flush, all_panes=all_panes
            )
            table = table.filter(pa.array(~slow[sessions.group]))
            sessions = _Sessions.of(table, flush)
        if table.num_rows:
            yield sessions.split()


def _whole_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Tables of about `_BATCH` rows in which all rows of each group lie."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows < _BATCH:
            continue
        table = pa.Table.from_batches(waiting).combine_chunks()
        begins = _begins(table.column(0))
        last = int(np.flatnonzero(begins)[-1])
        if last:
            yield table.slice(0, last).combine_chunks()
        waiting, rows = table.slice(last).combine_chunks().to_batches(), table.num_rows - last
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _begins(groups: pa.ChunkedArray) -> np.ndarray:
    """Whether a group begins at each row; all rows of a group lie together."""
    numbers = groups.combine_chunks().dictionary_encode().indices.to_numpy()
    return np.diff(numbers, prepend=-1) != 0


class _Runs(NamedTuple):
    """Sessions of some records: the number of each record's, and by session its start, end and a record that ends it.

    `start` and `end` in epoch ms.
    """

    number: np.ndarray
    start: np.ndarray
    end: np.ndarray
    ended_by: np.ndarray


def _before(position: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether each position comes before the other one: int64 of shape (n, 3)."""
    (a, b, c), (x, y, z) = position.T, other.T
    return (a < x) | ((a == x) & ((b < y) | ((b == y) & (c < z))))


@dataclass(slots=True)
class _Sessions:
    """Records of complete sessions, by session and position, and what has become of each.

    Attributes:
        table: The rows.
        flush: Whether the end of input fires what is open.
        group: The number of each record's complete session, ascending.
        ts, end: Of the record's own session, in epoch ms.
        position, earliest, latest: Of the record, and of the close of its own session: shape (n, 3).
        behind: Whether the record may have been behind the watermark.
        place: The records by session and event time.
        fired: For each record the start, the end and the record that ends the session in which it came out.
        is_open, is_late: Whether the record is in no session yet that has closed; whether it entered none.
        is_unclear: By complete session: its closes are not known well enough.
    """

    table: pa.Table
    flush: bool
    group: np.ndarray
    ts: np.ndarray
    end: np.ndarray
    position: np.ndarray
    earliest: np.ndarray
    latest: np.ndarray
    behind: np.ndarray
    place: np.ndarray
    fired: np.ndarray
    is_open: np.ndarray
    is_late: np.ndarray
    is_unclear: np.ndarray

    @classmethod
    def of(cls, table: pa.Table, flush: bool) -> _Sessions:
        group = np.cumsum(_begins(table.column(0))) - 1 if table.num_rows else np.zeros(0, dtype=np.int64)
        numbers = [table.column(at).to_numpy() for at in range(3, 14)]
        ts, end = numbers[0], numbers[1]
        position, earliest, latest = (np.stack(numbers[at : at + 3], axis=1) for at in (2, 5, 8))
        count = len(ts)
        return cls(
            table, flush, group, ts, end, position, earliest, latest,
            behind=table.column(14).to_numpy(),
            place=np.lexsort((ts, group)),
            fired=np.full((count, 3), -1, dtype=np.int64),
            is_open=np.ones(count, dtype=bool),
            is_late=np.zeros(count, dtype=bool),
            is_unclear=np.zeros(int(group[-1]) + 1 if count else 0, dtype=bool),
        )  # fmt: skip

    def too_many_rounds(self) -> np.ndarray:
        """Which complete sessions do not fit in here: too many records behind the watermark, or odd times."""
        count = len(self.is_unclear)
        slow = np.bincount(self.group, weights=self.behind, minlength=count) > _ROUNDS
        slow[self.group[self.ts == MIN_TIMESTAMP]] = True
        if count and float(self._longest()) * count >= _NUMBERED:
            slow[:] = True
        return slow

    def _longest(self) -> int:
        """The longest complete session (ms), and one more."""
        firsts = np.flatnonzero(np.diff(self.group, prepend=-1))
        start = np.minimum.reduceat(self.ts, firsts).astype(float)
        end = np.maximum.reduceat(self.end, firsts).astype(float)
        return int((end - start).max()) + 2

    def split(self) -> pa.RecordBatch:
        """Rows of `SESSION_ROWS`."""
        suspects = np.flatnonzero(self.behind)
        of_group = self.group[suspects]
        round_of = np.arange(len(suspects)) - np.searchsorted(of_group, of_group)
        places = self.place
        for number in range(int(round_of.max(initial=-1)) + 1):
            chosen = suspects[round_of == number]
            places = self._take_out_closed(places, chosen)
        self._close_rest()
        return self._rows()

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
            touches = ~closed & (runs.start <= self.end[suspect]) & (runs.end >= self.ts[suspect])
            joins[of_run[touches]] = True
            self._fire(before, runs, closed)
        alone = suspects[~joins[self.group[suspects]]]
        late = alone[self._closed_before(alone, alone)]
        self.is_late[late] = True
        self.is_open[late] = False
        return places

    def _closed_before(self, ended_by: np.ndarray, record: np.ndarray) -> np.ndarray:
        """Whether the sessions that these records end had closed when each `record` came."""
        closed = _before(self.earliest[ended_by], self.position[record])
        vague = closed & ~_before(self.latest[ended_by], self.position[record])
        self.is_unclear[self.group[ended_by[vague]]] = True
        return closed

    def _close_rest(self) -> None:
        places = self.place[self.is_open[self.place]]
        if not len(places):
            return
        runs = self._runs(places)
        closes = self.earliest[runs.ended_by, 0] != NEVER
        if not self.flush:
            vague = closes & (self.latest[runs.ended_by, 0] == NEVER)
            self.is_unclear[self.group[runs.ended_by[vague]]] = True
        self._fire(places, runs, closes | self.flush)

    def _fire(self, places: np.ndarray, runs: _Runs, closed: np.ndarray) -> None:
        inside = closed[runs.number]
        number, records = runs.number[inside], places[inside]
        self.fired[records] = np.stack((runs.start, runs.end, runs.ended_by), axis=1)[number]
        self.is_open[records] = False

    def _runs(self, places: np.ndarray) -> _Runs:
        """The sessions of the records `places`, which lie by complete session and event time; there is one at least.

        The sessions of all groups lie one behind the other on one line of numbers, so that one maximum runs over all.
        """
        group, ts, end = self.group[places], self.ts[places], self.end[places]
        of_group = np.diff(group, prepend=-1) != 0
        rank = np.cumsum(of_group) - 1
        base = ts[of_group][rank]
        apart = int((end - base).max()) + 2
        starts, ends = ts - base + rank * apart, end - base + rank * apart
        reach = np.maximum.accumulate(ends)
        begins = np.ones(len(places), dtype=bool)
        begins[1:] = starts[1:] > reach[:-1]
        number = np.cumsum(begins) - 1
        first = np.flatnonzero(begins)
        last = np.append(first[1:], len(places)) - 1
        is_end = ends == reach[last][number]
        ended_by = np.empty(len(first), dtype=np.int64)
        ended_by[number[is_end]] = places[is_end]
        return _Runs(number, ts[first], self.end[ended_by], ended_by)

    def _rows(self) -> pa.RecordBatch:
        clear = ~self.is_unclear[self.group]
        members = np.flatnonzero(clear & (self.fired[:, 2] >= 0))
        late = np.flatnonzero(clear & self.is_late)
        unclear = np.flatnonzero(np.diff(self.group, prepend=-1) * self.is_unclear[self.group])
        start, end, ended_by = self.fired[members].T
        records = np.concatenate((members, late, unclear))
        kinds = np.repeat([0, 1, 2], [len(members), len(late), len(unclear)])
        fired, empty = kinds == 0, kinds == 2
        starts, ends, position = self.ts[records], self.end[records], self.position[records]
        starts[fired], ends[fired], position[fired] = start, end, self.earliest[ended_by]
        rows = pa.array(records)
        group, partition, offset = (self.table.column(column).combine_chunks().take(rows) for column in range(3))
        columns = [
            group,
            _KINDS.take(pa.array(kinds)),
            _unless(empty, partition),
            _unless(empty, offset),
            pa.array(starts, mask=empty),
            pa.array(ends, mask=empty),
            pa.array(np.zeros(len(records), dtype=np.int32), mask=~fired),
            pa.array(np.zeros(len(records), dtype=bool), mask=~fired),
            *(pa.array(position[:, part], mask=~fired) for part in range(3)),
        ]
        arrays = [column.cast(field.type) for column, field in zip(columns, ARROW_SCHEMA, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _unless(empty: np.ndarray, values: pa.Array) -> pa.Array:
    return pa.array(values.to_numpy(), mask=empty)
