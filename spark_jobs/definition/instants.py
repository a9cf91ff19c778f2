"""Instants as people write them (ISO-8601 with a zone), and integer epoch milliseconds.

A time without a zone is refused and never taken as UTC or as local time: it would move every result by hours, silently.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from spark_jobs.eventtime.durations import quoted

EXAMPLE = "2013-01-01T10:00:00Z"
PATTERN = r"^\s*\d{4}-\d{2}-\d{2}[T ]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?\s*(Z|[+-]\d{2}(:?\d{2})?)\s*$"
"""A regular expression (as JSON Schema understands them) for the instants that `parse_instant` reads."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class InstantError(ValueError):
    """A text that is no instant: `what` is wrong with it, and in `hint` what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(f"{what}; {hint}")
        self.what = what
        self.hint = hint


def parse_instant(text: str) -> int:
    """Epoch milliseconds of an ISO-8601 time with `Z` or an offset such as `+02:00`.

    Raises:
        InstantError: a time without zone, a date alone, parts of a millisecond, or a time whose year in UTC is not 1 to
            9999, which could not be written down again.
    """
    stripped = text.strip()
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InstantError(f"`{quoted(stripped)}` is not a time", f"write one like `{EXAMPLE}`") from None
    if moment.tzinfo is None:
        clock = moment.isoformat()
        hint = f"write `{clock}Z` if it is UTC, else its offset: `{clock}+01:00`"
        raise InstantError(f"`{quoted(stripped)}` has no zone", hint)
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise InstantError(
            f"`{quoted(stripped)}` is not in the years 1 to 9999 of UTC", f"write one like `{EXAMPLE}`"
        ) from None
    milliseconds, rest = divmod(moment - _EPOCH, _MILLISECOND)
    if rest:
        raise InstantError(f"`{quoted(stripped)}` is finer than a millisecond", "event time counts whole milliseconds")
    return milliseconds


def format_instant(milliseconds: int) -> str:
    """The instant in UTC, `2013-01-01T10:00:00Z`, with milliseconds only where there are some."""
    moment = _EPOCH + milliseconds * _MILLISECOND
    precision = "milliseconds" if milliseconds % 1000 else "seconds"
    return moment.isoformat(timespec=precision).replace("+00:00", "Z")
