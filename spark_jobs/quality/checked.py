"""The result of one expectation, from what Great Expectations answered. Its values are JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from spark_jobs.definition.instants import format_instant
from spark_jobs.quality import gx
from spark_jobs.quality.resolve import Fitted

if TYPE_CHECKING:
    from spark_jobs.quality.by_day import Day

SAMPLES = 5
"""Rows shown of an expectation that fails."""
FAILED_DAYS = 100
"""Days named of an expectation that is checked by day."""
LENGTH = 200
"""Longer values are cut."""


@dataclass(frozen=True, slots=True)
class Checked:
    """The result of one expectation.

    `columns`: the kwargs that name columns, `threshold`: the others. `observed`: the value that GX computed, or the
    number of unexpected rows; of a column `run_...`, which is one figure, its value. `checked`, `unexpected_count`:
    rows checked and rows that are unexpected, for expectations about rows; nulls are not checked. `samples`: at most
    `SAMPLES` unexpected rows. `error`: why it could not be checked; it then counts as failed. `days`: how many days
    were checked, each on its own; None: all rows together. `failed_days`: what the first `FAILED_DAYS` of them gave
    that failed.
    """

    suite: str
    data: str
    expectation: str
    name: str
    description: str
    severity: str
    success: bool
    column: str | None
    columns: dict[str, Any]
    observed: Any
    threshold: dict[str, Any]
    checked: int | None
    unexpected_count: int | None
    unexpected_percent: float | None
    samples: list[dict[str, Any]]
    error: str | None
    days: int | None = None
    days_failed: int = 0
    failed_days: tuple[dict[str, Any], ...] = ()


def checked_of(one: Fitted, answer: gx.Answer) -> Checked:
    """The result of an expectation from the answer of Great Expectations."""
    written, result = one.written, answer.result
    count = result.get("unexpected_count")
    observed = result.get("observed_value", count)
    elements, missing = result.get("element_count"), result.get("missing_count") or 0
    columns = ("column", "column_A", "column_B", "column_list")
    kwargs = answer.kwargs or one.kwargs
    return Checked(
        suite=one.suite.name,
        data=written.data.value,
        expectation=written.type,
        name=written.name,
        description=written.description or _described(one),
        severity=written.severity.value,
        success=answer.success and answer.error is None,
        column=one.column,
        columns={k: plain(v) for k, v in kwargs.items() if k in columns},
        observed=plain(observed),
        threshold={k: plain(v) for k, v in kwargs.items() if k not in columns},
        checked=None if elements is None else int(elements) - int(missing),
        unexpected_count=None if count is None else int(count),
        unexpected_percent=_rounded(result.get("unexpected_percent")),
        samples=[plain(row) for row in (result.get("partial_unexpected_index_list") or [])[:SAMPLES]],
        error=None if answer.error is None else _cut(answer.error),
        days=None if answer.days is None else len(answer.days.days),
        days_failed=0 if answer.days is None else len(answer.days.failed),
        failed_days=() if answer.days is None else tuple(_day(day) for day in answer.days.failed[:FAILED_DAYS]),
    )


def _day(day: Day) -> dict[str, Any]:
    """A `DayResult` of the documents."""
    count, elements = day.result.get("unexpected_count"), day.result.get("element_count")
    return {
        "day": str(day.day),
        "observed": plain(day.result.get("observed_value", count)),
        "checked": None if elements is None else int(elements) - int(day.result.get("missing_count") or 0),
        "unexpected_count": None if count is None else int(count),
        "unexpected_percent": _rounded(day.result.get("unexpected_percent")),
    }


def _described(one: Fitted) -> str:
    kwargs = ", ".join(f"{name}: {value}" for name, value in one.kwargs.items())
    return f"{one.written.type.removeprefix('expect_').replace('_', ' ')} ({kwargs})"


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(float(value), 4)


def plain(value: Any) -> Any:
    """A JSON value, texts cut at `LENGTH`: instants as ISO text, infinities and NaN as null, all else as text."""
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if math.isfinite(value) else None
        case str():
            return _cut(value)
        case datetime():
            aware = value if value.tzinfo else value.astimezone()
            return format_instant(round(aware.timestamp() * 1000))
        case date() | Decimal():
            return str(value)
        case Mapping():
            return {_cut(str(k)): plain(v) for k, v in list(value.items())[:50]}
        case list() | tuple() | set() | frozenset():
            return [plain(v) for v in list(value)[:50]]
        case _ if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            return plain(value.item())
        case _:
            return _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 1]}…"
