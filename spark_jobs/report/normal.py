"""Is a run normal? Its figures among those of the published runs of its kind before it. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from spark_jobs.formatting import count, percent
from spark_jobs.runs.figures import RunFigures

LONGEST = 30
"""The most earlier runs that a run is compared with."""
ENOUGH = 5
"""With fewer earlier runs nothing is called unusual."""


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


def normal_of(changes: Mapping[str, Any] | None, kind: str | None) -> dict[str, Any] | None:
    """`runs`: how many earlier runs; `figures`: each with `now`, `low`, `median`, `high`, `place` and `values`.

    `values` are those of the earlier runs, the oldest first, without those that are not known. `place` says in words
    where the run stands among them; `is_unusual`: outside all of them, and they are enough. None where no earlier run
    is known.
    """
    earlier = [e for e in (changes or {}).get("earlier") or [] if e.get("kind") == kind][-LONGEST:]
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
    return {"runs": len(earlier), "since": earlier[0].get("requested_at"), "figures": found} if found else None


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
    runs = f"all {len(values)} before" if len(values) > 1 else "the one before"
    if now > max(values):
        return f"more than in {runs}"
    if now < min(values):
        return f"less than in {runs}"
    return "as before" if min(values) == max(values) else "within the range of the runs before"
