"""Is a run normal? Its figures among those of the published runs of its kind before it. Pure functions."""

from __future__ import annotations

import operator
import statistics
from collections.abc import Callable, Sequence

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.formatting import count, percent
from spark_jobs.lakehouse.change import WindowChange
from spark_jobs.report.model import Figure, Normal
from spark_jobs.runs.life.documents import Changes
from spark_jobs.runs.life.status import RunKind
from spark_jobs.runs.work.figures import RunFigures

LONGEST = 30
"""The most earlier runs that a run is compared with."""
WIDTH = 160
"""Of a picture of runs, in pixels."""
ENOUGH = 5
"""With fewer earlier runs nothing is called unusual."""
_ALIKE = 2
"""Backfills over ranges whose lengths differ by a larger factor are not compared: a week has more than a day."""


_FIGURES: tuple[tuple[str, bool, Callable[[RunFigures], float | None]], ...] = (
    ("New records read", False, lambda figures: figures.counts["records_read"]),
    ("Windows inserted", False, lambda figures: (figures.by_change or {}).get(WindowChange.INSERTED)),
    ("Windows restated", False, lambda f: f.restated),
    ("Share restated of the windows of those days", True, lambda f: f.restated_share),
    ("Late records", False, lambda figures: figures.counts["records_late"]),
)
"""Each with its name, whether it is a share, and its value."""


def normal_of(changes: Changes | None, kind: str | None, span: TimeRange | None = None) -> Normal | None:
    """The run among the earlier ones of its kind; None where no earlier run is known.

    `span`: the run's range of windows. A backfill is compared with backfills over a range of about that length only.
    """
    if changes is None:
        return None
    by_length = kind == RunKind.BACKFILL and span is not None
    of_kind = [e for e in changes.earlier if e.kind == kind]
    earlier = [e for e in of_kind if not by_length or _is_alike(e.span, span)][-LONGEST:]
    own, before = RunFigures.of(changes), [RunFigures.of(e) for e in earlier]
    found = []
    for name, is_share, value_of in _FIGURES:
        now, values = value_of(own), [value for f in before if (value := value_of(f)) is not None]
        if now is None or not values:
            continue
        low, high = min(values), max(values)
        found.append(
            Figure(
                name=name,
                is_share=is_share,
                now=now,
                low=low,
                median=statistics.median(values),
                high=high,
                values=tuple(values),
                place=_place(now, values),
                is_unusual=len(values) >= ENOUGH and not low <= now <= high,
            )
        )
    if not found:
        return None
    return Normal(runs=len(earlier), by_length=by_length, since=earlier[0].requested_at or None, figures=tuple(found))


def _is_alike(earlier: TimeRange | None, span: TimeRange | None) -> bool:
    """Whether an earlier run's range is about as long as `span`."""
    if earlier is None or span is None:
        return False
    lengths = sorted(max(one.end - one.start, 1) for one in (earlier, span))
    return lengths[1] <= _ALIKE * lengths[0]


def shown(value: float, is_share: bool) -> str:
    """A figure as the page shows it."""
    return percent(value, 1) if is_share else count(round(value))


def points(
    values: Sequence[float],
    now: float,
    *,
    height: int = 32,
    edge: int = 5,
    steps: int = LONGEST,
    is_same: Callable[[float, float], bool] = operator.eq,
) -> list[tuple[float, float]]:
    """Where the earlier runs and this one stand in a small picture of `WIDTH`: (x, y), this run last, at its right.

    `steps`: so many runs fit before this one. `is_same`: whether the lowest and the highest value are shown alike.
    """
    shown_values = [*values, now]
    low, high = min(shown_values), max(shown_values)
    step = (WIDTH - 2 * edge) / steps
    first = WIDTH - edge - step * (len(shown_values) - 1)

    def up(value: float) -> float:
        return height / 2 if is_same(low, high) else height - edge - (value - low) / (high - low) * (height - 2 * edge)

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
