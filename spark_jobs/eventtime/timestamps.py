"""Integer epoch milliseconds with Java's limits.

Flink holds event time in a signed 64-bit long and gives the two ends of its range a meaning of their own. So there are
the same two constants here, and two additions: one that stops at the ends of the range, and one that wraps around.
"""

from __future__ import annotations

from typing import Final

MIN_TIMESTAMP: Final = -(2**63)
"""`Long.MIN_VALUE`: "no watermark yet" and "no timestamp" (golden rules 3 and 29)."""

MAX_TIMESTAMP: Final = 2**63 - 1
"""`Long.MAX_VALUE`: the watermark at the end of input, and an allowed lateness of "forever"."""


def saturating_add(timestamp: int, duration: int) -> int:
    """`timestamp + duration`, limited to the 64-bit range, as in `WindowOperator.cleanupTime`."""
    return max(MIN_TIMESTAMP, min(MAX_TIMESTAMP, timestamp + duration))


def wrapping_add(timestamp: int, duration: int) -> int:
    """`timestamp + duration` as Java's unchecked `long` addition gives it.

    Two of Flink's lateness checks add without a guard; golden rule 28 records what follows from it.
    """
    return (timestamp + duration + 2**63) % 2**64 - 2**63
