"""Counts the rows of a comparison: by verdict and label, over time, and how far behind the live job was. One scan."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import AT, FIRST_AT
from spark_jobs.comparison.verdicts import BASIS, CLOSED_AT, LABEL, VERDICT, EvidenceKind, Verdict
from spark_jobs.eventtime.durations import DAY, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import START
from spark_jobs.replay.band import UNDECIDED
from spark_jobs.replay.columns import DROPPED, NEVER
from spark_jobs.runs.life.verdicts import Lag, Stretch, Verdicts

_WIDTHS = (1000, 10_000, MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE, 180 * MINUTE, 360 * MINUTE, DAY)
_STRETCHES = 100
"""The most stretches of less than a day."""


def tally(rows: DataFrame, width: int = DAY) -> Verdicts:
    """Count the rows of a comparison, over time in stretches of `width` ms (see `width_of`)."""
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
    parts = []
    for number, verdict, label, windows, doubtful, contradicted, late, delayed, total, largest, until in found:
        start, counts = number * width, {verdict: windows}
        lag = Lag(windows=delayed, mean=total / delayed if delayed else None, largest=largest)
        parts.append(
            Verdicts(
                windows=0 if verdict == Verdict.NOT_CLOSED else windows,
                counts=counts,
                labels={verdict: {label: windows}} if label else {},
                windows_in_doubt=doubtful,
                contradicted=contradicted,
                late_records=late or 0,
                lag=lag,
                days=[Stretch(start=start - start % DAY, counts=counts, lag=lag)],
                stretches=[Stretch(start=start, counts=counts, lag=lag)],
                width=width,
                emitted_until=until,
            )
        )
    return Verdicts.merged(parts) if parts else Verdicts(width=width)


def width_of(spans: Iterable[TimeRange]) -> int:
    """The width of a stretch (ms) for windows that start in `spans`: the smallest of which there are few enough."""
    bounds = [(span.start, span.end) for span in spans]
    if not bounds:
        return DAY
    length = max(end for _, end in bounds) - min(start for start, _ in bounds)
    return next((width for width in _WIDTHS if length <= width * _STRETCHES), DAY)
