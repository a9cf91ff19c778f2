"""`verdicts.json`: what a run has found about the live job's windows. No Spark in this module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, model_validator

from spark_jobs.lakehouse.verdict import EARLIER_NAMES
from spark_jobs.runs.documents import Document, DocumentPart


class Lag(DocumentPart):
    """How long after its close a window was emitted, in ms: the mean and the largest of `windows` windows."""

    windows: int = Field(default=0, description="windows for which the delay is known")
    mean: float | None = Field(default=None, description="their mean delay, ms")
    largest: int | None = Field(default=None, description="their largest delay, ms")


class Stretch(DocumentPart):
    """The windows with a start from `start` on (epoch ms): counts by verdict, and the lag."""

    start: int = Field(description="begin of a stretch of time")
    counts: dict[str, int] = Field(default_factory=dict, description="windows by verdict")
    lag: Lag = Field(default_factory=Lag, description="from a close to the window's first row")


class Deployment(DocumentPart):
    """What was found about one of several deployments of the live job."""

    name: str = Field(default="", description="a deployment of the live job")
    start: str | None = Field(
        default=None, alias="from", description="the first start of its windows; null: from the first on"
    )
    end: str | None = Field(default=None, alias="to", description="its windows start before this time; null: up to now")
    emitted: str = Field(default="", description="where its rows were read")
    own_rules: bool = Field(
        default=False, description="whether it was judged by other rules than those of the definition"
    )
    windows: int = Field(default=0, description="closed windows of it that were compared")
    verdicts: dict[str, int] = Field(default_factory=dict, description="windows by verdict")


class Verdicts(Document):
    """`verdicts.json`: the comparison of what the live job emitted with the run's replay.

    `problem`: why nothing could be compared; None: it was compared. `counts`: windows by verdict; `labels`: by verdict
    and label. `windows`: those that have closed. `whole_range`: all windows of the run's range were compared, else
    those that have changed. `days` and `stretches`: the same over time, by UTC day and by ranges of `width` ms.
    `tables`: where the rows are; empty after a dry run. The other fields are those of
    `spark_jobs.comparison.report.Report`; `kept` says what became of the rows of the table of verdicts.
    """

    FILE: ClassVar[str] = "verdicts.json"

    attempt: str | None = None
    problem: str | None = None
    emitted: str = ""
    fidelity: str = ""
    whole_range: bool = True
    windows: int = 0
    counts: dict[str, int] = Field(default_factory=dict)
    labels: dict[str, dict[str, int]] = Field(default_factory=dict)
    windows_in_doubt: int = 0
    contradicted: int = 0
    late_records: int = 0
    rows_unreadable: int = 0
    keys: list[str] = Field(default_factory=list)
    values: list[str] = Field(default_factory=list)
    fits: list[dict[str, Any]] = Field(default_factory=list)
    lags: list[dict[str, str]] = Field(default_factory=list)
    lag: Lag = Field(default_factory=Lag)
    days: list[Stretch] = Field(default_factory=list)
    stretches: list[Stretch] = Field(default_factory=list)
    width: int = 86_400_000
    top: list[dict[str, Any]] = Field(default_factory=list)
    late_record_samples: list[dict[str, Any]] = Field(default_factory=list)
    next_step: str = ""
    notes: list[str] = Field(default_factory=list)
    kept: dict[str, int] = Field(default_factory=dict)
    tables: dict[str, str] = Field(default_factory=dict)
    deployments: list[Deployment] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _in_todays_words(cls, data: Any) -> Any:
        return in_todays_words(data)

    def share(self, *verdicts: str) -> float | None:
        """The share of these verdicts among the windows that have closed; None where none has."""
        return sum(self.counts.get(v, 0) for v in verdicts) / self.windows if self.windows else None


def in_todays_words(document: Any) -> Any:
    """The document with the verdicts' names of today. What is damaged in it stays as it is."""

    def by_name(counts: Any) -> Any:
        return {EARLIER_NAMES.get(k, k): v for k, v in counts.items()} if isinstance(counts, dict) else counts

    def each(rows: Any, name: str, change: Callable[[Any], Any]) -> Any:
        if not isinstance(rows, list):
            return rows
        return [row | {name: change(row[name])} if isinstance(row, dict) and name in row else row for row in rows]

    def renamed(verdict: Any) -> Any:
        return EARLIER_NAMES.get(verdict, verdict) if isinstance(verdict, str) else verdict

    if not isinstance(document, dict):
        return document
    changes = {
        **dict.fromkeys(("counts", "labels"), by_name),
        **dict.fromkeys(("days", "stretches"), lambda rows: each(rows, "counts", by_name)),
        "deployments": lambda rows: each(rows, "verdicts", by_name),
        "top": lambda rows: each(rows, "verdict", renamed),
    }
    return document | {name: change(document[name]) for name, change in changes.items() if name in document}
