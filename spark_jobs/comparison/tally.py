"""Counts the rows of a comparison: by verdict and label, over time, and how far behind the live job was. One scan."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, FIRST_AT
from spark_jobs.comparison.verdicts import BASIS, CLOSED_AT, LABEL, VERDICT, EvidenceKind, Verdict
from spark_jobs.eventtime.durations import DAY, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.windows import DROPPED

_WIDTHS = (1000, 10_000, MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE, 180 * MINUTE, 360 * MINUTE, DAY)
_STRETCHES = 100
"""The most stretches of less than a day."""


@dataclass(slots=True)
class Delays:
    """How long after its close a window first came out, in ms; windows whose close and emission are known."""

    windows: int = 0
    total: int = 0
    largest: int | None = None

    def add(self, windows: int, total: int | None, largest: int | None) -> None:
        self.windows += windows
        self.total += total or 0
        if largest is not None:
            self.largest = largest if self.largest is None else max(self.largest, largest)

    def to_dict(self) -> dict[str, Any]:
        mean = round(self.total / self.windows, 1) if self.windows else None
        return {"windows": self.windows, "mean": mean, "largest": self.largest}


@dataclass(slots=True)
class TimeBucket:
    """The windows that start in one stretch of time: counts by verdict, and delays."""

    counts: Counter[str] = field(default_factory=Counter)
    delays: Delays = field(default_factory=Delays)


@dataclass(slots=True)
class Tally:
    """The counts of a comparison. `stretches` are of `width` ms, `days` UTC days, by their start (epoch ms).

    `emitted_until`: the latest emission time (epoch ms) among the rows that count.
    """

    width: int
    verdicts: Counter[str] = field(default_factory=Counter)
    labels: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    in_doubt: int = 0
    contradicted: int = 0
    late_records: int = 0
    emitted_until: int | None = None
    delays: Delays = field(default_factory=Delays)
    stretches: dict[int, TimeBucket] = field(default_factory=lambda: defaultdict(TimeBucket))
    days: dict[int, TimeBucket] = field(default_factory=lambda: defaultdict(TimeBucket))

    def add(self, other: Tally) -> None:
        """Count what another comparison has counted too, in stretches of the same width."""
        self.verdicts.update(other.verdicts)
        for verdict, found in other.labels.items():
            self.labels[verdict].update(found)
        self.in_doubt += other.in_doubt
        self.contradicted += other.contradicted
        self.late_records += other.late_records
        known = [until for until in (self.emitted_until, other.emitted_until) if until is not None]
        self.emitted_until = max(known, default=None)
        self.delays.add(other.delays.windows, other.delays.total, other.delays.largest)
        for mine, theirs in ((self.stretches, other.stretches), (self.days, other.days)):
            for start, one in theirs.items():
                mine[start].counts.update(one.counts)
                mine[start].delays.add(one.delays.windows, one.delays.total, one.delays.largest)

    @property
    def closed(self) -> int:
        """The number of windows that have closed."""
        return sum(n for verdict, n in self.verdicts.items() if verdict != Verdict.NOT_CLOSED)


def tally(rows: DataFrame, width: int = DAY) -> Tally:
    """Count the rows of a comparison, over time in stretches of `width` ms (see `width_of`)."""
    counted = Tally(width)
    in_doubt = (F.col(UNDECIDED) > 0) & (F.col(BASIS) != EvidenceKind.RECORDED) & (F.col(VERDICT) != Verdict.NOT_CLOSED)
    closed_at = F.col(CLOSED_AT)
    delay = F.when((closed_at > 0) & (closed_at < F.lit(NEVER)), F.col(FIRST_AT) - closed_at)
    stretch = F.floor(F.col(START) / F.lit(width)).cast("bigint")
    found = (
        rows.groupBy(stretch.alias("stretch"), VERDICT, LABEL)
        .agg(
            F.count(F.lit(1)),
            F.count_if(in_doubt),
            F.count_if(F.col("contradicted") > 0),
            F.sum(F.when(F.col(VERDICT) == Verdict.LATE_ARRIVALS, F.col(DROPPED))),
            F.count(delay),
            F.sum(delay),
            F.max(delay),
            F.max(AT),
        )
        .collect()
    )
    for number, verdict, label, windows, doubtful, contradicted, late, *delays, until in found:
        counted.verdicts[verdict] += windows
        if label:
            counted.labels[verdict][label] += windows
        counted.in_doubt += doubtful
        counted.contradicted += contradicted
        counted.late_records += late or 0
        if until is not None:
            counted.emitted_until = until if counted.emitted_until is None else max(counted.emitted_until, until)
        start = number * width
        for place in (counted.stretches[start], counted.days[start - start % DAY]):
            place.counts[verdict] += windows
            place.delays.add(*delays)
        counted.delays.add(*delays)
    return counted


def width_of(spans: Iterable[TimeRange]) -> int:
    """The width of a stretch (ms) for windows that start in `spans`: the smallest of which there are few enough."""
    bounds = [(span.start, span.end) for span in spans]
    if not bounds:
        return DAY
    length = max(end for _, end in bounds) - min(start for start, _ in bounds)
    return next((width for width in _WIDTHS if length <= width * _STRETCHES), DAY)
