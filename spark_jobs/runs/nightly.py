"""The nightly reconciliation: read what arrived since the last run, recompute the windows that it touches."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.engine import Engine
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable, TableAt
from spark_jobs.lakehouse.staging import Part
from spark_jobs.lakehouse.tables import Tables, create_tables, start_bounds
from spark_jobs.replay.columns import ARRIVAL, OFFSET, PARTITION, record_position
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.from_pipeline import rules_of, spec_of
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.affected import AffectedWindows, PreviousRun, affected_windows, merged, run_before
from spark_jobs.runs.backfill import EndPolicy, end_run, execute
from spark_jobs.runs.chunking import chunks_of
from spark_jobs.runs.comparing import ToCompare, compare_live
from spark_jobs.runs.decision import effective_policy
from spark_jobs.runs.documents import Outcome, StagedRange
from spark_jobs.runs.job import Job, RunResult, chosen_run_id, job_of
from spark_jobs.runs.keeping import keep_touched
from spark_jobs.runs.lifecycle import new_token
from spark_jobs.runs.past import Comparison, counts_after
from spark_jobs.runs.plan import arrival_limit, make_plan, planned_records
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.recovery import recover
from spark_jobs.runs.replaying import stage_parallel, stage_quarantine
from spark_jobs.runs.requirements import check_until
from spark_jobs.runs.start import CommandLine, begin, check_quarantine, refuse_missing_event_time
from spark_jobs.runs.status import RunKind, RunStatus
from spark_jobs.runs.store import RunStore
from spark_jobs.runs.table_check import from_table
from spark_jobs.runs.timeline import make_timeline
from spark_jobs.sources import (
    OpenHistory,
    arrived_since,
    canonical,
    cut_at,
    good,
    inspect_history,
    is_small,
    narrowed,
    open_history,
    reading,
    source_of,
)
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.parallel import run_parallel


def reconcile(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    until: int | None = None,
    run_id: str | None = None,
    reason: str = "",
    request: CommandLine | None = None,
    end_policy: EndPolicy | None = None,
    store: RunStore | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Bring the published windows to what has arrived before `until` (epoch ms; default: all that is there).

    The tables are then those of a full run at the same as-of vector. A first run, another definition, sessions, and a
    new partition are full runs; `result.note` says so. Where a run has been published that saw what arrived at `until`
    or later, this one compares only: it must not take back what is known now.

    Raises as `spark_jobs.runs.backfill.execute`.
    """
    end_policy = end_policy or EndPolicy()
    check_until(pipeline, until)
    effective_policy(pipeline.publish, end_policy.policy)
    tables = Tables.of(pipeline)
    create_tables(spark, tables)
    ledger = Ledger(spark, tables)
    recover(spark, tables, now(), store, progress=progress)
    if run_id is not None and ledger.is_published(run_id):
        return RunResult(run_id, tables, note="this run has been published already; nothing was done")
    options = {"run_id": run_id, "reason": reason, "request": request, "store": store, "now": now, "clock": clock}
    newer = None if until is None else _newer_run(spark, pipeline, ledger, until, now)
    if newer is not None:
        why = f"run {newer} has read more than this one"
        compare_only = replace(end_policy, ends_as=RunStatus.COMPARED_ONLY)
        result = _full(spark, pipeline, progress, until, why, end_policy=compare_only, **options)
        result.note = f"compared only: run {newer}, published before, has read more"
        return result
    limit = arrival_limit(pipeline, now())
    # First of all: a run that publishes in the same range from here on has what this run does not have.
    base = PublishedTable(spark, tables.windows).now()
    (before, why), opened, published = run_parallel(
        spark,
        lambda: run_before(spark, tables, pipeline),
        lambda: open_history(spark, pipeline, arrivals_before=limit),
        lambda: _published_starts(spark, tables),
    )
    if before is not None and windows_of(pipeline).is_merging:
        before, why = None, "sessions are read as a whole"
    if before is not None and pipeline.engine is Engine.SPARK:
        before, why = None, "the batches of the live query are read as a whole"
    if before is not None and restarts_of(pipeline):
        before, why = None, "the live job was restarted: its timeline is made as a whole"
    if before is not None and not rules_of(pipeline).keeps_timeline:
        before, why = None, "the stream time of each partition is made as a whole"
    if pipeline.mode is Mode.COMPLETE:
        before, why = None, "complete values have no timeline to go on from: all of them are computed"
    if before is not None and before.processing_time_end >= limit:
        at = format_instant(before.processing_time_end)
        before, why = None, f"run {before.run_id} has read an arrival that is ahead of the clock ({at})"
    options["end_policy"] = end_policy
    if before is None:
        return _full(spark, pipeline, progress, until, why, **options)
    _refuse_another_topic(opened, before)
    spec = spec_of(pipeline, sorted(before.as_of), mode=pipeline.mode)
    with CachedFrames() as cache:
        everything = canonical(opened.frame, pipeline)
        if is_small(opened):
            everything = cache.keep(narrowed(everything, pipeline))
        later = everything if is_small(opened) else _news_of(spark, pipeline, opened, before)
        new = _arrived_before(arrived_since(later, before.as_of), until)
        with progress.stage("new records", opened.description):
            past = _compared_with(spark, pipeline, opened, before, everything, later)
            seen, touched, changed = run_parallel(
                spark,
                lambda: inspect_history(spark, pipeline, opened, records=new, until=until),
                lambda: affected_windows(good(new), spec, before, published, cache),
                past.changes,
            )
        if changed.full:
            return _full(spark, pipeline, progress, until, changed.full, **options)
        if {p.partition for p in seen.partitions} - before.as_of.keys():
            return _full(spark, pipeline, progress, until, "there is a new partition", **options)
        has_new = any(p.records for p in seen.partitions)
        if not has_new and not _has_live_news(spark, pipeline, end_policy, everything, published):
            return _nothing_new(pipeline, run_id, before, store, now)
        times = TimeRange(
            min(published.start, seen.event_times.start if seen.event_times else published.start),
            max(published.end, seen.event_times.end if seen.event_times else published.end),
        )
        partitions = merged(before, seen)
        if before.records is not None:
            in_history = before.records + seen.records
        else:  # the run before is of a version that did not keep the number
            in_history = cut_at(everything, {p.partition: p.end_offset for p in partitions}).count()
        known = replace(
            seen,
            partitions=partitions,
            event_times=times,
            history_records=in_history,
            history_counts=counts_after(changed.below, seen),
        )
        # The chunks are those of the late records, and only new ones can be late.
        plan = make_plan(spark, pipeline, opened=opened, seen=known, records=new)
        if not _state_fits(before, spec, new):
            ahead = "the saved watermark state is ahead of new records"
            return _full(spark, pipeline, progress, until, ahead, **options)
        started = now()
        job = job_of(
            spark,
            pipeline,
            plan,
            progress,
            chosen_run_id(pipeline, run_id, started),
            RunKind.RECONCILE,
            attempt=new_token(),
            store=store,
            in_stages=end_policy.in_stages,
            now=now,
            clock=clock,
        )
        news = NewRecords(before, base, cut_at(new, plan.as_of), touched, changed.has_lost)
        result = _incremental(job, news, cut_at(everything, plan.as_of), reason, request, end_policy)
        if not has_new:
            result.note = f"nothing has arrived since run {before.run_id}; what the live job emitted since was compared"
        return result


@dataclass(frozen=True, slots=True)
class NewRecords:
    """What has arrived since the run `before`, and the windows that it touches.

    `base`: the published table when that run was looked for. `has_lost`: see `PastChanges`.
    """

    before: PreviousRun
    base: TableAt
    records: DataFrame
    touched: AffectedWindows
    has_lost: bool


def _incremental(
    job: Job, news: NewRecords, records: DataFrame, reason: str, request: CommandLine | None, end_policy: EndPolicy
) -> RunResult:
    plan, spec, result, started = job.plan, job.spec, job.result, job.now()
    before, new, touched = news.before, news.records, news.touched
    result.continued_from = before.run_id
    check_quarantine(job)
    history = History(good(records), plan.event_times, plan.processing_time_end)
    refuse_missing_event_time(job.pipeline, plan, replace(history, records=good(new)))
    with job.watched():
        recent = _recent(spec, touched, history.records)
        reach = TimeRange(touched.older.start if touched.older else touched.recent.start, touched.recent.end)
        earlier = {"state": before.state, "timeline_records": good(new), "earlier": before.steps}
        with Replay(history, spec, **earlier) as replay, reading(plan.pipeline):
            make_timeline(job, replay, lambda: begin(job, reason, started, request), lambda: job.published)
            parts = _parts(spec, touched, recent)
            with job.stage("windows", f"in {len(parts)} parts, and late records"):
                windows = [(Part.WINDOWS, partial(replay.windows, chunk, only=only)) for chunk, only in parts]
                late = [(Part.LATE, partial(replay.late, chunk, plan.span, good(new))) for chunk in plan.chunks]
                pairs = [(Part.TOUCHED, lambda: touched.pairs)] if touched.older else []
                numbered = [*pairs, *windows, *late]
                staged = StagedRange(
                    **from_table(news.base),
                    reach=reach,
                    replaces=False,
                    since=before.as_of,
                    recent=touched.recent,
                    older=touched.older,
                    attempt=job.attempt,
                    expected=_expected(numbered, has_quarantine=bool(plan.quarantined)),
                )
                staged.write(job.folder)
                stage_parallel(job, numbered)
            stage_quarantine(job, new)
            if news.has_lost:
                keep_touched(job, staged, good(new))
            keeps = end_policy.ends_as is None
            compare_live(job, replay, end_policy.compare, ToCompare(recent, touched, before.as_of, keeps))
            end_run(job, staged, history.records, replay.timeline, end_policy)
    return result


def _expected(
    numbered: Sequence[tuple[Part, Callable[[], DataFrame]]], *, has_quarantine: bool
) -> dict[str, tuple[int, ...]]:
    """The chunks that `stage_parallel` stages, by part, and that of the quarantine."""
    expected: dict[str, tuple[int, ...]] = {Part.QUARANTINE.value: (0,)} if has_quarantine else {}
    for number, (part, _) in enumerate(numbered, 1):
        expected[part.value] = (*expected.get(part.value, ()), number)
    return expected


def _has_live_news(
    spark: SparkSession, pipeline: Pipeline, end_policy: EndPolicy, records: DataFrame, published: TimeRange
) -> bool:
    """Whether the live job may have emitted something that no run has compared."""
    if pipeline.live is None or end_policy.compare is None or end_policy.live_news is None:
        return False
    return end_policy.live_news(spark, pipeline, records.schema, published)


def _newer_run(
    spark: SparkSession, pipeline: Pipeline, ledger: Ledger, until: int, now: Callable[[], datetime]
) -> str | None:
    """A published run that has read more than what has arrived before `until`.

    Times choose which runs are looked at, offsets decide: one record with a wrong clock says nothing of the others.
    """
    limit = datetime.fromtimestamp(until / 1000, UTC)
    seen = ledger.published_runs().where(F.col("processing_time_end") >= F.lit(limit))
    rows = seen.orderBy(F.desc("processing_time_end"), "run_id").select("run_id", "as_of").collect()
    if not rows:
        return None
    opened = open_history(spark, pipeline, arrivals_before=arrival_limit(pipeline, now()))
    arrived = canonical(opened.frame, pipeline).where(F.col(ARRIVAL) < F.lit(until))
    ends = {row[0]: row[1] + 1 for row in arrived.groupBy(PARTITION).agg(F.max(OFFSET)).collect()}
    for run_id, as_of in rows:
        read = as_of or {}
        has_all = all(read.get(partition, 0) >= end for partition, end in ends.items())
        if has_all and any(end > ends.get(partition, 0) for partition, end in read.items()):
            return run_id
    return None


def _nothing_new(
    pipeline: Pipeline, run_id: str | None, before: PreviousRun, store: RunStore | None, now: Callable[[], datetime]
) -> RunResult:
    result = RunResult(run_id or before.run_id, Tables.of(pipeline))
    result.note = f"nothing has arrived since run {before.run_id}"
    if run_id is not None:
        folder = (store or RunStore.configured()).folder(run_id)
        outcome = Outcome(run_id=run_id, status=RunStatus.UNCHANGED, message=result.note, finished_at=now().isoformat())
        outcome.write(folder)
    return result


def _parts(
    spec: ReplaySpec, touched: AffectedWindows, recent: Sequence[TimeRange]
) -> list[tuple[TimeRange, DataFrame | None]]:
    parts: list[tuple[TimeRange, DataFrame | None]] = []
    if touched.older is not None:
        older = chunks_of(spec.windows, touched.older, records=touched.pairs)
        parts += [(chunk, touched.pairs) for chunk in older]
    parts += [(chunk, None) for chunk in recent]
    if not parts:  # nothing to recompute: the staging table is there all the same
        before = TimeRange(touched.recent.start - 1, touched.recent.start)
        parts = [(chunk, touched.pairs) for chunk in chunks_of(spec.windows, before)]
    return parts


def _recent(spec: ReplaySpec, touched: AffectedWindows, records: DataFrame) -> tuple[TimeRange, ...]:
    is_empty = touched.recent.start >= touched.recent.end
    return () if is_empty else chunks_of(spec.windows, touched.recent, records=records)


def _full(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    until: int | None,
    why: str,
    *,
    reason: str,
    **options: Any,
) -> RunResult:
    """A run over the whole history; `options` are those of `execute`."""
    as_of = None
    if until is not None:
        opened = open_history(spark, pipeline, arrivals_before=arrival_limit(pipeline, options["now"]()))
        records = _arrived_before(canonical(opened.frame, pipeline), until)
        seen = inspect_history(spark, pipeline, opened, records=records, until=until)
        as_of = {p.partition: p.end_offset for p in seen.partitions}
    with ExitStack() as open_records:
        with progress.stage("plan", why):
            plan, records = open_records.enter_context(
                planned_records(spark, pipeline, as_of=as_of, now=options["now"])
            )
        result = execute(
            spark,
            pipeline,
            plan,
            progress,
            records=records,
            kind=RunKind.RECONCILE,
            reason=reason or why,
            **options,
        )
    result.note = result.note or f"a full run: {why}"
    return result


def _refuse_another_topic(opened: OpenHistory, before: PreviousRun) -> None:
    seen = before.state.get("topic_id")
    if opened.topic is not None and seen is not None and opened.topic.topic_id != seen:
        raise HistoryError(
            f"the topic was created again after run {before.run_id} (id {seen}, now {opened.topic.topic_id})",
            opened.description,
            "Its offsets belong to other records now. Stitch the old ones from an archive, or write to another table.",
        )


def _news_of(spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, before: PreviousRun) -> DataFrame:
    """Canonical records, without most of those that the run before has seen."""
    snapshot = None if before.past is None else before.past.snapshot
    return canonical(source_of(spark, pipeline).since(opened, before.as_of, snapshot), pipeline)


def _compared_with(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    before: PreviousRun,
    everything: DataFrame,
    later: DataFrame,
) -> Comparison:
    """The history of now beside what the run before has read."""
    source = source_of(spark, pipeline)
    return Comparison(
        pipeline,
        opened,
        everything,
        later,
        lambda files: canonical(source.in_files(opened, files), pipeline),
        before.run_id,
        before.as_of,
        before.past,
        before.records,
    )


def _arrived_before(records: DataFrame, until: int | None) -> DataFrame:
    """Records with no usable arrival stay: they go to quarantine with their neighbours in the log."""
    return records if until is None else records.where(F.col(ARRIVAL).isNull() | (F.col(ARRIVAL) < F.lit(until)))


def _state_fits(before: PreviousRun, spec: ReplaySpec, new: DataFrame) -> bool:
    if before.state["kind"] != "simulation":
        return True
    first = new.agg(F.min(record_position(new).as_struct())).collect()[0][0]
    return first is None or can_continue(before.state, spec.strategy, tuple(first))


def _published_starts(spark: SparkSession, tables: Tables) -> TimeRange:
    there = spark.catalog.tableExists(tables.windows)
    low, high = start_bounds(spark.table(tables.windows)) if there else (None, None)
    return TimeRange(low, high + 1) if low is not None and high is not None else TimeRange(0, 1)
