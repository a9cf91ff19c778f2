"""What of the numbers that readers have seen a run changes: how many windows, when, whose, and by how much.

Readers have a window that is published with a final value. New windows and windows that were open before are no
restatement. No Spark in this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from spark_jobs.definition.restatement import Restatement, ValueLimit
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.formatting import percent, plain, plural, signed

COMPLETE_NAME = "__complete"
_MOST_KEYS = 3
_MOST_MOVES = 4


class Move(BaseModel):
    """How one column moves. Numbers alone have `net`, `apart` and `of`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    column: str = Field(description="a column of the windows")
    aggregate: str = Field(description="the aggregate that it is a value of")
    windows: int = Field(default=0, description="restated windows in which it differs")
    net: float | None = Field(default=None, description="the sum of the differences; null: its values do not add up")
    apart: float | None = Field(default=None, description="the sum of the differences, up and down added")
    of: float | None = Field(default=None, description="the sum of its absolute values that readers had on those days")


class Restated(BaseModel):
    """Windows that readers had and that get another value, or go."""

    model_config = ConfigDict(frozen=True, extra="allow")

    windows: int = Field(default=0, description="published windows, not open before, that change or go")
    days: int = Field(default=0, description="days (UTC, by the windows' starts) on which one of them lies")
    first_day: str = Field(default="", description="the first of these days")
    last_day: str = Field(default="", description="the last of them")
    had: int = Field(default=0, description="windows with a value that readers had on these days")
    back: int | None = Field(default=None, description="ms from the oldest one's start to the last published end")
    keys: int = Field(default=0, description="different keys of theirs")
    some_keys: tuple[dict[str, Any], ...] = Field(default=(), description="some of these keys")
    moves: tuple[Move, ...] = Field(default=(), description="how each column moves")

    @property
    def share(self) -> float | None:
        """The share (0 to 1) of the windows that readers had on the days on which one changes."""
        return self.windows / self.had if self.had else None

    def in_words(self) -> str:
        """Direction and amount by aggregate, and where, in one sentence."""
        if not self.windows:
            return "No number that readers have had changes."
        faithful, complete = self._of(is_complete=False), self._of(is_complete=True)
        parts = []
        if any(not move.column.endswith(COMPLETE_NAME) for move in self.moves):
            parts.append(f"Faithful values: {faithful or 'none changes'}")
        if any(move.column.endswith(COMPLETE_NAME) for move in self.moves):
            parts.append(f"Complete values: {complete or 'none changes'}")
        said = "; ".join(parts[:1] + [part[:1].lower() + part[1:] for part in parts[1:]])
        return f"{said}{', in ' if said else 'Changed are '}{self.where}."

    @property
    def where(self) -> str:
        """5 of the 1,950 windows that readers had on 5 May 2013 (0.26 %; Graz)."""
        of = "; ".join(_key(key) for key in self.some_keys) if 0 < self.keys <= _MOST_KEYS else ""
        whose = of or (plural(self.keys, "key") if self.keys else "")
        about = "; ".join(filter(None, (percent(self.windows, self.had) if self.had else "", whose)))
        return f"{self.windows:,} of the {plural(self.had, 'window')} that readers had on {self.when}" + (
            f" ({about})" if about else ""
        )

    @property
    def when(self) -> str:
        first, last = _day(self.first_day), _day(self.last_day)
        if self.days <= 1:
            return first
        return f"{self.days:,} days between {first} and {last}" if self.days > 2 else f"{first} and {last}"

    def _of(self, *, is_complete: bool) -> str:
        moved = [m for m in self.moves if m.column.endswith(COMPLETE_NAME) is is_complete and m.windows]
        shown = [_moved(move) for move in moved[:_MOST_MOVES]]
        more = [f"{len(moved) - _MOST_MOVES} more"] if len(moved) > _MOST_MOVES else []
        return ", ".join(shown + more)


def _moved(move: Move) -> str:
    if move.net is None or not move.of:
        return f"`{move.aggregate}` in {plural(move.windows, 'window')}"
    sign = "+" if move.net > 0 else "\N{MINUS SIGN}" if move.net < 0 else "\N{PLUS-MINUS SIGN}"
    return f"`{move.aggregate}` {signed(move.net)} ({sign}{percent(abs(move.net), move.of)})"


def _key(key: dict[str, Any]) -> str:
    return ", ".join(plain(str(value), 40) for value in key.values())


def _day(text: str) -> str:
    try:
        return f"{date.fromisoformat(text):%-d %B %Y}" if text else "one day"
    except ValueError:
        return plain(text, 40)


def beyond(tolerance: Restatement, restated: Restated) -> Iterator[str]:
    """The limits of a tolerance that a restatement is beyond, each in words; none: it is within all of them."""
    if not restated.windows:
        return
    share, most = restated.share, tolerance.share and tolerance.share.share
    if most is not None and (share is None or share > most):
        yield f"{percent(share or 1, 1)} of the windows, and {most * 100:g} % may change"
    if tolerance.windows is not None and restated.windows > tolerance.windows:
        yield f"{plural(restated.windows, 'window')}, and {tolerance.windows:,} may change"
    if tolerance.reach is not None and (restated.back is None or restated.back > tolerance.reach):
        back = "an unknown time" if restated.back is None else format_duration(restated.back)
        yield f"{back} back, and {format_duration(tolerance.reach)} may change"
    for aggregate, limit in tolerance.change.items():
        for move in restated.moves:
            if move.aggregate == aggregate and (said := _too_far(move, limit)):
                yield said
                break


def _too_far(move: Move, limit: ValueLimit) -> str:
    if not move.windows:
        return ""
    if move.apart is None:
        return f"`{move.aggregate}` is no number: whether it moves too far cannot be told"
    if limit.number is not None:
        most = f"{limit.number:g}"
        return (
            f"`{move.aggregate}` moves by {move.apart:,g}, and {most} is allowed" if move.apart > limit.number else ""
        )
    most = limit.share or 0.0
    is_too_far = move.apart > most * (move.of or 0.0) * (1 + 1e-12)
    by = percent(move.apart, move.of) if move.of else "more than all of its value"
    return f"`{move.aggregate}` moves by {by}, and {most * 100:g} % is allowed" if is_too_far else ""
