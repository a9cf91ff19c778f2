"""Records of complete sessions, as few of them as matter, and the rows that say what became of each record.

A record that was surely ahead of the watermark touches no session that has fired (`spark_jobs.replay.sessions`). So
what is sure of that need not be told apart: records that come between two others of a session, and touch each other,
are one *member* of it. A session of millions of records has few members.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import PANE

GROUP = "rw_group"
"""The column that names a complete session."""

_BATCH = 131_072
"""Members that are taken together, and rows that are given together."""
_NUMBERED = 2**62
_MEMBER = "member"


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

    group: bytes
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
    f"{GROUP} BINARY, kind STRING, partition INT, offset BIGINT, {START} BIGINT, {END} BIGINT, {PANE} INT, "
    "late BOOLEAN, f_arrival BIGINT, f_major BIGINT, f_minor BIGINT"
)
_OF_RECORD = [pa.field(GROUP, pa.binary()), pa.field("partition", pa.int32()), pa.field("offset", pa.int64())]
_OF_OUTCOME = [
    pa.field("kind", pa.string()),
    pa.field(START, pa.int64()),
    pa.field(END, pa.int64()),
    pa.field(PANE, pa.int32()),
    pa.field("late", pa.bool_()),
    pa.field("f_arrival", pa.int64()),
    pa.field("f_major", pa.int64()),
    pa.field("f_minor", pa.int64()),
]
ARROW_SCHEMA = pa.schema([_OF_RECORD[0], _OF_OUTCOME[0], *_OF_RECORD[1:], *_OF_OUTCOME[1:]])
OUTCOMES = pa.schema([pa.field(_MEMBER, pa.int64()), *_OF_OUTCOME])
"""What became of a member: `SESSION_ROWS` with the member's number in place of session, partition and offset."""


def arrow_batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema = ARROW_SCHEMA) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True, slots=True)
class Members:
    """Members of complete sessions; those of a session lie together, in the order in which they came.

    Attributes:
        group: The name of each member's complete session.
        ts, end: The start of the session that its records make by themselves, and its end; epoch ms.
        position: Of its first record; shape (n, 3).
        closes: The earliest and the latest position at which the watermark can have reached the last timestamp of
            that session, and, with an allowed lateness, its cleanup time; shape (n, 2 or 4, 3).
        behind: Whether it is a record that may have been behind the watermark; such a record stands alone.
        sizes: The number of its records.
        partition, offset: Of all records, member by member.
    """

    group: pa.Array
    ts: np.ndarray
    end: np.ndarray
    position: np.ndarray
    closes: np.ndarray
    behind: np.ndarray
    sizes: np.ndarray
    partition: np.ndarray
    offset: np.ndarray

    def __len__(self) -> int:
        return len(self.ts)

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, told_apart: bool) -> Members:
        """The members of a batch (columns as `session_groups.replay_groups` has them), or its records one by one."""
        group, partition, offset = (batch.column(at) for at in range(3))
        ts, end, *numbers = (batch.column(at).to_numpy() for at in range(3, batch.num_columns - 1))
        behind = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        positions = np.stack(numbers, axis=1).reshape(len(ts), -1, 3)
        segment = np.cumsum(_begins(group) | behind | np.append(False, behind[:-1]))
        if told_apart or not fit_on_a_line(int(segment[-1]), float(end.max()) - float(ts.min())):
            ones = np.ones_like(ts)
            places = partition.to_numpy(), offset.to_numpy()
            return cls(group, ts, end, positions[:, 0], positions[:, 1:], behind, ones, *places)
        runs = touching(segment, np.lexsort((ts, segment)), ts, end)
        order = np.argsort(runs.first)
        first, last = runs.first[order], runs.ended_by[order]
        member = np.empty_like(order)
        member[order] = np.arange(len(order))
        of_record = member[runs.number]
        records = runs.places[np.argsort(of_record, kind="stable")]
        return cls(
            group.take(pa.array(first)),
            runs.start[order],
            end[last],
            positions[first, 0],
            positions[last, 1:],
            behind[first],
            np.bincount(of_record, minlength=len(order)),
            partition.to_numpy()[records],
            offset.to_numpy()[records],
        )

    @classmethod
    def together(cls, parts: list[Members]) -> Members:
        if len(parts) == 1:
            return parts[0]
        groups = pa.concat_arrays([part.group for part in parts])
        names = ("ts", "end", "position", "closes", "behind", "sizes", "partition", "offset")
        return cls(groups, *(np.concatenate([getattr(part, name) for part in parts]) for name in names))

    def where(self, chosen: np.ndarray) -> Members:
        """The chosen members: an array of booleans."""
        if chosen.all():
            return self
        records = np.repeat(chosen, self.sizes)
        return Members(
            self.group.filter(pa.array(chosen)),
            self.ts[chosen],
            self.end[chosen],
            self.position[chosen],
            self.closes[chosen],
            self.behind[chosen],
            self.sizes[chosen],
            self.partition[records],
            self.offset[records],
        )

    def numbered(self) -> np.ndarray:
        """The number of each member's complete session, from 0 on."""
        return np.cumsum(_begins(self.group)) - 1 if len(self) else np.zeros(0, dtype=np.int64)

    def rows(self, outcomes: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Rows of `SESSION_ROWS`: the outcomes of members (`OUTCOMES`), said of each of their records."""
        member = outcomes.column(0).to_numpy()
        is_session = outcomes.column(1).to_numpy(zero_copy_only=False) == RowKind.UNCLEAR.value
        counts = np.where(is_session, 1, self.sizes[member])
        behind = np.cumsum(counts)
        first_of = np.cumsum(self.sizes) - self.sizes
        for start in range(0, int(behind[-1]) if len(behind) else 0, _BATCH):
            at = np.arange(start, min(start + _BATCH, int(behind[-1])))
            row = np.searchsorted(behind, at, side="right")
            record = first_of[member[row]] + at - (behind[row] - counts[row])
            given = outcomes.take(pa.array(row))
            empty = is_session[row]
            arrays = [
                self.group.take(pa.array(member[row])),
                given.column(1),
                pa.array(self.partition[record], pa.int32(), mask=empty),
                pa.array(self.offset[record], pa.int64(), mask=empty),
                *given.columns[2:],
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def whole_sessions(batches: Iterable[pa.RecordBatch], *, told_apart: bool) -> Iterator[Members]:
    """The members of the records in `batches`, always all of a session, and those of many sessions together."""
    waiting: list[Members] = []
    count = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        found = Members.of(batch, told_apart=told_apart)
        last = int(np.flatnonzero(_begins(found.group))[-1])
        goes_on = bool(waiting) and not last and waiting[-1].group[-1] == found.group[0]
        count += len(found)
        if count < _BATCH or goes_on:
            waiting.append(found)
            continue
        is_last = np.arange(len(found)) >= last
        if last:
            waiting.append(found.where(~is_last))
        if waiting:
            yield Members.together(waiting)
        waiting = [found.where(is_last)]
        count = len(waiting[0])
    if waiting:
        yield Members.together(waiting)


def _begins(groups: pa.Array) -> np.ndarray:
    """Whether a session begins at each row; all rows of a session lie together."""
    numbers = groups.dictionary_encode().indices.to_numpy()
    return np.diff(numbers, prepend=-1) != 0


class Runs(NamedTuple):
    """Sessions that some records make by themselves.

    Attributes:
        places: The records, by segment and event time.
        number: The number of the session of each of `places`.
        start: By session: its start (epoch ms).
        ended_by: By session: a record that ends it.
        first: By session: the record of it that came first.
    """

    places: np.ndarray
    number: np.ndarray
    start: np.ndarray
    ended_by: np.ndarray
    first: np.ndarray


def fit_on_a_line(segments: int, longest: float) -> bool:
    """Whether the sessions of so many segments, `longest` ms each at most, can be numbered for `touching`."""
    return segments * (longest + 2) < _NUMBERED


def touching(segment: np.ndarray, places: np.ndarray, ts: np.ndarray, end: np.ndarray) -> Runs:
    """The sessions that the records `places` make, each segment by itself.

    `places` lie by segment and event time, there is one at least. `segment`, `ts` and `end` are of all records. The
    sessions of all segments lie one behind the other on one line of numbers, so that one maximum runs over all.
    """
    segments, starts, ends = segment[places], ts[places], end[places]
    begins = np.diff(segments, prepend=-1) != 0
    rank = np.cumsum(begins) - 1
    base = starts[begins][rank]
    on_line = rank * (int((ends - base).max()) + 2) - base
    reach = np.maximum.accumulate(ends + on_line)
    begins[1:] |= starts[1:] + on_line[1:] > reach[:-1]
    number = np.cumsum(begins) - 1
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(places)) - 1
    is_end = ends + on_line == reach[last][number]
    ended_by = np.empty(len(first), dtype=np.int64)
    ended_by[number[is_end]] = places[is_end]
    return Runs(places, number, starts[first], ended_by, np.minimum.reduceat(places, first))
