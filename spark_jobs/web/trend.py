"""The trend of a pipeline's shares over its runs, as small line charts.

The lines are plain SVG, without the chart library: that would cost Airflow's API server memory and about a second. They
take their colours from the style sheet, in the light and in the dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.formatting import percent
from spark_jobs.web.summary import Run

LONGEST = 30
"""The most runs in one line."""

WIDTH, HEIGHT, EDGE = 160, 36, 4


@dataclass(frozen=True, slots=True)
class Line:
    """One share over the runs, the oldest first. `points` is for an SVG polyline; `x`, `y` is its last point."""

    name: str
    runs: int
    now: str
    low: str
    high: str
    points: str
    x: float
    y: float

    @property
    def description(self) -> str:
        """The text alternative of the line."""
        if self.runs == 1:
            return f"{self.name}: {self.now} in the only run that has this share"
        return f"{self.name} over {self.runs} runs: lowest {self.low}, highest {self.high}, now {self.now}"


@dataclass(frozen=True, slots=True)
class Trend:
    """The lines of a pipeline's runs of one kind; None where no run has the share."""

    pipeline: str
    kind: str
    match: Line | None
    late: Line | None
    unexplained: Line | None = None


def trends_of(runs: Iterable[Run]) -> list[Trend]:
    """A trend for each pipeline and kind of run with a share, in the order of `runs`, the last requested one first.

    A backfill computes a range, a reconciliation what is new: in one line their shares would jump.
    """
    alike: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        alike.setdefault((run.pipeline, run.kind), []).append(run)
    trends = (
        Trend(
            pipeline,
            kind,
            _line("Match share", [r.match_share for r in of_it]),
            _line("Late share", [r.late_share for r in of_it]),
            _line("Unexplained share", [r.unexplained_share for r in of_it]),
        )
        for (pipeline, kind), of_it in alike.items()
    )
    return [trend for trend in trends if trend.match or trend.late or trend.unexplained]


def _line(name: str, last_first: Sequence[float | None]) -> Line | None:
    shares = [share for share in last_first if share is not None][:LONGEST][::-1]
    if not shares:
        return None
    low, high = min(shares), max(shares)
    step = (WIDTH - 2 * EDGE) / max(len(shares) - 1, 1)
    places = [
        (round(WIDTH - EDGE - (len(shares) - 1 - i) * step, 1), round(_height(share, low, high), 1))
        for i, share in enumerate(shares)
    ]
    points = " ".join(f"{x:g},{y:g}" for x, y in places)
    return Line(name, len(shares), percent(shares[-1], 1), percent(low, 1), percent(high, 1), points, *places[-1])


def _height(share: float, low: float, high: float) -> float:
    if percent(high, 1) == percent(low, 1):  # then the page says that it is always the same
        return HEIGHT / 2
    return HEIGHT - EDGE - (share - low) / (high - low) * (HEIGHT - 2 * EDGE)
