"""`verdicts.json`: what a run has found about the live job's windows. No Spark in this module."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

from pydantic import BaseModel, Field

from spark_jobs.lakehouse.verdict import UNEXPLAINED, Verdict
from spark_jobs.runs.life.documents import Document, DocumentPart


class Lag(DocumentPart):
    """How long after its close a window was emitted, in ms: the mean and the largest of `windows` windows."""

    windows: int = Field(default=0, description="windows for which the delay is known")
    mean: float | None = Field(default=None, description="their mean delay, ms")
    largest: int | None = Field(default=None, description="their largest delay, ms")

    @classmethod
    def merged(cls, lags: Iterable[Lag]) -> Lag:
        """The delay of all windows together; the mean is exact to 0.1 ms."""
        known = [lag for lag in lags if lag.windows]
        windows = sum(lag.windows for lag in known)
        total = sum(lag.windows * (lag.mean or 0) for lag in known)
        largest = max((lag.largest for lag in known if lag.largest is not None), default=None)
        return cls(windows=windows, mean=round(total / windows, 1) if windows else None, largest=largest)


class Stretch(DocumentPart):
    """The windows with a start from `start` on (epoch ms): counts by verdict, and the lag."""

    start: int = Field(description="begin of a stretch of time")
    counts: dict[str, int] = Field(default_factory=dict, description="windows by verdict")
    lag: Lag = Field(default_factory=Lag, description="from a close to the window's first row")

    @classmethod
    def merged(cls, stretches: Iterable[Stretch]) -> list[Stretch]:
        """Stretches of the same width, each start once and in order."""
        by_start: dict[int, list[Stretch]] = defaultdict(list)
        for one in stretches:
            by_start[one.start].append(one)
        return [
            cls(start=start, counts=_summed(s.counts for s in same), lag=Lag.merged(s.lag for s in same))
            for start, same in sorted(by_start.items())
        ]


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


class Compared(BaseModel):
    """What a comparison says of itself, in its document and in the report alike."""

    problem: str | None = Field(default=None, description="why nothing could be compared; null: it was")
    emitted: str = Field(default="", description="where the live job's rows were read")
    whole_range: bool = Field(default=True, description="whether the comparison was about the run's whole range")
    fidelity: str = Field(
        default="", description="`recorded`: the job recorded its records; else how exact the replay is"
    )
    windows: int = Field(default=0, description="closed windows that were compared")
    late_records: int = Field(default=0, description="late records of these windows")
    keys: list[str] = Field(default=[], description="names of the keys")
    values: list[str] = Field(default=[], description="names of the values that were compared")
    top: list[dict[str, Any]] = Field(
        default=[],
        description="windows that differ most: key, window, three values of each, verdict, label, basis, differs",
    )
    late_record_samples: list[dict[str, Any]] = Field(
        default=[], description="some late records of windows that differ"
    )
    width: int = Field(default=86_400_000, description="length of a stretch")
    stretches: list[Stretch] = Field(default=[], description="the windows over time")
    lag: Lag = Field(default=Lag(), description="from a close to the window's first row")
    lags: list[dict[str, str]] = Field(default=[], description="the delays by bin")
    notes: list[str] = Field(default=[], description="what else to know")
    tables: dict[str, str] = Field(default={}, description="the tables with all verdicts")


class Verdicts(Compared, Document):
    """`verdicts.json`: the comparison of what the live job emitted with the run's replay.

    `counts`: windows by verdict; `labels`: by verdict and label. Where `whole_range` is false, those windows were
    compared that have changed. `days`: the windows by UTC day. `windows_in_doubt`: windows with undecided records and
    no evidence: the log alone would not show a difference in these records. `contradicted`: windows whose evidence
    contradicts the log. `fits`: the cuts, by kind. Instants of `late_record_samples` are ISO-8601 texts, `late_by` is
    in ms. `deployments`: empty where there is only one. `tables` is empty after a dry run. `kept`: what became of the
    rows of the table of verdicts. `emitted_until`: the latest emission time (epoch ms) among the rows that count; it
    and `rows_outside_range` are not in the file.
    """

    FILE: ClassVar[str] = "verdicts.json"

    attempt: str | None = None
    counts: dict[str, int] = Field(default_factory=dict)
    labels: dict[str, dict[str, int]] = Field(default_factory=dict)
    windows_in_doubt: int = 0
    contradicted: int = 0
    rows_unreadable: int = 0
    rows_outside_range: int = Field(default=0, exclude=True)
    emitted_until: int | None = Field(default=None, exclude=True)
    fits: list[dict[str, Any]] = Field(default_factory=list)
    days: list[Stretch] = Field(default_factory=list)
    next_step: str = ""
    kept: dict[str, int] = Field(default_factory=dict)
    deployments: list[Deployment] = Field(default_factory=list)

    def share(self, *verdicts: str) -> float | None:
        """The share (0 to 1) of these verdicts among the windows that have closed; None where none has."""
        return sum(self.counts.get(v, 0) for v in verdicts) / self.windows if self.windows else None

    @property
    def unexplained(self) -> int:
        """Windows that differ for no reason that the log gives."""
        return sum(self.counts.get(verdict, 0) for verdict in UNEXPLAINED)

    @classmethod
    def merged(cls, parts: Sequence[Verdicts]) -> Verdicts:
        """What comparisons of different windows have found together, in stretches of the same width."""

        def total(name: str) -> int:
            return sum(getattr(part, name) for part in parts)

        def every(name: str) -> list[Any]:
            return [one for part in parts for one in getattr(part, name)]

        fidelities = {part.fidelity for part in parts}
        labels: dict[str, list[dict[str, int]]] = defaultdict(list)
        for part in parts:
            for verdict, found in part.labels.items():
                labels[verdict].append(found)
        counts = _summed(part.counts for part in parts)
        sums_and_lists: dict[str, Any] = {name: total(name) for name in _SUMS} | {n: every(n) for n in _LISTS}
        return cls(
            emitted=", ".join(dict.fromkeys(part.emitted for part in parts)),
            fidelity=fidelities.pop() if len(fidelities) == 1 else "log_order",
            whole_range=all(part.whole_range for part in parts),
            counts={verdict.value: counts[verdict] for verdict in Verdict if verdict in counts},
            labels={verdict: _summed(found) for verdict, found in labels.items()},
            notes=list(dict.fromkeys(every("notes"))),
            keys=list(dict.fromkeys(every("keys"))),
            values=list(dict.fromkeys(every("values"))),
            lag=Lag.merged(part.lag for part in parts),
            days=Stretch.merged(every("days")),
            stretches=Stretch.merged(every("stretches")),
            width=parts[0].width,
            kept=_summed(part.kept for part in parts),
            emitted_until=max((p.emitted_until for p in parts if p.emitted_until is not None), default=None),
            **sums_and_lists,
        )


_LISTS = ("fits", "lags", "top", "late_record_samples", "deployments")
_SUMS = ("windows", "windows_in_doubt", "contradicted", "late_records", "rows_unreadable", "rows_outside_range")


def _summed(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for one in counts:
        found.update(one)
    return dict(found)
