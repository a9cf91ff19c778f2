"""The verdicts on windows of the live job. No Spark in this module."""

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

    @property
    def meaning(self) -> str:
        """What the verdict says, in a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Verdict.MATCH: "The live job emitted what its rules give, and late records do not change it.",
    Verdict.LATE_ARRIVALS: "The live job was right when it emitted the window; records that came later would change "
    "it.",
    Verdict.TIMING: "The live job's own clock decided: one order of the records near the close explains all keys.",
    Verdict.MISMATCH: "The live job emitted another value than its rules give for this log.",
    Verdict.MISSING: "The live job should have emitted the window, and did not.",
    Verdict.EXTRA: "The live job emitted a window that its rules do not give for this log.",
    Verdict.ALL_LATE: "Every record of the window was late: as its rules say, the live job emitted none.",
    Verdict.UNDECIDED: "The value differs, and the log does not show whether by timing.",
    Verdict.NOT_CLOSED: "The window is still open at the end offsets, and is not counted.",
}
UNEXPLAINED = (Verdict.MISMATCH, Verdict.MISSING, Verdict.EXTRA)
"""The verdicts on windows that differ for no reason that the log gives."""
