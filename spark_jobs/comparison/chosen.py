"""What a run compares of one deployment's windows: all, or those that closed or changed since the last comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.delivered import delivered_since
from spark_jobs.comparison.emitted import EmittedRows
from spark_jobs.comparison.verdicts import VERDICT, Verdict
from spark_jobs.definition.deployments import Deployed
from spark_jobs.eventtime.ranges import TimeRange, ranges_of
from spark_jobs.eventtime.windows import AlignedWindows, RegularWindows
from spark_jobs.lakehouse.verdicts import LastComparison, VerdictTable
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import is_within
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.runs.planning.chunking import chunks_of
from spark_jobs.runs.work.comparing import ToCompare
from spark_jobs.runs.work.job import Job
from spark_jobs.spark.cached import CachedFrames

COMMIT_DELAY = 3_600_000
"""Sinks commit in batches: a row may come so much later than it was emitted (ms)."""
_MAX_STARTS = 100_000
_MAX_RANGES = 4
"""The most ranges; nearer ones are joined. The replay of each is planned on its own, which takes a second."""


@dataclass(frozen=True)
class Chosen:
    """What is compared: all windows in `spans`, and of those in `older` the windows of `pairs`.

    `is_partial`: the other windows of the range were compared before, and have not changed.
    """

    spans: Sequence[TimeRange]
    older: Sequence[TimeRange] = ()
    pairs: DataFrame | None = None
    is_partial: bool = False

    @property
    def everywhere(self) -> Sequence[TimeRange]:
        return (*self.older, *self.spans)

    @property
    def hull(self) -> TimeRange:
        """A range that holds all starts."""
        if not self.everywhere:
            return TimeRange(0, 1)
        return TimeRange(min(s.start for s in self.everywhere), max(s.end for s in self.everywhere))


def chosen_windows(
    job: Job,
    deployed: Deployed,
    rows: EmittedRows,
    table: VerdictTable,
    windows: ToCompare,
    last: LastComparison | None,
    cached: CachedFrames,
) -> tuple[Chosen, list[str]]:
    """What to compare of a deployment, and notes about it. `last`: its last complete comparison."""
    if windows.touched is None or windows.before is None:
        return Chosen(deployed.within(windows.chunks)), []
    if last is None or not _has_seen(last, windows.before):
        note = "all windows were compared: no complete comparison came before"
        return Chosen(deployed.within(job.plan.chunks)), [note]
    notes: list[str] = []
    recent = windows.touched.recent.start
    spans = deployed.within(windows.chunks)
    has_other_windows = deployed.has_own_rules and windows_of(deployed.pipeline) != job.spec.windows
    if deployed.has_own_rules:
        # Its watermark is another one: what it had not closed for good the last time may have come out since.
        recent = min(recent, _not_final_from(deployed, last))
        everything = deployed.within(job.plan.chunks)
        spans = [TimeRange(max(s.start, recent), s.end) for s in everything if s.end > recent]
    pairs, unseen = _touched_before(job, deployed, rows, table, windows, last, recent)
    if unseen:
        notes.append(
            "of windows that were compared before, those with new records were compared again; new rows of the live "
            "job for other ones show only if `live.emitted_at` is given"
        )
    if pairs is None:
        return Chosen(spans, is_partial=deployed.name is not None), notes
    pairs = cached.keep_keys(pairs)
    starts = [row[0] for row in pairs.select(START).distinct().orderBy(START).limit(_MAX_STARTS + 1).collect()]
    if has_other_windows:  # the pairs are windows of the definition, which the deployment did not have
        return Chosen(deployed.within(job.plan.chunks) if starts else spans, is_partial=True), notes
    if len(starts) > _MAX_STARTS:
        low, high = pairs.agg(F.min(START), F.max(START)).collect()[0]
        reach: tuple[TimeRange, ...] = (TimeRange(low, high + 1),)
    else:
        step = job.spec.windows.start_step if isinstance(job.spec.windows, RegularWindows) else 86_400_000
        reach = ranges_of(starts, step, _MAX_RANGES)
    older = [chunk for part in reach for chunk in chunks_of(job.spec.windows, part)]
    return Chosen(spans, deployed.within(older), pairs, is_partial=True), notes


def _touched_before(
    job: Job,
    deployed: Deployed,
    rows: EmittedRows,
    table: VerdictTable,
    windows: ToCompare,
    last: LastComparison,
    recent: int,
) -> tuple[DataFrame | None, bool]:
    """The windows that start before `recent` (epoch ms) and may have another verdict now; None: there are none.

    Also whether nothing shows new rows of the live job for other windows.
    """
    keys, touched = job.spec.keys, windows.touched
    assert touched is not None
    parts = [touched.pairs] if touched.older is not None and touched.pairs is not None else []
    before = TimeRange(min(job.plan.span.start, recent), recent)
    earlier = before if deployed.name is None else deployed.clipped(before)
    if earlier is None:
        return None, False
    since = None if last.emitted_until is None else last.emitted_until - COMMIT_DELAY
    again = rows.changed(earlier, since, last.emitted_offsets)
    if again is not None:
        parts.append(again)
    current = table.current()
    if current is not None:  # their rows may have come since
        is_missing = current.where(F.col(VERDICT) == Verdict.MISSING)
        starts, ends = (F.unix_millis(name).alias(name) for name in (START, END))
        parts.append(is_missing.select(*(f"`{k}`" for k in keys), starts, ends))
        corrected = delivered_since(current, deployed.pipeline, keys)
        if corrected is not None:
            parts.append(corrected.select(*(f"`{k}`" for k in keys), starts, ends))
    unseen = again is None and rows.live.emitted_at is None
    if not parts:
        return None, unseen
    columns = [*(f"`{k}`" for k in keys), START, END]
    united = reduce(DataFrame.unionByName, (part.select(*columns) for part in parts))
    inside = F.col(START) < F.lit(recent)
    if deployed.name is not None:
        inside = inside & is_within(F.col(START), earlier)
    return united.where(inside).distinct(), unseen


def _not_final_from(deployed: Deployed, last: LastComparison) -> int:
    """The instant (epoch ms) before whose windows nothing comes out by the watermark alone any more."""
    windows = windows_of(deployed.pipeline)
    if last.final_before is None or not isinstance(windows, AlignedWindows):
        return 0
    return last.final_before - windows.longest


def _has_seen(last: LastComparison, before: dict[int, int]) -> bool:
    """Whether the comparison was of a state at least as late as the run that this one goes on from."""
    return all(last.as_of.get(partition, -1) >= end for partition, end in before.items())
