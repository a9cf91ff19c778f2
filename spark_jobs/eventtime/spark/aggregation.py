"""The windowed aggregation of a query, batch by batch, on windows that lie on a grid (Spark rules 15 to 23).

`late` and `out` are watermarks of a batch in the unit of the windows: late records are found by the first, windows come
out by the second. A window's contents are the list of its elements, so that a caller can compute any aggregate.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

from spark_jobs.eventtime.windows import Window

E = TypeVar("E")


class OutputMode(StrEnum):
    """Which rows a batch gives: closed windows once, changed ones as they are, or all."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Input(Generic[E]):
    """One record in front of the aggregation: its event time, and with sessions its own end (`alone`).

    `task`: the part of a batch that one task reads, which is a partition of the topic.
    """

    key: Hashable
    timestamp: int
    element: E
    alone: Window | None = None
    task: Hashable = None


@dataclass(frozen=True, slots=True)
class Row(Generic[E]):
    """One row that the sink gets, with all that the window holds."""

    key: Hashable
    window: Window
    elements: tuple[E, ...]


@dataclass(frozen=True, slots=True)
class Dropped(Generic[E]):
    """One record that a window did not take. `window` None: one of a session, which belongs to none."""

    element: E
    window: Window | None


@dataclass(slots=True)
class Given(Generic[E]):
    """What one batch gave: rows in any order, and the records that it dropped as late."""

    rows: list[Row[E]] = field(default_factory=list["Row[E]"])
    dropped: list[Dropped[E]] = field(default_factory=list["Dropped[E]"])


def is_late(window: Window, watermark: int) -> bool:
    """`end <= W`: a record is dropped from this window (Spark rule 15; `WatermarkSupport`)."""
    return window.end <= watermark


def is_out(window: Window, watermark: int) -> bool:
    """`end <= W`: the window comes out, and its state goes (Spark rules 19, 20)."""
    return window.end <= watermark
