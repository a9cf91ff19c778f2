"""Compares what an engine made of a Structured Streaming case with what the case records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.compare import CHECKSUM_MODULUS
from tests.conformance.microbatch_case import SHOWN, MicroBatchCase

Run = tuple[int, int]
"""One run of a batch: its number, and the start of the query that ran it."""


@dataclass(frozen=True)
class MicroBatchOutcome:
    """What an engine did with a case.

    `rows` by run of a batch, `held` at the end, in the columns `key, start, end, count, sum, min, max, checksum,
    elements`. `dropped` are `[record, start, end]`, `ignored` and `unread` numbers of records.
    """

    rows: Mapping[Run, list[list[Any]]]
    held: list[list[Any]]
    dropped: list[list[Any]]
    ignored: list[int]
    unread: list[int]
    note: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def row_of(case: MicroBatchCase, key: Any, start: int, end: int, elements: Iterable[int]) -> list[Any]:
    """One row in the case's columns; `elements` are numbers of records, in any order."""
    records = [case.records[i] for i in elements]
    values = [record.value for record in records if record.value is not None]
    total, least, most = (sum(values), min(values), max(values)) if values else (None, None, None)
    checksum = 0
    for record in records:
        x = ((record.input * 1000 + record.partition + 1) * 1_000_003 + record.offset) % CHECKSUM_MODULUS
        checksum += x * x % CHECKSUM_MODULUS
    places = sorted((record.input, record.partition, record.offset) for record in records)
    flat = [x for place in places for x in (place if case.inputs > 1 else place[1:])]
    return [key, start, end, len(records), total, least, most, checksum % CHECKSUM_MODULUS, flat]


def first_difference(case: MicroBatchCase, got: MicroBatchOutcome) -> str | None:
    """One line that describes the first difference from what Spark did; None if there is none."""
    expected = case.expected
    wanted: dict[Run, list[list[Any]]] = {}
    for batch, attempt, *row in expected["rows"]:
        wanted.setdefault((batch, attempt), []).append(row)
    for run in expected["batches"]:
        at = (run["batch"], run["attempt"])
        shown = got.rows.get((run["batch"], run["start"]), []) if run["outcome"] in SHOWN else []
        if difference := _rows_differ(wanted.pop(at, []), shown):
            return f"batch {at[0]}, attempt {at[1]}: {difference}"
    if wanted:
        return f"rows of a batch that did not run: {min(wanted)}"
    pending = expected.get("pending_batch")
    if (None if case.batches.pending is None else case.batches.pending.number) != pending:
        return f"pending batch: expected {pending}; got {case.batches.pending}"
    if pending is not None and expected.get("pending_rows") is not None:
        got_rows = got.rows.get((pending, case.start_of(pending)), [])
        if difference := _rows_differ(expected["pending_rows"], got_rows):
            return f"pending batch {pending}: {difference}"
    if expected.get("open") is not None and (difference := _rows_differ(expected["open"], got.held)):
        return f"held at the end: {difference}"
    for name, found in (("dropped", got.dropped), ("ignored", got.ignored), ("unread", got.unread)):
        if difference := _differ(expected[name], found):
            return f"{name}: {difference}"
    return None


def _rows_differ(wanted: Sequence[list[Any]], got: Sequence[list[Any]]) -> str | None:
    if any(row[-1] is None for row in wanted):  # a case with too many elements lists none of them
        wanted, got = [row[:-1] for row in wanted], [row[:-1] for row in got]
    return _differ(wanted, got)


def _differ(wanted: Iterable[Any], got: Iterable[Any]) -> str | None:
    left, right = Counter(map(_frozen, wanted)), Counter(map(_frozen, got))
    if left == right:
        return None

    def show(rows: Counter[Any]) -> str:
        return "nothing" if not rows else str(min(rows, key=repr))

    return f"expected {show(left - right)}; got {show(right - left)}"


def _frozen(value: Any) -> Any:
    return tuple(_frozen(v) for v in value) if isinstance(value, list | tuple) else value
