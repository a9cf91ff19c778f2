"""The verdicts on windows of the live job, and the names that two of them had before. No Spark in this module."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """The result of a comparison for one key and window; `spark_jobs.comparison.verdicts` has the table."""

    MATCH = "match"
    LATE_ARRIVALS = "late_arrivals"
    TIMING = "timing"
    MISMATCH = "mismatch"
    MISSING = "missing"
    EXTRA = "extra"
    ALL_LATE = "all_late"
    UNDECIDED = "undecided"
    NOT_CLOSED = "not_closed"


EARLIER_NAMES = {"drift": Verdict.MISMATCH.value, "unexpected": Verdict.EXTRA.value}
"""Tables, documents and suites may still have these names: they are read as the names of today."""
