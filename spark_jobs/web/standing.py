"""Where a pipeline stands: what its page shows of its last run, its history, its definition and its last runs.

The trend of a pipeline's shares over its runs is drawn as small line charts, in plain SVG, without the chart library:
that would cost Airflow's API server memory and about a second. They take their colours from the style sheet, in the
light and in the dark theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_jobs.errors import DocumentError
from spark_jobs.formatting import moment, percent
from spark_jobs.orchestration.describe import as_of_text, policy_in_words
from spark_jobs.orchestration.run_ids import KINDS, dag_id_of
from spark_jobs.report.normal import LONGEST, points
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.planning.last_run import LastRun
from spark_jobs.web.access import Reader
from spark_jobs.web.summary import RUNNING, Run

SHOWN = 10
"""The most runs on the page."""


@dataclass(frozen=True, slots=True)
class Standing:
    """`last`: what the last run has seen; None where no run has ended, or the reader may not read that run.

    `runs`: the last ones, the newest first. `dag_ids`: the DAGs that the reader may read.
    """

    pipeline: str
    last: LastRun | None
    runs: list[Run]
    dag_ids: list[str]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What is known, as titles and texts."""
        last = self.last
        if last is None:
            return []
        found = [("What it is", last.description)]
        if last.first is not None and last.last is not None:
            found.append(("History", f"event times from {moment(last.first)} to {moment(last.last - 1)} UTC"))
        if last.start is not None and last.end is not None:
            found.append(("Range of the last run", f"{moment(last.start)} to {moment(last.end)} UTC"))
        if last.policy is not None:
            found.append(("Publishing", f"{last.policy.value}: {policy_in_words(last.policy, last.tolerance)}"))
        found.append(("Owner", last.owner))
        return [(title, text) for title, text in found if text]

    @property
    def codes(self) -> list[tuple[str, str]]:
        """What is known and can be copied."""
        last = self.last
        if last is None:
            return []
        definition = f"{last.file} ({last.definition_hash[:12]})" if last.file else ""
        found = [("As of the last run", as_of_text(last)), ("Table", last.table), ("Definition", definition)]
        return [(title, text) for title, text in found if text]


def standing_of(pipeline: str, visible: Sequence[Run], store: RunStore, reader: Reader) -> Standing | None:
    """Where a pipeline stands; None where the reader may read none of its DAGs.

    `visible`: the runs that the reader may read, the newest first. Raises OSError where the store does not answer.
    """
    dag_ids = [dag_id for kind in KINDS if reader.may_read(dag_id := dag_id_of(kind, pipeline))]
    if not dag_ids:
        return None
    runs = [run for run in visible if run.pipeline == pipeline]
    try:
        last = LastRun.read(store.of_pipeline(pipeline))
    except DocumentError:  # the next run writes it anew
        last = None
    if last is not None and last.run_id not in {run.run_id for run in runs}:
        last = None
    return Standing(pipeline, last, runs[:SHOWN], dag_ids)


def last_reported(pipeline: str, visible: Sequence[Run]) -> Run | None:
    """The newest run of a pipeline that is not at work; where there is no such run, the newest."""
    runs = [run for run in visible if run.pipeline == pipeline]
    return next((run for run in runs if run.status != RUNNING), runs[0] if runs else None)


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
    low, high = percent(min(shares), 1), percent(max(shares), 1)
    places = points(
        shares[:-1],
        shares[-1],
        height=36,
        edge=4,
        steps=max(len(shares) - 1, 1),
        is_same=lambda _low, _high: low == high,
    )
    drawn = " ".join(f"{x:g},{y:g}" for x, y in places)
    return Line(name, len(shares), percent(shares[-1], 1), low, high, drawn, *places[-1])
