"""Sessions of Structured Streaming that set operations cannot decide, in a Python worker of Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from spark_jobs.eventtime.spark.aggregation import Input, OutputMode, Row, SessionAggregation
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import Window
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.session_members import RowKind, SessionRow, arrow_batch

_BATCH = 65_536


class _Member(NamedTuple):
    """One record of a complete session; `fits`: it is not late."""

    group: bytes
    partition: int
    offset: int
    batch_time: int
    start: int
    end: int
    fits: bool


def sessions_of_groups(
    batches: Iterable[pa.RecordBatch], *, times: np.ndarray, watermarks: np.ndarray, mode: OutputMode, unit: int = 1
) -> Iterator[pa.RecordBatch]:
    """Run complete sessions through the sequential aggregation, each on its own.

    Args:
        batches: One row a record, in the columns of `_Member`; those of a session lie together, by batch.
        times: When each batch of the query ran, ascending (epoch ms).
        watermarks: What each lets windows out by.
        mode: The query's output mode.
        unit: How many units of the members' bounds make one of the watermarks.

    Yields:
        Rows of `SESSION_ROWS`, in the unit of the watermarks.
    """
    watermarks = watermarks * unit
    members = (
        _Member(*values)
        for batch in batches
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True)
    )
    rows: list[SessionRow] = []
    for _, group in groupby(members, key=lambda member: member.group):
        found = _of_group(list(group), times, watermarks, mode)
        rows += (_in_units(row, unit) for row in found)
        if len(rows) > _BATCH:
            yield arrow_batch(rows)
            rows = []
    yield arrow_batch(rows)


def _of_group(members: list[_Member], times: np.ndarray, watermarks: np.ndarray, mode: OutputMode) -> list[SessionRow]:
    """Batch by batch: first comes out what earlier batches let out, then the batch's records enter."""
    aggregation: SessionAggregation[_Member] = SessionAggregation(mode)
    is_complete = mode is OutputMode.COMPLETE
    rows: list[SessionRow] = []
    for time, batch in groupby(members, key=lambda member: member.batch_time):
        number = int(np.searchsorted(times, time))
        if number and not is_complete:
            given = aggregation.run((), late=MIN_TIMESTAMP, out=int(watermarks[number - 1]))
            rows += _rows(given.rows, times, watermarks)
        entering = []
        for member in batch:
            if member.fits:
                alone = Window(member.start, member.end)
                entering.append(Input(None, member.start, member, alone=alone))
            else:
                rows.append(_late(member))
        aggregation.run(entering, late=MIN_TIMESTAMP, out=MIN_TIMESTAMP)
    if is_complete:
        return [*rows, *_rows(aggregation.held(), times, watermarks, fired=members[-1].batch_time)]
    given = aggregation.run((), late=MIN_TIMESTAMP, out=int(watermarks[-1]))
    return [*rows, *_rows(given.rows, times, watermarks)]


def _in_units(row: SessionRow, unit: int) -> SessionRow:
    if row.start is None or row.end is None:
        return row
    return row._replace(start=row.start // unit, end=row.end // unit)


def _late(member: _Member) -> SessionRow:
    return SessionRow(member.group, RowKind.LATE, member.partition, member.offset, member.start, member.end)


def _rows(
    sessions: Iterable[Row[_Member]], times: np.ndarray, watermarks: np.ndarray, *, fired: int | None = None
) -> Iterator[SessionRow]:
    for session in sessions:
        window = session.window
        at = int(times[np.searchsorted(watermarks, window.end)]) if fired is None else fired
        for member in session.elements:
            yield SessionRow(
                member.group,
                RowKind.MEMBER,
                member.partition,
                member.offset,
                window.start,
                window.end,
                0,
                False,
                at,
                NEVER,
                NEVER,
            )
