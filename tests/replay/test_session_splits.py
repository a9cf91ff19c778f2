"""Complete sessions by members, split as arrays where that is possible, against the operator record by record."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.replay import session_members, session_splits
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.session_groups import replay_groups
from spark_jobs.replay.session_members import RowKind
from tests.sampling import sample


class Arrived(NamedTuple):
    """A record at the position of its number: its complete session, event time, and own session's length."""

    key: int
    ts: int
    gap: int


@st.composite
def logs(draw: st.DrawFn) -> list[Arrived]:
    """Records of a few keys; their times grow, with steps back."""
    fixed = draw(st.booleans())
    gaps = st.just(10) if fixed else st.integers(1, 25)
    count = draw(st.integers(1, 40))
    now, log = 100, []
    for _ in range(count):
        now += draw(st.sampled_from([0, 1, 4, 9, 30]))
        log.append(Arrived(draw(st.integers(0, 2)), now - draw(st.sampled_from([0, 0, 2, 5, 11, 40])), draw(gaps)))
    return log


def rows_of(
    log: list[Arrived], bound: int, lateness: int, vague: list[tuple[int, int]], too_many: list[bool]
) -> list[tuple]:
    """The rows of the complete sessions, with the closes at (position - a, position + b) of `vague`, by record."""
    watermarks, top = [], -1000
    for record in log:
        top = max(top, record.ts - bound - 1)
        watermarks.append(top)

    def close(x: int) -> int:
        return next((at for at, watermark in enumerate(watermarks) if watermark >= x), NEVER)

    rows = []
    for key in sorted({record.key for record in log}):
        mine = sorted((r.ts, at) for at, r in enumerate(log) if r.key == key)
        session, reach = -1, -1000
        for ts, at in mine:
            end = ts + log[at].gap
            session, reach = (session, max(reach, end)) if ts <= reach else (session + 1, end)
            back, ahead = vague[at % len(vague)]
            closes = []
            for x in (end - 1, end - 1 + lateness)[: 2 if lateness else 1]:
                closed = close(x)
                bounds = [closed - back, closed + ahead] if closed != NEVER else [closed, closed]
                closes += [part for b in bounds for part in ((b, b, b) if b == NEVER else (b, 0, 0))]
            behind = at > close(ts - 1) or too_many[at % len(too_many)]
            rows.append((f"{key}-{session}".encode(), 0, at, ts, end, at, 0, 0, *closes, behind))
    return sorted(rows, key=lambda row: (row[0], row[2]))


def batches_of(rows: list[tuple], length: int) -> list[pa.RecordBatch]:
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    return pa.table(columns, names=[f"c{number}" for number in range(len(columns))]).to_batches(max_chunksize=length)


def outcomes(batches) -> dict[bytes, list[tuple]]:
    found = defaultdict(list)
    for batch in batches:
        for row in batch.to_pylist():
            found[row["rw_group"]].append(tuple(row.values())[1:])
    return {group: sorted(rows, key=repr) for group, rows in found.items()}


@settings(max_examples=sample(60, 3_000))
@given(
    log=logs(),
    bound=st.sampled_from([0, 3, 12]),
    lateness=st.sampled_from([0, 0, 1, 7, 30]),
    flush=st.booleans(),
    all_panes=st.booleans(),
    vague=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=5),
    too_many=st.lists(st.booleans(), min_size=1, max_size=5),
    length=st.sampled_from([1, 3, 1_000]),
    rounds=st.sampled_from([0, 1, 2, 32]),
)
def test_sessions_by_members_are_those_record_by_record(
    log, bound, lateness, flush, all_panes, vague, too_many, length, rounds
) -> None:
    def decided(rows: list[tuple], rounds: int) -> dict[bytes, list[tuple]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_splits, "_ROUNDS", rounds)
            patch.setattr(session_members, "_BATCH", 4)
            batches = batches_of(rows, length)
            return outcomes(replay_groups(batches, allowed_lateness=lateness, flush=flush, all_panes=all_panes))

    exact = rows_of(log, bound, lateness, [(0, 0)], too_many)
    expected = decided([(*row[:-1], True) for row in exact], rounds=-1)
    assert decided(exact, rounds) == expected
    for group, rows in decided(rows_of(log, bound, lateness, vague, too_many), rounds).items():
        is_unclear = [row[0] for row in rows] == [RowKind.UNCLEAR]
        without_positions = [[row[:-3] for row in some] for some in (rows, expected.get(group, []))]
        assert is_unclear or sorted(without_positions[0], key=repr) == sorted(without_positions[1], key=repr)


def test_a_session_that_is_not_sure_is_left_to_exact_closes() -> None:
    rows = [(b"g", 0, at, ts, ts + 10, 100 + at, 0, 0, 100, 0, 0, 103, 0, 0, True) for at, ts in enumerate([1, 1])]
    found = outcomes(replay_groups(batches_of(rows, 10), allowed_lateness=0, flush=True, all_panes=False))
    assert [row[0] for row in found[b"g"]] == [RowKind.UNCLEAR]


@pytest.mark.parametrize("lateness", [0, 5])
def test_a_session_of_many_records_has_few_members_and_each_record_its_row(lateness: int) -> None:
    count, often = 100_000, 1_000
    rows = [
        (
            b"g", 0, at, at - (50 if at % often == often - 1 else 0), at + 10, at, 0, 0,
            *(NEVER, NEVER, NEVER) * (4 if lateness else 2), at % often == often - 1,
        )
        for at in range(count)
    ]  # fmt: skip
    batches = batches_of(rows, 10_000)
    (members,) = session_members.whole_sessions(batches, told_apart=False)
    assert len(members) <= 2 * (count // often) + len(batches)
    found = list(replay_groups(batches, allowed_lateness=lateness, flush=True, all_panes=False))
    assert sorted(offset for batch in found for offset in batch.column("offset").to_pylist()) == list(range(count))
    firings = {tuple(row) for batch in found for row in zip(*(c.to_pylist() for c in batch.columns[4:7]), strict=True)}
    assert firings == {(0, count + 9, 0)}
