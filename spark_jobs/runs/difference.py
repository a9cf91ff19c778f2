"""What publishing a run means: which windows its staged ones stand for, and what changes in the side tables."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.published_table import Publication
from spark_jobs.lakehouse.side_tables import Side, SideChange
from spark_jobs.lakehouse.staging import Part
from spark_jobs.lakehouse.tables import branch_of, starts_within
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.replay.windows import PANE
from spark_jobs.runs.affected import AffectedWindows
from spark_jobs.runs.causes import cause_of_change, cause_of_run
from spark_jobs.runs.documents import StagedRange
from spark_jobs.runs.job import Job


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
        cause=cache(lambda: cause_of_change(job.published.ranges, job.plan, lambda: _causes_by_run(job))),
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


def _causes_by_run(job: Job) -> dict[str, list[str]]:
    """The causes by the run that has published a window of the plan's range before."""
    windows = job.published_table.revisions().where("valid_to IS NULL").where(starts_within(job.plan.span))
    runs = windows.agg(F.collect_set("run_id")).collect()[0][0]
    rows = job.ledger.published_runs().where(F.col("run_id").isin(runs)) if runs else None
    found: dict[str, list[str]] = {}
    for run_id, cause in [] if rows is None else rows.select("run_id", cause_of_run(job.plan)).collect():
        found.setdefault(cause, []).append(run_id)
    return found


def _rivals(job: Job, span: TimeRange) -> list[str]:
    row = job.ledger.row(job.result.run_id)
    since = datetime.min if row is None else row["started_at"]
    start, end = (datetime.fromtimestamp(at / 1000, UTC) for at in (span.start, span.end))
    return job.ledger.rivals(job.result.run_id, start, end, since)
