"""Compares an engine's outcome with what a case records, and describes the first difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise, zip_longest
from typing import Any

from tests.conformance.case import Case

COLUMNS = (
    "key",
    "start",
    "end",
    "pane",
    "watermark",
    "at",
    "cause",
    "clock",
    "count",
    "sum",
    "min",
    "max",
    "checksum",
    "elements",
)
SET_COLUMNS = ("key", "start", "end", "pane", "at", "count", "sum", "min", "max", "checksum", "elements")
"""The columns that a set-based engine must reproduce: every firing with pane, position and contents."""

CHECKSUM_MODULUS = 2_147_483_647


@dataclass(frozen=True)
class Outcome:
    """What an engine did with a case, in the columns of the format.

    `details` holds what only a record-at-a-time engine knows; `note` describes how the engine worked.
    """

    firings: list[dict[str, Any]]
    late: list[list[Any]]
    error_at: int | None
    error: dict[str, Any] | None = None
    details: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def firing_row(
    case: Case,
    key: Any,
    start: int,
    end: int,
    pane: int,
    watermark: int | None,
    at: int,
    cause: str,
    clock: int | None,
    elements: Sequence[int],
) -> dict[str, Any]:
    """One firing in the format's columns; `elements` are indices of consumed records, in order of arrival."""
    rows = [case.rows[i] for i in elements]
    values = [row[5] for row in rows]
    checksum = 0
    for row in rows:
        x = ((row[0] + 1) * 1_000_003 + row[1]) % CHECKSUM_MODULUS
        checksum += x * x % CHECKSUM_MODULUS
    return {
        "key": key,
        "start": start,
        "end": end,
        "pane": pane,
        "watermark": watermark,
        "at": at,
        "cause": cause,
        "clock": clock,
        "count": len(rows),
        "sum": sum(values),
        "min": min(values),
        "max": max(values),
        "checksum": checksum % CHECKSUM_MODULUS,
        "elements": [x for row in rows for x in row[:2]],
    }


def first_difference(case: Case, expected: dict[str, Any], got: Outcome, *, set_based: bool) -> str | None:
    """One line that describes the first difference from what Flink did; None if there is none."""
    wanted = [dict(zip(expected["firing_columns"], row, strict=True)) for row in expected["firings"]]
    # The set-based engine has no exact watermark at a firing, so its steps are its positions alone.
    columns, step = (SET_COLUMNS, ("at",)) if set_based else (COLUMNS, ("at", "watermark"))
    limit = case.config.get("max_element_entries")
    if limit is not None and any(row.get("elements") is None for row in wanted):
        columns = tuple(c for c in columns if c != "elements")
    return (
        _firing_difference(wanted, got.firings, columns, step)
        or _late_difference(expected["late"], got.late, set_based=set_based)
        or _error_difference(expected.get("error"), got, set_based=set_based)
        or (None if set_based else _detail_difference(expected, got.details))
    )


def _steps(rows: Iterable[dict[str, Any]], columns: Sequence[str], step: Sequence[str]) -> list[tuple[Any, Counter]]:
    """Firings grouped by watermark step: within one, order means nothing among equal ends."""

    def frozen(row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(tuple(v) if isinstance(v := row.get(c), list) else v for c in columns)

    return [
        (position, Counter(frozen(row) for row in group))
        for position, group in groupby(rows, key=lambda row: tuple(row[c] for c in step))
    ]


def _firing_difference(
    wanted: list[dict[str, Any]], got: list[dict[str, Any]], columns: Sequence[str], step: Sequence[str]
) -> str | None:
    pairs = zip_longest(_steps(wanted, columns, step), _steps(got, columns, step))
    for expected_step, got_step in pairs:
        if expected_step == got_step:
            continue
        missing = (expected_step[1] if expected_step else Counter()) - (got_step[1] if got_step else Counter())
        extra = (got_step[1] if got_step else Counter()) - (expected_step[1] if expected_step else Counter())

        def show(rows: Counter) -> str:
            row = dict(zip(columns, min(rows, key=repr), strict=True)) if rows else None
            return "none" if row is None else ", ".join(f"{k}={v}" for k, v in row.items() if v is not None)

        return f"firing: expected {show(missing)}; got {show(extra)}"
    if "watermark" in step:
        for previous, row in pairwise(got):
            same = all(previous[c] == row[c] for c in step) and previous["cause"] == row["cause"] == "W"
            if same and row["end"] < previous["end"]:
                return f"firing order: window end {row['end']} after {previous['end']} in one watermark step"
    return None


def _late_difference(wanted: list[list[Any]], got: list[list[Any]], *, set_based: bool) -> str | None:
    if set_based:
        wanted, got = [row[:3] for row in wanted], [row[:3] for row in got]
    for expected_row, got_row in zip_longest(wanted, got):
        if expected_row != got_row:
            return f"late record [index, partition, offset, watermark]: expected {expected_row}; got {got_row}"
    return None


def _error_difference(wanted: dict[str, Any] | None, got: Outcome, *, set_based: bool) -> str | None:
    if set_based:
        at = None if wanted is None else wanted["at"]
        return None if at == got.error_at else f"failure position: expected {at}; got {got.error_at}"
    return None if wanted == got.error else f"failure: expected {wanted}; got {got.error}"


def _detail_difference(wanted: dict[str, Any], got: dict[str, Any]) -> str | None:
    for name, value in got.items():
        if name in wanted and wanted[name] != value:
            if isinstance(value, list) and isinstance(wanted[name], list):
                for i, (e, g) in enumerate(zip_longest(wanted[name], value)):
                    if e != g:
                        return f"{name}[{i}]: expected {e}; got {g}"
            return f"{name}: expected {wanted[name]}; got {value}"
    return None
