"""What publishing does to one window, and what of it a reader sees."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class WindowChange(StrEnum):
    """What publishing does to one window.

    A window is `updated` where a value, a count or its state differs. Where only a column of `BOOKKEEPING_COLUMNS`
    differs it is `bookkeeping`: readers see the same numbers, and nothing is restated. So it is where a window keeps
    its values with the state `history_gone`.

    A window that was published open had no final value yet. What it gets now restates nothing: it is `was_open`, or
    `outgrown` where its row goes because another one is in its place (a session that has grown, a first pane).
    """

    INSERTED = "inserted"
    UPDATED = "updated"
    RETRACTED = "retracted"
    WAS_OPEN = "was_open"
    OUTGROWN = "outgrown"
    BOOKKEEPING = "bookkeeping"

    @property
    def is_visible(self) -> bool:
        """A reader's number differs, comes or goes."""
        return self is not WindowChange.BOOKKEEPING


RESTATED = (WindowChange.UPDATED, WindowChange.RETRACTED)
"""A number that readers had is another one now, or is gone."""
REMOVED = (WindowChange.RETRACTED.value, WindowChange.OUTGROWN.value)
"""The row is gone."""
VISIBLE = tuple(change for change in WindowChange if change.is_visible)
BOOKKEEPING_COLUMNS = frozenset({"closed_at"})
"""Columns that say when the run learnt of a window's close: no number of a reader depends on them."""


def visible(counts: Mapping[str, int]) -> dict[str, int]:
    """Windows by change, without those of which only the bookkeeping differs."""
    return {name: count for name, count in counts.items() if name != WindowChange.BOOKKEEPING}
