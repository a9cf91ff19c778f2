"""The lateness predicates: the only place where a record is found to be late.

`W` is the window operator's watermark before the record (epoch ms), `L` the allowed lateness (ms).
"""

from __future__ import annotations

from spark_jobs.eventtime.timestamps import saturating_add, wrapping_add
from spark_jobs.eventtime.windows import Window


def cleanup_time(window: Window, allowed_lateness: int) -> int:
    """The watermark at which the window's state is deleted: `end - 1 + L`, at most `MAX_TIMESTAMP` (rule 22)."""
    return saturating_add(window.max_timestamp, allowed_lateness)


def is_window_late(window: Window, allowed_lateness: int, watermark: int) -> bool:
    """`end - 1 + L <= W`: the record is dropped from this window (rule 18; `WindowOperator.isWindowLate`)."""
    return cleanup_time(window, allowed_lateness) <= watermark


def is_element_late(timestamp: int, allowed_lateness: int, watermark: int) -> bool:
    """`ts + L <= W`: a record that entered no window goes to the late output (rule 20; `isElementLate`).

    Flink adds without an overflow guard here.
    """
    return wrapping_add(timestamp, allowed_lateness) <= watermark


def is_merge_too_late(merged: Window, allowed_lateness: int, watermark: int) -> bool:
    """Whether Flink fails the job at a session merge (rule 28): its check adds without an overflow guard."""
    return wrapping_add(merged.max_timestamp, allowed_lateness) <= watermark
