"""What was final below the first record that is still there: it stays as the run that saw all of it has published it.

Retention takes the beginning of a log away, and with it the records that had moved the watermark, or that had been the
first of their duplicates. A window that was decided before is not decided again: the live job's value, and its late
records, are those that are published. A deduplication remembers ids for a while, so that it moves this frontier.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deduplicate import Deduplicate, DeduplicateKind
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.positions import Bucket, largest
from spark_jobs.replay.columns import CLOSED_AT, NEVER
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.night.reading import Reading

_FOR_EVER = 1 << 62


@dataclass(frozen=True, slots=True)
class Final:
    """Which windows were final. Times are epoch ms.

    Attributes:
        closed_before: Windows that were closed before this arrival; None: nothing is known to be final.
        until: The largest window end that was closed by then, or that a deduplication's memory reaches.
        lateness: The allowed lateness: a window is final that much later.
        by_own_close: Whether only a window's own close counts: partitions close their windows by themselves.
    """

    closed_before: int | None
    until: int
    lateness: int
    by_own_close: bool

    @classmethod
    def none(cls) -> Final:
        """Nothing was final."""
        return cls(None, 0, 0, by_own_close=False)

    @classmethod
    def of(cls, pipeline: Pipeline, spec: ReplaySpec, reading: Reading, published: DataFrame) -> Final:
        """What was final of the published windows, by what is gone of the reading."""
        cut = first_left(reading)
        if cut is None or CLOSED_AT not in published.columns:
            return cls.none()
        before = cut + _remembered(pipeline.deduplicate)
        closed = F.unix_millis(CLOSED_AT) < F.lit(before)
        last = published.where(closed).agg(F.max(F.unix_millis("window_end"))).collect()[0][0]
        until = largest(last, reading.final_until)
        if until is None:
            return cls.none()
        return cls(before, until, spec.allowed_lateness, by_own_close=spec.rules.closes_by_partition)

    @property
    def is_there(self) -> bool:
        """Whether anything was final."""
        return self.closed_before is not None

    def is_final(self, window_end: Column, closed_at: Column) -> Column:
        """Whether a window was final, by its end and its close (epoch ms, null: it was not emitted)."""
        if self.closed_before is None:
            return F.lit(False)
        own = F.coalesce(closed_at < F.lit(self.closed_before), F.lit(False))
        return own if self.by_own_close else window_end + F.lit(self.lateness) <= F.lit(self.until)


def first_left(reading: Reading) -> int | None:
    """The arrival (epoch ms) of the first record that is there of a partition that has lost its beginning.

    None: no partition has. Where nothing is left, all that was closed is final.
    """
    cuts = []
    for partition in reading.partitions.values():
        buckets = [bucket for _, bucket in sorted(partition.buckets.items()) if bucket.count or bucket.gone]
        if buckets and buckets[0].gone:
            cuts.append(_first_arrival(buckets))
    return min(cuts, default=None)


def _first_arrival(buckets: list[Bucket]) -> int:
    return min((b.first_arrival for b in buckets if b.count and b.first_arrival is not None), default=_FOR_EVER)


def final_until(pipeline: Pipeline, reading: Reading, closes: InMemoryTimeline) -> int | None:
    """Up to which window end all was final before the first record that is still there; None: nothing was.

    `closes`: those of the run before, which has seen all of the log, or what was there of it then.
    """
    cut = first_left(reading)
    if cut is None or not len(closes.x_from):
        return None
    before = cut + _remembered(pipeline.deduplicate)
    is_open = closes.positions[:, 0] >= min(before, NEVER)
    first = int(closes.x_from[is_open][0]) if is_open.any() else closes.never_from
    until = min(max(first, _reached_by_ids(pipeline.deduplicate, reading)), closes.never_from)
    return until if until == MIN_TIMESTAMP else windows_of(pipeline).closed_until(until)


def _remembered(section: Deduplicate | None) -> int:
    """How long an id is remembered in processing time."""
    if section is None or section.kind in (DeduplicateKind.WITHIN_WATERMARK, DeduplicateKind.DROP_DUPLICATES):
        return 0
    return section.within if section.within is not None else _FOR_EVER


def _reached_by_ids(section: Deduplicate | None, reading: Reading) -> int:
    """Up to which event time the watermark holds the ids of gone records, where it is what forgets them."""
    if section is None or section.kind in (DeduplicateKind.ROW_TIME, DeduplicateKind.PROCESSING_TIME):
        return 0
    if section.kind is DeduplicateKind.DROP_DUPLICATES and not section.event_time:
        return _FOR_EVER
    return max((span.end for span, _ in reading.gone_spans()), default=0)
