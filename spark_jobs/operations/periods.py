"""How long maintenance keeps things, as people write it. No Spark: forms are checked before Spark starts."""

from __future__ import annotations

from datetime import timedelta

from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.durations import parse_duration

KEEP_RUNS = "400 d"
"""How long the documents and the ledger rows of runs are kept, where nobody says otherwise."""


def retention(text: str, field: str) -> timedelta:
    """A length of time as people write it: 7 d, 36 h, PT30M. Raises DefinitionError, with the field's name."""
    try:
        return timedelta(milliseconds=parse_duration(text))
    except (ValueError, OverflowError) as problem:
        raise DefinitionError(f"{field}: {problem}", hint="Write it like 7 d, 36 h or PT30M.") from None


def retention_or_forever(text: str | None, field: str) -> timedelta | None:
    """Like `retention`; None for `forever` and for nothing."""
    return None if not text or text.strip() == "forever" else retention(text, field)
