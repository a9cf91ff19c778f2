"""One complete session at a time through the sequential operator, in a Python worker of Spark.

The other half of `spark_jobs.replay.sessions`: what cannot be decided set by set (golden rules 24 to 28).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from spark_jobs.eventtime.operator import MergeTooLateError, WindowOperator
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, saturating_add, wrapping_add
from spark_jobs.eventtime.windows import Window
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.windows import PANE

GROUP = "rw_group"
Position = tuple[int, int, int]

JUDGED = (
    f"{GROUP} STRING, kind STRING, partition INT, offset BIGINT, {START} BIGINT, {END} BIGINT, {PANE} INT, "
    "late BOOLEAN, f_arrival BIGINT, f_major BIGINT, f_minor BIGINT"
)
JUDGED_ARROW = pa.schema(
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


class _OwnSession:
    """Gives each record the session it brings along: `element` carries it, for gaps that differ by record."""

    is_merging = True

    def __init__(self) -> None:
        self.window = Window(0, 0)

    def assign(self, timestamp: int) -> Iterator[Window]:
        yield self.window


def replay_groups(
    batches: Iterator[pa.RecordBatch], *, gap_lateness: int, flush: bool, all_panes: bool
) -> Iterator[pa.RecordBatch]:
    """Groups come whole and in position order; yields rows of `JUDGED`.

    Columns: the group, partition, offset, time and end of a record, its position, and for its end and (with a lateness)
    its cleanup the earliest and the latest position at which the watermark can have come to it; three BIGINT each.
    """
    group: str | None = None
    rows: list[tuple] = []
    out: list[tuple] = []
    for batch in batches:
        for row in zip(*(batch.column(i).to_pylist() for i in range(batch.num_columns)), strict=True):
            if row[0] != group:
                out += _replay_group(rows, gap_lateness, flush, all_panes)
                group, rows = row[0], []
            rows.append(row)
        if len(out) > 65_536:
            yield _judged_batch(out)
            out = []
    out += _replay_group(rows, gap_lateness, flush, all_panes)
    yield _judged_batch(out)


def _judged_batch(rows: list[tuple]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in JUDGED_ARROW]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, JUDGED_ARROW, strict=True)], schema=JUDGED_ARROW
    )


def _replay_group(rows: list[tuple], lateness: int, flush: bool, all_panes: bool) -> list[tuple]:
    """One complete session through the window operator; a row of the kind `unclear` where its closes are too vague.

    The watermark matters only where something of this session closes, so the operator is advanced to
    those values, each at its close position: every comparison comes out as in the live job.
    """
    if not rows:
        return []
    group = rows[0][0]
    closings: dict[int, tuple[Position, Position]] = {}
    for row in rows:
        last = row[4] - 1
        closings[last] = row[8:11], row[11:14]
        if lateness:
            x = wrapping_add(last, lateness) if lateness == MAX_TIMESTAMP else saturating_add(last, lateness)
            closings[x] = row[14:17], row[17:20]
    # The later x, the later its close.
    steps = [(x, *close) for x, close in sorted(closings.items()) if close[0][0] != NEVER]
    assigner = _OwnSession()
    operator: WindowOperator[int] = WindowOperator(assigner, lateness)
    out: list[tuple] = []
    fired: dict[tuple[Window, int], tuple[tuple[int, ...], Position]] = {}
    late_in: dict[Window, set[int]] = {}
    unclear = [(group, "unclear", *(None,) * (len(JUDGED_ARROW) - 2))]

    def keep(firing, position: Position) -> None:
        fired[firing.window, firing.pane] = (firing.elements, position)

    step = 0
    for i, (_, partition, offset, ts, end, *rest) in enumerate(rows):
        here = (rest[0], rest[1], rest[2])
        while step < len(steps) and steps[step][1] < here:
            x, earliest, latest = steps[step]
            if latest >= here:
                return unclear
            for firing in operator.advance_watermark(max(x, operator.watermark)):
                keep(firing, earliest)
            step += 1
        assigner.window = Window(ts, end)
        try:
            firings, late = operator.process(None, ts, i)
        except MergeTooLateError:
            out.append((group, "failure", partition, offset, None, None, None, None, *here))
            return out + _members(group, rows, fired, late_in, all_panes)
        for firing in firings:
            late_in.setdefault(firing.window, set()).add(i)
            keep(firing, here)
        if late:
            out.append((group, "late", partition, offset, ts, end, None, None, None, None, None))
    for x, earliest, latest in steps[step:]:
        if latest[0] == NEVER and not flush:
            return unclear
        for firing in operator.advance_watermark(max(x, operator.watermark)):
            keep(firing, earliest)
    if flush:
        for firing in operator.advance_watermark(MAX_TIMESTAMP):
            keep(firing, (NEVER, NEVER, NEVER))
    return out + _members(group, rows, fired, late_in, all_panes)


def _members(group: str, rows: list[tuple], fired: dict, late_in: dict, all_panes: bool) -> list[tuple]:
    last = {}
    for window, pane in fired:
        last[window] = max(pane, last.get(window, 0))
    out = []
    for (window, pane), (elements, position) in fired.items():
        if all_panes or pane == last[window]:
            late = late_in.get(window, set())
            out += [
                (group, "member", rows[i][1], rows[i][2], window.start, window.end, pane, i in late, *position)
                for i in elements
            ]
    return out
