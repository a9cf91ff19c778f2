"""How long maintenance keeps things, as people write it. No Spark: forms are checked before Spark starts."""

from __future__ import annotations

from datetime import timedelta

from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import FOREVER, parse_duration

KEEP_RUNS = "400 d"
"""How long the documents and the ledger rows of runs are kept, where nobody says otherwise."""


_LONGEST = timedelta(days=36_500)


def retention(text: str, field: str) -> timedelta:
    """A length of time as people write it: 7 d, 36 h, PT30M; `_LONGEST` at most.

    Raises DefinitionError, with the field's name, for anything else, `forever` too.
    """
    hint = "Write it like 7 d, 36 h or PT30M."
    try:
        length = parse_duration(text)
    except ValueError as problem:
        raise DefinitionError(f"{field}: {problem}", hint=hint) from None
    if length == FOREVER:
        raise DefinitionError(f"{field}: there is no `forever` here", hint=f"{hint} At most {_LONGEST.days} d.")
    if not 0 <= length <= _LONGEST / timedelta(milliseconds=1):
        raise DefinitionError(f"{field}: it is below 0 or above {_LONGEST.days} d", hint=hint)
    return timedelta(milliseconds=length)


def retention_or_forever(text: str | None, field: str) -> timedelta | None:
    """Like `retention`; None for `forever` and for nothing."""
    return None if not text or text.strip() == "forever" else retention(text, field)
