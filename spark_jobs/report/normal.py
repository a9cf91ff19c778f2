"""Is a run normal? Its figures among those of the published runs of its kind before it. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.formatting import count, percent
from spark_jobs.runs.figures import RunFigures
from spark_jobs.runs.status import RunKind

LONGEST = 30
"""The most earlier runs that a run is compared with."""
ENOUGH = 5
"""With fewer earlier runs nothing is called unusual."""
_ALIKE = 2
"""Backfills over ranges whose lengths differ by a larger factor are not compared: a week has more than a day."""


@dataclass(frozen=True, slots=True)
class _Figure:
    name: str
    of: Callable[[Mapping[str, Any], RunFigures], float | None]
    is_share: bool = False


def _restated_share(_: Mapping[str, Any], figures: RunFigures) -> float | None:
    return None if figures.match_share is None else 1 - figures.match_share


_FIGURES = (
    _Figure("Records read", lambda changes, figures: changes.get("records_read")),
    _Figure("Windows inserted", lambda changes, figures: (figures.by_change or {}).get("inserted")),
    _Figure("Share of published windows restated", _restated_share, is_share=True),
    _Figure("Late records", lambda changes, figures: figures.records_late),
    _Figure("Late share", lambda changes, figures: figures.late_share, is_share=True),
)


def normal_of(
    changes: Mapping[str, Any] | None, kind: str | None, span: TimeRange | None = None
) -> dict[str, Any] | None:
    """`span`: the run's range of windows. A backfill is compared with backfills over a range of about that length only.

    `runs`: how many earlier runs; `by_length`: they are chosen so; `figures`: each with `now`, `low`, `median`, `high`,
    `place` and `values`.

    `values` are those of the earlier runs, the oldest first, without those that are not known. `place` says in words
    where the run stands among them; `is_unusual`: outside all of them, and they are enough. None where no earlier run
    is known.
    """
    by_length = kind == RunKind.BACKFILL and span is not None
    of_kind = [e for e in (changes or {}).get("earlier") or [] if e.get("kind") == kind]
    earlier = [e for e in of_kind if not by_length or _is_alike(e.get("span"), span)][-LONGEST:]
    if changes is None or not earlier:
        return None
    found = []
    for figure in _FIGURES:
        now = figure.of(changes, RunFigures.of(changes))
        known = (figure.of(e, RunFigures.of(e)) for e in earlier)
        values = [value for value in known if value is not None]
        if now is None or not values:
            continue
        low, high = min(values), max(values)
        found.append(
            {
                "name": figure.name,
                "is_share": figure.is_share,
                "now": now,
                "low": low,
                "median": statistics.median(values),
                "high": high,
                "values": values,
                "place": _place(now, values),
                "is_unusual": len(values) >= ENOUGH and not low <= now <= high,
            }
        )
    if not found:
        return None
    return {
        "runs": len(earlier),
        "by_length": by_length,
        "since": earlier[0].get("requested_at"),
        "figures": found,
    }


def _is_alike(earlier: object, span: TimeRange | None) -> bool:
    """Whether an earlier run's range, as its document has it, is about as long as `span`."""
    if not isinstance(earlier, Mapping) or span is None:
        return False
    start, end = earlier.get("start"), earlier.get("end")
    if not isinstance(start, int) or not isinstance(end, int):
        return False
    lengths = sorted((max(end - start, 1), max(span.end - span.start, 1)))
    return lengths[1] <= _ALIKE * lengths[0]


def shown(value: float, is_share: bool) -> str:
    """A figure as the page shows it."""
    return percent(value, 1) if is_share else count(round(value))


def points(values: Sequence[float], now: float, width: int = 160, height: int = 32) -> list[tuple[float, float]]:
    """Where the earlier runs and this one stand in a small picture: (x, y), this run last."""
    edge, shown_values = 5, [*values, now]
    low, high = min(shown_values), max(shown_values)
    step = (width - 2 * edge) / LONGEST
    first = width - edge - step * (len(shown_values) - 1)

    def up(value: float) -> float:
        return height / 2 if high == low else height - edge - (value - low) / (high - low) * (height - 2 * edge)

    return [(round(first + i * step, 1), round(up(value), 1)) for i, value in enumerate(shown_values)]


def _place(now: float, values: Sequence[float]) -> str:
    if len(values) < ENOUGH:
        return "too few runs before to say"
    runs = f"all {len(values)} before"
    if now > max(values):
        return f"more than in {runs}"
    if now < min(values):
        return f"less than in {runs}"
    return "as before" if min(values) == max(values) else "within the range of the runs before"
