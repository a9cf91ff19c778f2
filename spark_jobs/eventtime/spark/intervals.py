"""Calendar intervals as Spark has them: months, days and microseconds, which are added one after the other.

A day is a day of the calendar in the session's time zone: 23 or 25 hours at a change of the clock (Spark rule 30).
Only as a watermark's delay has an interval a fixed length: a month is 31 days there (Spark rule 10).
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

MICROS_PER_MS = 1_000
_MS_PER_DAY = 86_400_000
_DAYS_PER_MONTH = 31

_MONTHS = {"year": 12, "month": 1}
_DAYS = {"week": 7, "day": 1}
_MICROS = {
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_UNITS = (*_MONTHS, *_DAYS, *_MICROS)
PATTERN = rf"^\s*(interval\s+)?([+-]?\s*[0-9]*\.?[0-9]+\s*({'|'.join(_UNITS)})s?\s*)+$"
"""A regular expression (as JSON Schema understands them) that every interval in lower case matches."""
_PART = re.compile(r"([+-]?\s*(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))\s*([a-z]+)\s*")


class IntervalError(ValueError):
    """A text that is no calendar interval."""


@dataclass(frozen=True, slots=True)
class CalendarInterval:
    """`months`, then `days`, then `micros`."""

    months: int = 0
    days: int = 0
    micros: int = 0

    @property
    def fixed_ms(self) -> int:
        """Its length as a watermark's delay, in whole milliseconds: a month has 31 days."""
        return (self.months * _DAYS_PER_MONTH + self.days) * _MS_PER_DAY + self.micros // MICROS_PER_MS

    @property
    def is_fixed(self) -> bool:
        """Whether its length depends on no calendar."""
        return self.months == 0 and self.days == 0

    def added_to(self, micros: int, zone: ZoneInfo) -> int:
        """The instant this much after `micros` (epoch microseconds), by the calendar of `zone`."""
        if self.is_fixed:
            return micros + self.micros
        seconds, rest = divmod(micros, 1_000_000)
        moment = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).astimezone(zone)
        for months, days in ((self.months, 0), (0, self.days)):  # between the two it is an instant, as in Spark
            if months or days:
                local = _plus_months(moment.replace(tzinfo=None), months) + timedelta(days=days)
                moment = _instant(local, moment, zone)
        return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 1_000_000 + rest + self.micros


def parse_interval(text: str) -> CalendarInterval:
    """`10 seconds`, `1 hour 30 minutes`, `interval 1 month -2 days`; only seconds have a fraction."""
    body = text.strip().lower()
    body = body.removeprefix("interval ").strip()
    months = days = 0
    micros = Fraction(0)
    at = 0
    while at < len(body) or not body:
        part = _PART.match(body, at)
        unit = part[2].removesuffix("s") if part else ""
        if part is None or unit not in _UNITS:
            raise IntervalError(f"not an interval: {text!r}; write one like '10 seconds' or '1 day 2 hours'")
        number = Fraction(part[1].replace(" ", ""))
        if number.denominator != 1 and unit != "second":
            raise IntervalError(f"not an interval: {text!r}; only seconds can have a fraction")
        if unit in _MONTHS:
            months += int(number) * _MONTHS[unit]
        elif unit in _DAYS:
            days += int(number) * _DAYS[unit]
        else:
            micros += number * _MICROS[unit]
        at = part.end()
    return CalendarInterval(months, days, int(micros))


def _plus_months(local: datetime, months: int) -> datetime:
    """The day of the month, so many months later, or the last day of a shorter month."""
    if not months:
        return local
    index = local.year * 12 + local.month - 1 + months
    year, month = divmod(index, 12)
    return local.replace(year=year, month=month + 1, day=min(local.day, monthrange(year, month + 1)[1]))


def _instant(local: datetime, before: datetime, zone: ZoneInfo) -> datetime:
    """The instant of a local time, as Java resolves it.

    A time that a change of the clock skips moves ahead by what is skipped. Of a time that comes twice it is the one
    with the offset that was before, if it has that one; otherwise the first.
    """
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    comes_twice = first.utcoffset() != second.utcoffset() and _exists(first)
    chosen = second if comes_twice and second.utcoffset() == before.utcoffset() else first
    return chosen.astimezone(UTC).astimezone(zone)


def _exists(moment: datetime) -> bool:
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) == moment.replace(tzinfo=None)
