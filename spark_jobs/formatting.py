"""Formats numbers, times and values for people."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from spark_jobs.eventtime.durations import FOREVER, format_duration

MINUS = "\N{MINUS SIGN}"
LONGEST = 200
"""The most characters of a value that a page shows."""
LONGEST_TOLD = 2_000
"""The most characters of a text in a message to people."""
LONGEST_EXPRESSION = 10_000
"""The most characters of a text of a definition that a page shows."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1))
# Includes the characters that change the direction of text, so that a reader sees the true order.
_CONTROL = re.compile(r"[\u202a-\u202e\u2066-\u2069\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def count(number: float | None) -> str:
    """12,345."""
    return "unknown" if number is None else f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """1 window, 2 windows."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def percent(part: float, whole: float) -> str:
    """The share of `part` in `whole`, with enough digits to differ from 0 % and from 100 %."""
    if not whole:
        return "\N{EN DASH}"
    share = 100 * part / whole
    if share in (0, 100):
        return f"{share:.0f} %"
    for digits in (1, 2, 3, 4):
        shown = round(share, digits)
        if min(shown, 100 - shown) >= 5 * 10**-digits:
            text = f"{shown:.{digits}f}"
            return f"{text.rstrip('0') if digits > 1 else text} %"
    if 0 < (shown := round(share, 4)) < 100:
        return f"{f'{shown:.4f}'.rstrip('0')} %"
    return "< 0.0001 %" if share < 1 else "> 99.9999 %"


def length(milliseconds: float | None) -> str:
    """A duration (ms) in its two largest units: 1 h 3 min."""
    if milliseconds is None:
        return "unknown"
    if milliseconds >= FOREVER:
        return "for ever"
    rest, parts = abs(round(milliseconds)), []
    if not rest:
        return "0 s"
    for i, (unit, size) in enumerate(_UNITS):
        whole, left = divmod(rest, size)
        if whole:
            if i + 1 < len(_UNITS):
                finer = _UNITS[i + 1]
                more = left // finer[1]
                parts = [f"{whole} {unit}"] + ([f"{more} {finer[0]}"] if more and unit != "s" else [])
                if unit == "s" and left:
                    parts = [f"{rest / 1000:.1f} s"] if whole < 10 else [f"{whole} s"]
            else:
                parts = [f"{whole} {unit}"]
            break
    return (MINUS if milliseconds < 0 else "") + " ".join(parts)


def exact_length(milliseconds: int) -> str:
    """A duration (ms) as a definition writes it: 1 h 30 min."""
    return format_duration(milliseconds)


def moment(milliseconds: int | None, *, seconds: bool | None = None) -> str:
    """An instant (epoch ms) in UTC: 2013-02-08 18:00; with seconds and milliseconds unless they are 0."""
    if milliseconds is None:
        return "unknown"
    if milliseconds >= FOREVER:
        return "never"
    try:
        at = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    if milliseconds % 1000 and seconds is not False:
        return at.strftime("%Y-%m-%d %H:%M:%S.") + f"{milliseconds % 1000:03d}"
    shows_seconds = seconds if seconds is not None else milliseconds % 60_000 != 0
    return at.strftime("%Y-%m-%d %H:%M:%S" if shows_seconds else "%Y-%m-%d %H:%M")


def iso(milliseconds: int) -> str:
    """An instant (epoch ms) as ISO-8601: 2013-02-08T18:00:00Z; empty beyond the year 9999."""
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return ""


def span(start: int, end: int) -> str:
    """A range of instants (epoch ms): 2013-02-08 18:00 to 19:00. The day is written once if it is the same."""
    first, last = moment(start), moment(end)
    return f"{first} to {last[11:]}" if first[:10] == last[:10] else f"{first} to {last}"


def written_time(text: Any) -> str:
    """An ISO-8601 text as an instant in UTC; other texts unchanged."""
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return plain(text)
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S") if at.tzinfo else str(text)


def visible(text: str) -> str:
    """The text without characters that a terminal obeys or that change its direction; line breaks and tabs stay."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text).replace("\r", "\N{REPLACEMENT CHARACTER}")


def one_line(text: str) -> str:
    """The text on one line, as in a comment of a file: each line break and other blank is a space."""
    return visible(" ".join(text.split()))


def told(text: Any) -> str:
    """A text of a person or of data on one line, as messages have it: visible, and cut after `LONGEST_TOLD`."""
    return plain(" ".join(str(text or "").split()), LONGEST_TOLD)


def plain(value: Any, longest: int = LONGEST) -> str:
    """Any value as text without control characters, cut after `longest` characters."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return str(value) if not math.isfinite(value) else f"{value:,.10g}"
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False, sort_keys=True)
    begin = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text[:longest])
    return begin if len(text) <= longest else f"{begin}… ({len(text):,} characters)"


def shown(value: Any) -> str:
    """A value of a table as people read it; a time without milliseconds that are 0."""
    if value is None:
        return "null"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}" + (f".{value:%f}".rstrip("0") if value.microsecond else "")
    if isinstance(value, (dict, list)):
        return json.dumps(value, default=str, ensure_ascii=False)
    return str(value)


def difference(before: Any, after: Any) -> str:
    """The difference of two numbers: +2, -0.5; empty where they are equal or one is not a number."""
    numbers = [v for v in (before, after) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) < 2 or not all(map(math.isfinite, numbers)) or before == after:
        return ""
    change = after - before
    text = f"{abs(change):,}" if isinstance(change, int) else f"{abs(change):,.6g}"
    return f"{'+' if change > 0 else MINUS}{text}"


def signed(change: float) -> str:
    """A difference with its sign: +2, -0.5, 0."""
    return difference(0, change) or "0"


def pretty(value: Any) -> str:
    """A definition as indented JSON, without null and empty fields; each text is cut after `LONGEST_EXPRESSION`."""

    def kept(item: Any) -> Any:
        if isinstance(item, dict):
            return {kept(k): kept(v) for k, v in item.items() if v not in (None, {}, [])}
        if isinstance(item, list):
            return [kept(v) for v in item]
        return plain(item, LONGEST_EXPRESSION) if isinstance(item, str) else item

    return json.dumps(kept(value), indent=2, ensure_ascii=False, default=str)
