"""Modes: which values a run computes."""

from __future__ import annotations

from enum import StrEnum


class Mode(StrEnum):
    """Which values to compute: what the live rules give, what is true now, or both in one aggregation."""

    FAITHFUL = "faithful"
    COMPLETE = "complete"
    BOTH = "both"
