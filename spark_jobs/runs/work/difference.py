"""What publishing a run means: which windows its staged ones stand for, and what changes in the side tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cache

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition.deployments import deployments_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.publication import LIVE, Publication, TableAt
from spark_jobs.lakehouse.side_tables import Side, SideChange
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.lakehouse.tables import branch_of, starts_within
from spark_jobs.lakehouse.verdicts import VerdictTable, final_before
from spark_jobs.replay.columns import LATE, ON_TIME, PANE
from spark_jobs.replay.rounding import rounded_columns
from spark_jobs.replay.spec import Mode, Panes, ReplaySpec
from spark_jobs.runs.life.documents import StagedRange
from spark_jobs.runs.night.affected import AffectedWindows
from spark_jobs.runs.work.causes import cause_of_change, cause_of_run
from spark_jobs.runs.work.comparing import verdicts_of
from spark_jobs.runs.work.job import Job
from spark_jobs.spark.joins import others, same

MADE_OF = "rw_as_of"
"""The end offsets (JSON) up to which a kept window counts its records."""
COVERS = "rw_covers"
"""Whether a kept window is no window of this run: then no window of this run that it overlaps may stand beside it."""

GIVES_WAY = "rw_gives_way"
"""Whether nothing stands in the place of a kept window: it was decided before that there is none."""


def identity_of(spec: ReplaySpec) -> tuple[str, ...]:
    """The published columns that tell one window from another, or one pane."""
    by_pane = (spec.panes is Panes.ALL or spec.has_sessions) and spec.mode is not Mode.COMPLETE
    return (*spec.keys, "window_start", "window_end", *((PANE,) if by_pane else ()))


def is_last_pane(spec: ReplaySpec) -> str:
    """SQL: whether a row is the last pane of its window, which counts all of its records."""
    if spec.panes is Panes.LAST:
        return "TRUE"
    if spec.has_sessions:
        return f"{PANE} IS NULL OR {PANE} = 0"
    return f"{PANE} IS NULL OR {PANE} = {LATE} - IF({ON_TIME} > 0, 0, 1)"


def staged_windows(job: Job) -> DataFrame:
    """The windows that are staged: what was computed, and in the place of some of it what is kept."""
    rows = _with_bounds(job)
    return rows.drop(*rounded_columns(rows.columns).values())


def _with_bounds(job: Job) -> DataFrame:
    """The staged windows, and how far the values of some columns may lie apart (`spark_jobs.replay.rounding`)."""
    rows = job.staging.rows()
    if not job.staging.has(StagedPart.KEPT):
        return rows
    kept = job.staging.rows(StagedPart.KEPT)
    names = (*job.spec.keys, "window_start", "window_end")
    instead = kept.select(*others(names, "rw_kept_"), COVERS)
    is_same = (F.col("window_start") == F.col("rw_kept_window_start")) & (
        F.col("window_end") == F.col("rw_kept_window_end")
    )
    overlaps = (F.col("window_start") < F.col("rw_kept_window_end")) & (
        F.col("window_end") > F.col("rw_kept_window_start")
    )
    conditions = [*same(job.spec.keys, "rw_kept_"), is_same | (F.col(COVERS) & overlaps)]
    computed = rows.join(instead, conditions, "left_anti")
    stays = kept.where(~F.col(GIVES_WAY)).drop(COVERS, MADE_OF, GIVES_WAY)
    return computed.unionByName(stays, allowMissingColumns=True)


def _kept_as_of(job: Job) -> dict[int, int] | None:
    """The end offsets up to which kept windows count their records; None: no window is kept.

    The history can end before them now, and may reach as far again.
    """
    if not job.staging.has(StagedPart.KEPT):
        return None
    kept, ends = job.staging.rows(StagedPart.KEPT), dict(job.plan.as_of)
    rows = kept.select(MADE_OF).distinct().collect() if MADE_OF in kept.columns else []  # null: it gives way
    for partition, end in (pair for row in rows if row[0] for pair in json.loads(row[0]).items()):
        ends[int(partition)] = max(end, ends.get(int(partition), 0))
    return ends


def publication_of(job: Job, staged: StagedRange) -> Publication:
    """What is to be published, from what is staged."""
    spec = job.spec
    identity = identity_of(spec)

    def in_scope(windows: DataFrame) -> DataFrame:
        if staged.everything:
            return windows
        if staged.recent is None:
            return windows.where(starts_within(staged.reach))
        pairs = job.staging.rows(StagedPart.TOUCHED) if staged.older else None
        return AffectedWindows(staged.recent, staged.older, pairs).in_scope(windows, spec.keys)

    return Publication(
        run_id=job.result.run_id,
        span=staged.reach,
        staged=_with_bounds(job),
        identity=identity,
        in_scope=in_scope,
        cause=cache(lambda: cause_of_change(job.published.ranges, job.plan, lambda: _causes_by_run(job))),
        as_of=job.plan.as_of,
        kept_as_of=_kept_as_of(job),
        branch=branch_of(job.result.run_id, job.life.claim),
        rivals=lambda: _rivals(job, staged),
        sides=_side_changes(job, staged),
        with_live=_with_live(job, staged.reach),
        began=TableAt(staged.base, staged.table_id, staged.sequence),
        is_everything=staged.everything,
        former=former_identity(job, identity),
        repairs=staged.repairs,
    )


def former_identity(job: Job, identity: Sequence[str]) -> tuple[str, ...]:
    """The columns that told published windows apart under earlier definitions, and do not under this one."""
    table = job.published_table
    state = table.state()
    if state is None:
        return ()
    gone = [c for c in state.identity if c not in identity]
    return tuple(c for c in gone if c in table.current().columns)


def _with_live(job: Job, reach: TimeRange) -> Callable[[DataFrame], DataFrame] | None:
    """Adds the column `LIVE` to staged windows; None where this run has not compared them with the live job's.

    The live job has emitted the value of a window that its watermark has closed, unless the comparison found otherwise.
    A deployment with rules of its own is compared with these, not with what is published.
    """
    spec, tables, verdicts = job.spec, job.result.tables, verdicts_of(job)
    if verdicts is None or verdicts.problem is not None or spec.panes is Panes.ALL:
        return None
    names = (*spec.keys, "window_start", "window_end")

    @cache  # only where the difference is computed: a publication that has it already looks nothing up
    def found() -> tuple[DataFrame, Column] | None:
        """The windows that were emitted otherwise, and whether the live job's watermark has closed a window."""
        otherwise = VerdictTable(job.spark, tables.verdicts, spec.keys).emitted_otherwise(reach)
        if otherwise is None:
            return None
        is_closed = F.lit(False)
        for deployed in deployments_of(job.pipeline):
            span, final = deployed.clipped(reach), final_before(job.spark, tables.comparisons, deployed.name)
            if span is not None and final is not None and not deployed.has_own_rules:
                before = F.timestamp_millis(F.lit(final + spec.allowed_lateness))
                is_closed = is_closed | (starts_within(span) & (F.col("window_end") < before))
        return otherwise.select(*others(names), F.lit(True).alias("rw_is_other")), is_closed

    def with_live(rows: DataFrame) -> DataFrame:
        if (known := found()) is None:
            return rows.withColumn(LIVE, F.lit(False))
        different, is_closed = known
        is_live = is_closed & F.col(PANE).isNotNull() & F.col("rw_is_other").isNull()
        joined = rows.join(different, same(names), "left")
        return joined.select(*(f"`{c}`" for c in rows.columns), is_live.alias(LIVE))

    return with_live


def _side_changes(job: Job, staged: StagedRange) -> tuple[SideChange, ...]:
    """What publishing changes in the side tables.

    A run over a range replaces the late records of that range (over everything: all) and the quarantined ones that it
    has read. A
    reconciliation adds those of the records that it has read; a run over a part of the range may have written some of
    them already.
    """
    run_id = job.result.run_id

    def rows(part: StagedPart) -> DataFrame | None:
        if part is StagedPart.LATE and not job.result.counts.records_late:
            return None
        return job.staging.rows(part).select(F.lit(run_id).alias("run_id"), "*") if job.staging.has(part) else None

    late, quarantined = "FALSE", "FALSE"
    read = _offset_of(job.plan.as_of)
    if staged.replaces:
        if staged.everything and (job.is_faithful or job.plan.mode == job.pipeline.mode):
            late = "TRUE"
        elif job.is_faithful:
            start, end = (f"timestamp_millis({bound})" for bound in (job.plan.span.start, job.plan.span.end))
            late = f"range_start >= {start} AND range_start < {end}"
        quarantined = f"{_UNPLACED} OR `offset` < {read}"
    elif staged.since is not None:
        late = f"`offset` >= coalesce({_offset_of(staged.since)}, 0) AND `offset` < {read}"
        has_all = job.staging.has(StagedPart.QUARANTINE)  # then it has all that have no place in the log
        quarantined = f"{_UNPLACED} OR ({late})" if has_all else late
        if staged.changes_late and job.staging.has(StagedPart.LATE):
            late = f"({late}) OR {job.staging.position_in(StagedPart.LATE)}"
    return (
        SideChange(Side.LATE, rows(StagedPart.LATE), late),
        SideChange(Side.QUARANTINE, rows(StagedPart.QUARANTINE), quarantined),
    )


_UNPLACED = "`partition` IS NULL OR `offset` IS NULL"


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
    for run_id, cause in [] if rows is None else rows.select("run_id", cause_of_run(job.plan, job.erased_at)).collect():
        found.setdefault(cause, []).append(run_id)
    return found


def _rivals(job: Job, staged: StagedRange) -> list[str]:
    """Other runs that the ledger says were published in the same range since this one began."""
    row = job.ledger.row(job.result.run_id)
    since = datetime.min if row is None else row["started_at"]
    span = None if staged.everything else staged.reach
    return job.ledger.rivals(job.result.run_id, span, since, staged.sequence)
