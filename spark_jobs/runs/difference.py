"""What publishing a run means: which windows its staged ones stand for, and the cause of each change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.published_table import Cause, Publication
from spark_jobs.lakehouse.side_tables import Side, SideChange
from spark_jobs.lakehouse.staging import Part
from spark_jobs.lakehouse.tables import branch_of, starts_within
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.replay.windows import PANE
from spark_jobs.runs.affected import AffectedWindows
from spark_jobs.runs.documents import StagedRange
from spark_jobs.runs.job import Job
from spark_jobs.runs.plan import Plan


def identity_of(spec: ReplaySpec) -> tuple[str, ...]:
    """The published columns that tell one window from another, or one pane."""
    by_pane = spec.panes is Panes.ALL or spec.has_sessions
    return (*spec.keys, "window_start", "window_end", *((PANE,) if by_pane else ()))


def publication_of(job: Job, staged: StagedRange) -> Publication:
    """What is to be published, from what is staged."""
    spec = job.spec

    def in_scope(windows: DataFrame) -> DataFrame:
        if staged.recent is None:
            return windows.where(starts_within(staged.reach))
        pairs = job.staging.rows(Part.TOUCHED) if staged.older else None
        return AffectedWindows(staged.recent, staged.older, pairs).in_scope(windows, spec.keys)

    return Publication(
        run_id=job.result.run_id,
        span=staged.reach,
        staged=job.staging.rows(),
        identity=identity_of(spec),
        in_scope=in_scope,
        cause=cache(lambda: cause_of_change(job.published, job.plan)),
        as_of=job.plan.as_of,
        branch=branch_of(job.result.run_id, job.life.claim),
        rivals=lambda: _rivals(job, staged.reach),
        sides=_side_changes(job, staged),
    )


def _side_changes(job: Job, staged: StagedRange) -> tuple[SideChange, ...]:
    """What publishing changes in the side tables.

    A run over a range replaces the late records of that range and the quarantined ones that it has read. A
    reconciliation adds those of the records that it has read; a run over a part of the range may have written some of
    them already.
    """
    run_id = job.result.run_id

    def rows(part: Part) -> DataFrame | None:
        if part is Part.LATE and not job.result.records_late:
            return None
        return job.staging.rows(part).select(F.lit(run_id).alias("run_id"), "*") if job.staging.has(part) else None

    late, quarantined = "FALSE", "FALSE"
    read = _offset_of(job.plan.as_of)
    if staged.replaces:
        if job.is_faithful:
            start, end = (f"timestamp_millis({bound})" for bound in (job.plan.span.start, job.plan.span.end))
            late = f"range_start >= {start} AND range_start < {end}"
        quarantined = f"`offset` IS NULL OR `offset` < {read}"
    elif staged.since is not None:
        late = quarantined = f"`offset` >= coalesce({_offset_of(staged.since)}, 0) AND `offset` < {read}"
    return (
        SideChange(Side.LATE, rows(Part.LATE), late),
        SideChange(Side.QUARANTINE, rows(Part.QUARANTINE), quarantined),
    )


def _offset_of(offsets: Mapping[int, int]) -> str:
    """SQL for the offset of a row's partition; null where `offsets` lacks the partition."""
    cases = " ".join(f"WHEN {int(partition)} THEN {int(offset)}" for partition, offset in offsets.items())
    return f"CASE partition {cases} END" if cases else "CAST(NULL AS BIGINT)"


def _rivals(job: Job, span: TimeRange) -> list[str]:
    row = job.ledger.row(job.result.run_id)
    since = datetime.min if row is None else row["started_at"]
    start, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (span.start, span.end))
    return job.ledger.rivals(job.result.run_id, start, end, since)


def cause_of_change(published: Sequence[Mapping[str, Any]], plan: Plan) -> Column:
    """The cause of a window's change, from the columns `rw_start` (its start) and `old_run_id` (null: it is new).

    It comes from the latest published run over the window's start, which has confirmed what was there; of windows that
    no run's range holds, from the run that published them (`old_run_id`). `published`: see `Ledger.published`.

    Another definition: `logic_change`. The same one and more records: `late_arrivals`. The same one and the same
    records: `source_repair`. A range that no run has published: `backfill`.

    The expression has one branch for each stretch of the plan's range with one cause, not one for each run.
    """
    column, covered = None, True
    for span, cause in _causes_by_range(published, plan):
        if cause is None:
            covered = False
            continue
        start = F.col("rw_start")
        inside = (start >= F.timestamp_millis(F.lit(span.start))) & (start < F.timestamp_millis(F.lit(span.end)))
        value = F.lit(cause.value)
        column = F.when(inside, value) if column is None else column.when(inside, value)
    by_range = F.lit(None).cast("string") if column is None else column
    if covered:
        return F.coalesce(by_range, F.lit(Cause.BACKFILL.value))
    return F.coalesce(by_range, _cause_by_run(published, plan), F.lit(Cause.BACKFILL.value))


def _causes_by_range(published: Sequence[Mapping[str, Any]], plan: Plan) -> list[tuple[TimeRange, Cause | None]]:
    """The plan's range in stretches with one cause each; None where no run has published."""
    found: list[tuple[TimeRange, Cause | None]] = []
    open_ranges = [plan.span]
    for row in published:  # the latest first: it decides
        if not open_ranges:
            break
        start, end = _milliseconds(row["range_start"]), _milliseconds(row["range_end"])
        cause, rest = cause_of_run(row, plan), []
        for gap in open_ranges:
            low, high = max(gap.start, start), min(gap.end, end)
            if low >= high:
                rest.append(gap)
                continue
            found.append((TimeRange(low, high), cause))
            rest += [TimeRange(a, b) for a, b in ((gap.start, low), (high, gap.end)) if a < b]
        open_ranges = rest
    found += [(gap, None) for gap in open_ranges]
    found.sort(key=lambda one: one[0].start)

    joined: list[tuple[TimeRange, Cause | None]] = []
    for span, cause in found:
        if joined and joined[-1][1] == cause and joined[-1][0].end == span.start:
            joined[-1] = (TimeRange(joined[-1][0].start, span.end), cause)
        else:
            joined.append((span, cause))
    return joined


def cause_of_run(row: Mapping[str, Any], plan: Plan) -> Cause:
    """The cause of what `plan` changes of the windows of a published run."""
    if row["definition_hash"] != plan.definition_hash:
        return Cause.LOGIC_CHANGE
    seen, now = row["as_of"] or {}, plan.as_of
    if seen == now:
        return Cause.SOURCE_REPAIR
    has_more = all(end <= now.get(partition, -1) for partition, end in seen.items())
    return Cause.LATE_ARRIVALS if has_more else Cause.BACKFILL


def _cause_by_run(published: Sequence[Mapping[str, Any]], plan: Plan) -> Column:
    """The cause by `old_run_id`. The run ids of a cause are one text, so that the expression stays small."""
    ids: dict[Cause, list[str]] = {}
    for row in published:
        ids.setdefault(cause_of_run(row, plan), []).append(row["run_id"])
    column = F.lit(None).cast("string")
    for cause, runs in ids.items():
        is_one = F.array_contains(F.split(F.lit("\n".join(runs)), "\n"), F.col("old_run_id"))
        column = F.coalesce(F.when(is_one, F.lit(cause.value)), column)
    return column


def _milliseconds(instant: Any) -> int:
    """Epoch ms of a timestamp as Spark gives it: without a zone, in local time. A bound has whole milliseconds."""
    return round(instant.timestamp() * 1000)
