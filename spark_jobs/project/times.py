"""How the values of a field are read as instants: the expression and the unit that the definition needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import partial
from typing import Any

from spark_jobs.project.sample import Field, FieldKind

_NAMED_AS_TIME = re.compile(
    r"time|date|epoch|stamp|(^|_)(ts|at|ms|millis|when|sent|seen|start|end)$|_(ts|at)_|[a-z]{2}[a-df-z]ed$",
    re.IGNORECASE,
)
# Seconds, ms and µs since 1970 of the years 1980 to 2100: three ranges that do not overlap.
_UNITS = (("s", 315_532_800, 1), ("ms", 315_532_800_000, 1_000), ("us", 315_532_800_000_000, 1_000_000))
_MOST = 0.9
"""The least share of a field's values that must be times, for it to be one."""
_YEARS = 13.1
"""The year 2100 lies so many times farther from 1970 than 1980."""


@dataclass(frozen=True, slots=True)
class TimeReading:
    """How a field is read as an instant.

    Attributes:
        expression: Spark SQL for the definition.
        unit: `timestamp`, `s`, `ms`, `us` or `iso`.
        note: What a person should check; empty where nothing is doubtful.
        to_ms: A value of the sample in epoch ms; None for one that is no instant.
        bounds: What leaves out values that are no times of events.
    """

    expression: str
    unit: str
    note: str
    to_ms: Callable[[Any], int | None]
    bounds: Bounds = field(default_factory=lambda: Bounds(None, None, 0, 0))


def named_time_reading(field: Field) -> TimeReading | None:
    """How a field is read that a person names as the event time: as `time_reading` says, and dates too."""
    if field.kind is not FieldKind.DATE:
        return time_reading(field)
    note = "a date is read as its midnight in UTC"
    expression = f"CAST({field.expression} AS TIMESTAMP)"
    return TimeReading(expression, "timestamp", note, lambda day: _ms_of(datetime.combine(day, time())))


def time_reading(field: Field) -> TimeReading | None:
    """How the field's values are read as instants; None where they are none."""
    match field.kind:
        case FieldKind.TIMESTAMP:
            return TimeReading(field.expression, "timestamp", "", _ms_of)
        case FieldKind.LOCAL_TIMESTAMP:
            note = "the column has no zone and is read as UTC; for another one write to_utc_timestamp(..., 'Zone/City')"
            return TimeReading(f"CAST({field.expression} AS TIMESTAMP)", "timestamp", note, _ms_of)
        case FieldKind.INTEGER | FieldKind.NUMBER:  # as Python's time.time(), with a fraction
            return _epoch(field, [float(value) for value in field.values])
        case FieldKind.TEXT:
            return _text(field)
    return None


def _epoch(field: Field, numbers: Sequence[float]) -> TimeReading | None:
    for unit, first, factor in _UNITS:
        inside = sum(first <= number < first * _YEARS for number in numbers)
        if inside and inside >= _MOST * len(numbers):  # a 0 stands for a missing value, a 2099 for a broken clock
            if unit == "s" and not _NAMED_AS_TIME.search(field.name):
                return None  # ids are often as large
            return TimeReading(field.expression, unit, "", partial(_scaled, factor=factor))
    return None


def _scaled(value: Any, factor: int) -> int | None:
    number = Decimal(str(value))
    return int(number * 1000 // factor) if number.is_finite() else None


def _text(field: Field) -> TimeReading | None:
    if all(value.isdigit() for value in field.values):
        return _epoch(field, [int(value) for value in field.values])
    read = [_instant(value) for value in field.values]
    if sum(moment is not None for moment in read) < _MOST * len(read):
        # A lower-case t or z, which a run does not read.
        return replace(upper, expression=f"upper({field.expression})") if (upper := _upper(field)) else None
    there = [moment for moment in read if moment is not None]
    zoned = sum(moment.tzinfo is not None for moment in there)
    if zoned == 0:
        note = "the text has no zone and is read as UTC; for another one write to_utc_timestamp(..., 'Zone/City')"
        return TimeReading(f"try_to_timestamp({field.expression})", "timestamp", note, _ms_of_text)
    note = "" if zoned == len(read) else f"{len(read) - zoned} of {len(read)} values are no time with a zone"
    return TimeReading(field.expression, "iso", note, _ms_of_text)


def _upper(field: Field) -> TimeReading | None:
    """How the field's values are read in capital letters; None where that changes nothing, or they are no times."""
    values = [value.upper() for value in field.values]
    if values == list(field.values) or (found := _text(replace(field, values=values))) is None:
        return None
    return replace(found, to_ms=lambda value: found.to_ms(value.upper()))


def _instant(text: str) -> datetime | None:
    """The instant of an ISO-8601 text; None for dates without a time of day and for all other text."""
    if not re.match(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d", text):
        return None
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError:
        return None


def _ms_of(moment: datetime) -> int:
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _ms_of_text(text: str) -> int | None:
    moment = _instant(text)
    return None if moment is None else _ms_of(moment)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Instants (ISO text) before and from which event times are no times of events; None: there are none such.

    `before`, `after`: how many of the values lie outside.
    """

    earliest: str | None
    latest: str | None
    before: int
    after: int

    def holds(self, time: int) -> bool:
        """Whether an event time (epoch ms) lies within."""
        low = self.earliest is None or time >= _ms_of(datetime.fromisoformat(self.earliest))
        return low and (self.latest is None or time < _ms_of(datetime.fromisoformat(self.latest)))


def bounds_of(times: Sequence[int]) -> Bounds:
    """Bounds that leave out the few event times (epoch ms) that lie more than five years from the middle one."""
    if not times:
        return Bounds(None, None, 0, 0)
    middle = sorted(times)[len(times) // 2]
    near = [time for time in times if abs(time - middle) <= _FAR]
    before, after = (
        sum(test(time) for time in times) for test in (lambda t: t < middle - _FAR, lambda t: t > middle + _FAR)
    )
    first, last = (datetime.fromtimestamp(edge / 1000, UTC).year for edge in (min(near), max(near)))
    return Bounds(
        f"{first - 1}-01-01T00:00:00Z" if before else None,
        f"{last + 2}-01-01T00:00:00Z" if after else None,
        before,
        after,
    )


_FAR = 5 * 366 * 86_400_000
