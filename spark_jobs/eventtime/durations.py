"""Durations as people write them, and integer milliseconds as the event-time core counts them.

Written: numbers with units (`30 min`, `1h 30m`, `200 ms`, `1.5 h`, `2 days`), ISO-8601 (`PT30M`, `P1DT2H`), `0`, and
`forever` = Long.MAX_VALUE, which as an allowed lateness keeps state forever (golden rule 22). A leading `-` makes the
whole duration negative. `m` is minutes. Months and years are refused: their length depends on the calendar. Units are
written in lower case, ISO-8601 in upper case, so that `M` is never minutes here and months there.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from fractions import Fraction

from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP

FOREVER = MAX_TIMESTAMP
EXAMPLES = "`30 min`, `1 h 30 min`, `200 ms`, `2 days` or `PT30M`"

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
_UNITS = {
    **dict.fromkeys(("ms", "milli", "millis", "millisecond", "milliseconds"), 1),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), SECOND),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), MINUTE),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), HOUR),
    **dict.fromkeys(("d", "day", "days"), DAY),
    **dict.fromkeys(("w", "week", "weeks"), 7 * DAY),
}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_WORDS = re.compile(rf"(?:{_NUMBER}\s*[^\W\d_]+\s*)+")
_PART = re.compile(rf"({_NUMBER})\s*([^\W\d_]+)")
_ISO = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_ISO_UNITS = (7 * DAY, DAY, HOUR, MINUTE, SECOND)

_UNIT_PATTERN = "|".join(sorted(_UNITS, key=len, reverse=True))
PATTERN = (
    rf"^\s*(-?0|-?\s*({_NUMBER}\s*({_UNIT_PATTERN})\s*)+"
    rf"|-?\s*P({_NUMBER}W)?({_NUMBER}D)?(T({_NUMBER}H)?({_NUMBER}M)?({_NUMBER}S)?)?)\s*$"
)
"""A regular expression (as JSON Schema understands them) that every finite duration matches."""


class DurationError(ValueError):
    """A text that is no duration: `what` is wrong, and in `hint` what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


def parse_duration(text: str) -> int:
    """The duration in milliseconds; `forever` is `FOREVER`.

    Raises DurationError for a missing or unknown unit, a unit given twice, a part of a millisecond, and lengths that
    reach Long.MAX_VALUE.
    """
    stripped = text.strip()
    if stripped == "forever":
        return FOREVER
    if stripped in ("0", "-0"):
        return 0
    negative = stripped.startswith("-")
    body = stripped[1:].strip() if negative else stripped
    stripped = quoted(stripped)
    length = _sum_of_iso(body, stripped) if body.startswith("P") else _sum_of_words(body, stripped)
    if length.denominator != 1:
        raise DurationError(f"`{stripped}` is not a whole number of milliseconds", "the finest unit is `1 ms`")
    if length >= FOREVER:
        raise DurationError(f"`{stripped}` does not fit 64 bits of milliseconds", "write `forever` if it has no end")
    return -int(length) if negative else int(length)


def quoted(text: str) -> str:
    """A text as a message quotes it: at most 60 characters."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def format_duration(milliseconds: int) -> str:
    """The shortest sum of days, hours, minutes, seconds and milliseconds; `parse_duration` reads it back exactly."""
    if milliseconds == FOREVER:
        return "forever"
    if milliseconds == 0:
        return "0"
    parts: list[str] = []
    rest = abs(milliseconds)
    for unit, size in (("day", DAY), ("h", HOUR), ("min", MINUTE), ("s", SECOND), ("ms", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}s" if unit == "day" and count > 1 else f"{count} {unit}")
    return ("-" if milliseconds < 0 else "") + " ".join(parts)


def _sum_of_words(body: str, written: str) -> Fraction:
    if re.fullmatch(_NUMBER, body):
        raise DurationError(f"`{written}` has no unit", f"write `{written} ms`, `{written} s` or `{written} min`")
    if not _WORDS.fullmatch(body):
        raise DurationError(f"`{written}` is not a duration", f"write one like {EXAMPLES}")
    total = Fraction(0)
    seen: set[int] = set()
    for number, unit in _PART.findall(body):
        size = _UNITS.get(unit)
        if size is None:
            raise DurationError(f"`{written}` is not a duration: `{quoted(unit)}` is no unit", _mend_unit(unit))
        if size in seen:
            raise DurationError(f"`{written}` gives the same unit twice", f"write one like {EXAMPLES}")
        seen.add(size)
        total += Fraction(number) * size
    return total


def _sum_of_iso(body: str, written: str) -> Fraction:
    match = _ISO.fullmatch(body)
    if match is None:
        if re.match(r"P[0-9.]+[MY]", body):
            raise DurationError(f"`{written}` has months or years, which have no fixed length", "write it in days")
        raise DurationError(f"`{written}` is not an ISO-8601 duration", "write one like `PT30M`, `PT1H30M` or `P2D`")
    return sum(
        (Fraction(number) * size for number, size in zip(match.groups(), _ISO_UNITS, strict=True) if number),
        start=Fraction(0),
    )


def _mend_unit(unit: str) -> str:
    if unit == "M":
        return "write `min`"
    if unit in ("us", "µs", "μs", "ns"):
        return "the finest unit is `1 ms`"
    if unit.startswith(("month", "year")) or unit in ("y", "mo"):
        return "months and years have no fixed length; write it in days"
    near = get_close_matches(unit.lower(), _UNITS, n=1)
    if near:
        return f"write `{near[0]}`"
    return "the units are ms, s, min, h, days and weeks"
