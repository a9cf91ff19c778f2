"""One complete session through the sequential operator, from the rows that Spark hands over; no Spark here.

A record is written as its event time; the gap is 10 ms. Records arrive one a millisecond, from 100 on.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pyarrow as pa

from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.session_groups import replay_groups
from spark_jobs.replay.session_members import RowKind, SessionRow

GAP = 10
POSITIONS = [f"{position}_{part}" for position in ("record", "earliest", "latest") for part in ("a", "m", "n")]
NAMES = ["group", "partition", "offset", "ts", "end", *POSITIONS, "behind"]
NAMES_WITH_CLEANUP = [*NAMES[:-1], *(f"cleanup_{name}" for name in POSITIONS[3:]), "behind"]


def record(number: int, event_time: int, earliest: int, latest: int | None = None, group: bytes = b"g") -> tuple:
    """One row: the close of the record's own session lies between the positions of two records; NEVER: the end."""
    closes = [
        (at, NEVER, NEVER) if at == NEVER else (at, 0, at - 100)
        for at in (earliest, earliest if latest is None else latest)
    ]
    position = (100 + number, 0, number)
    return (group, 0, number, event_time, event_time + GAP, *position, *closes[0], *closes[1], True)


def replayed(*records: tuple, flush: bool = True, names: Sequence[str] = NAMES, lateness: int = 0) -> list[SessionRow]:
    table = pa.table([pa.array(column) for column in zip(*records, strict=True)], names=list(names))
    batches = replay_groups(table.to_batches(), allowed_lateness=lateness, flush=flush, all_panes=False)
    return [SessionRow(*row.values()) for batch in batches for row in batch.to_pylist()]


def members(rows: list[SessionRow]) -> list[tuple]:
    return [(row.start, row.end, row.offset) for row in rows if row.kind == RowKind.MEMBER]


def test_a_session_that_closes_after_its_records_is_fired_once_with_all_of_them() -> None:
    rows = replayed(record(0, 1, NEVER), record(1, 5, NEVER))
    assert members(rows) == [(1, 15, 0), (1, 15, 1)]
    assert {row.arrival for row in rows} == {NEVER}, "at the end of input"


def test_without_a_flush_what_has_not_closed_is_not_decided_here() -> None:
    (row,) = replayed(record(0, 1, 200, NEVER), flush=False)
    assert (row.group, row.kind) == (b"g", RowKind.UNCLEAR)


def test_a_record_that_comes_after_its_sessions_close_is_late() -> None:
    rows = replayed(record(0, 1, 101), record(1, 1, 101))
    assert members(rows) == [(1, 11, 0), (1, 11, 1)], "the record at the close's own position is in time"
    rows = replayed(record(0, 1, 100), record(1, 1, 100))
    assert members(rows) == [(1, 11, 0)]
    assert [(row.offset, row.start, row.end) for row in rows if row.kind == RowKind.LATE] == [(1, 1, 11)]


def test_a_close_that_may_lie_on_either_side_of_a_record_leaves_the_session_unclear() -> None:
    rows = replayed(record(0, 1, 100, 103), record(1, 1, 100, 103))
    assert [row.kind for row in rows] == [RowKind.UNCLEAR]


def test_each_group_is_replayed_alone() -> None:
    rows = replayed(record(0, 1, NEVER, group=b"a"), record(1, 2, NEVER, group=b"b"))
    assert [(row.group, row.start, row.end) for row in rows] == [(b"a", 1, 11), (b"b", 2, 12)]


def test_a_session_that_each_of_its_late_records_fires_again_takes_no_more_memory_than_its_records() -> None:
    count, lateness = 10_000, 1_000
    never = (NEVER, NEVER, NEVER)
    records = [record(number, 1, 100) for number in range(count)]
    late = [(*row[:-1], *never, *never, row[-1]) for row in records]
    tracemalloc.start()
    try:
        rows = replayed(*late, names=NAMES_WITH_CLEANUP, lateness=lateness)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert {(row.kind, row.pane) for row in rows} == {(RowKind.MEMBER, count - 1)}
    assert (len(rows), sum(bool(row.late) for row in rows)) == (count, count - 1)
    assert peak < 100 << 20, "the contents of each firing would be 400 MB"
