"""Ranges of event time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Event times `[start, end)` in epoch ms. A range of windows is chosen by their start."""

    start: int
    end: int
