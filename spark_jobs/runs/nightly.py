"""The reconciliation: read what arrived since the last run, recompute the windows that it touches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.engine import Engine
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.union import partition_in_words
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, create_tables, start_bounds
from spark_jobs.replay.columns import record_position
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.from_pipeline import application_of, spec_of
from spark_jobs.replay.inversion import is_past_carried, is_past_discoveries
from spark_jobs.replay.simulation import can_continue
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.affected import PreviousRun, affected_windows, merged, run_before
from spark_jobs.runs.backfill import execute
from spark_jobs.runs.decision import effective_policy
from spark_jobs.runs.documents import Outcome
from spark_jobs.runs.evaluation import EndPolicy, Evaluator
from spark_jobs.runs.job import RunResult, chosen_run_id, job_of
from spark_jobs.runs.lifecycle import new_token
from spark_jobs.runs.live_batches import LiveBatches, keep_batches, live_batches
from spark_jobs.runs.past import ReadBefore, counts_after
from spark_jobs.runs.past_changes import Comparison
from spark_jobs.runs.plan import arrival_limit, make_plan, planned_records
from spark_jobs.runs.plan_document import Plan
from spark_jobs.runs.progress import Progress
from spark_jobs.runs.recovery import recover
from spark_jobs.runs.requesting import check_until
from spark_jobs.runs.stages import ReplayChunk, chunk_stages
from spark_jobs.runs.start import PUBLISHED_ALREADY, Asked, check_quarantine, is_published, refuse_missing_event_time
from spark_jobs.runs.status import RunKind, RunStatus
from spark_jobs.runs.store import RunStore
from spark_jobs.runs.work import Incremental, IncrementalWork
from spark_jobs.sources import (
    AlreadyRead,
    Clocks,
    Empty,
    Inspection,
    Later,
    OpenHistory,
    PinnedFile,
    arrived_since,
    can_be_unplaced,
    canonical,
    counts_latest_arrival,
    cut_at,
    empty_after,
    empty_offsets,
    end_offsets_before,
    ends_within,
    first_arrivals,
    good,
    inspect_history,
    is_short,
    is_small,
    is_unplaced,
    names_of,
    narrowed,
    open_history,
    opened_again,
    records_of_input,
    source_of,
    unplaced,
)
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.parallel import run_parallel


@dataclass(frozen=True, slots=True)
class Full:
    """What a night has planned that computes all windows: why, its plan and the plan's records.

    `rival`: a published run that has read more than this night may; then nothing is published.
    """

    why: str
    plan: Plan
    records: DataFrame
    rival: str | None = None

    @property
    def replay_stages(self) -> tuple[ReplayChunk, ...]:
        return chunk_stages(self.plan.chunks)

    @property
    def note(self) -> str:
        """What people are told of the night."""
        if self.rival is not None:
            return f"compared only: run {self.rival}, published before, has read more"
        return f"a full run: {self.why}"


@dataclass(frozen=True, slots=True)
class NothingNew:
    """What a night has planned that has nothing to do: nothing has arrived since the run `before`."""

    before: PreviousRun

    @property
    def note(self) -> str:
        return f"nothing has arrived since run {self.before.run_id}"


_NOTHING = {0: 0}
"""End offsets before all records."""

Night = Full | Incremental | NothingNew


def reconcile(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    until: int | None = None,
    run_id: str | None = None,
    asked: Asked | None = None,
    end_policy: EndPolicy | None = None,
    in_stages: bool = False,
    store: RunStore | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    clock: Callable[[], float] = time.monotonic,
) -> RunResult:
    """Bring the published windows to what has arrived before `until` (epoch ms; default: all that is there).

    The tables are then those of a full run at the same end offsets. A first run, another definition, sessions, and a
    new partition are full runs; `result.note` says so. Of a Structured Streaming query a batch arrives as a whole, when
    it is planned. Where a run has been published that saw what arrived at `until` or later, this one compares only: it
    must not take back what is known now.

    Raises as `spark_jobs.runs.backfill.execute`.
    """
    asked, end_policy = asked or Asked(), end_policy or EndPolicy()
    check_until(pipeline, until)
    effective_policy(pipeline.publish, end_policy.policy)
    tables, folders = Tables.of(pipeline), store or RunStore.configured()
    create_tables(spark, tables)
    recover(spark, tables, now(), store, progress=progress)
    if run_id is not None and is_published(Ledger(spark, tables), folders.folder(run_id), pipeline):
        result = RunResult(run_id, tables, note=PUBLISHED_ALREADY)
        result.corrections = end_policy.delivered(spark, pipeline, folders.folder(run_id))
        return result
    keep_batches(spark, pipeline)
    with planned_night(spark, pipeline, progress, until=until, end_policy=end_policy, now=now) as night:
        if isinstance(night, NothingNew):
            result = _nothing_new(pipeline, run_id, night, folders, now)
            result.corrections = end_policy.delivered(spark, pipeline, folders.folder(result.run_id))
            return result
        common: dict[str, Any] = {"in_stages": in_stages, "store": store, "now": now, "clock": clock}
        if isinstance(night, Full):
            ends = end_policy if night.rival is None else replace(end_policy, ends_as=RunStatus.COMPARED_ONLY)
            result = execute(
                spark,
                pipeline,
                night.plan,
                progress,
                records=night.records,
                run_id=run_id,
                kind=RunKind.RECONCILE,
                asked=replace(asked, reason=asked.reason or night.why),
                end_policy=ends,
                **common,
            )
            result.note = night.note if night.rival else result.note or night.note
            return result
        started = now()
        chosen = chosen_run_id(pipeline, run_id, started)
        job = job_of(spark, pipeline, night.plan, progress, chosen, RunKind.RECONCILE, attempt=new_token(), **common)
        work = IncrementalWork(job, night)
        check_quarantine(job)
        refuse_missing_event_time(pipeline, night.plan, replace(work.history, records=work.good_news))
        result = Evaluator(work, end_policy, started=started, asked=asked).evaluate()
        if night.idle:
            result.note = night.note
        return result


@contextmanager
def planned_night(
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    *,
    until: int | None = None,
    end_policy: EndPolicy | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> Iterator[Night]:
    """What a night is to do, up to the arrival `until`. The frames of the plan are cached until the end of the context.

    The tables are there already. Reads the history and writes nothing.
    """
    with ExitStack() as frames:
        yield _planned(frames, spark, pipeline, progress, until, end_policy or EndPolicy(), now)


def _planned(
    frames: ExitStack,
    spark: SparkSession,
    pipeline: Pipeline,
    progress: Progress,
    until: int | None,
    end_policy: EndPolicy,
    now: Callable[[], datetime],
    again: OpenHistory | None = None,
    again_to: Mapping[int, int] | None = None,
) -> Night:
    """`again`: the history without arrivals that are ahead, up to the offsets `again_to`; None: nobody has looked."""
    tables = Tables.of(pipeline)
    # A batch arrives with all its records, when it is planned.
    batches = live_batches(spark, pipeline, until=None if until is None else until - 1)
    ends = None if batches is None else batches.ends

    def full(why: str, rival: str | None = None) -> Full:
        as_of = ends if ends is not None or until is None else _end_offsets(spark, pipeline, until, now)
        with progress.stage("plan", why):
            plan, records = frames.enter_context(
                planned_records(spark, pipeline, as_of=as_of, another_log=None, batches=batches, now=now)
            )
        return Full(why, plan, records, rival)

    newer = None if until is None else _newer_run(spark, pipeline, Ledger(spark, tables), until, ends, now)
    if newer is not None:
        return full(f"run {newer} has read more than this one", newer)
    limit = arrival_limit(pipeline, now())
    # First of all: a run that publishes in the same range from here on has what this run does not have.
    base = PublishedTable(spark, tables.windows).now()
    (before, why), opened, published = run_parallel(
        spark,
        lambda: run_before(spark, tables, pipeline),
        lambda: again or open_history(spark, pipeline, as_of=ends, arrivals_before=limit),
        lambda: _published_starts(spark, tables),
    )
    if before is not None and batches is not None and before.state.get("last_batch", 0) > batches.last_number:
        return full(f"run {before.run_id} has read more than this one", before.run_id)  # batches without data
    if pipeline.mode is Mode.COMPLETE:
        why = "complete values have no timeline to go on from: all of them are computed"
    elif before is not None:
        why = _why_full(pipeline, before, limit, batches)
    if before is None or why:
        if (read := ReadBefore.latest(spark, tables, pipeline)) is not None:
            everything = canonical(opened, pipeline)
            _compared_with(spark, pipeline, opened, read, everything, Later(everything)).refuse_another_log()
        return full(why)
    arrays = None if batches is None else batches.as_arrays()
    spec = spec_of(pipeline, sorted(before.as_of), mode=pipeline.mode, batches=arrays)
    cache = frames.enter_context(CachedFrames())
    if before.clocks and again is None:
        opened = opened_again(spark, pipeline, opened, Clocks(before.clocks), arrivals_before=limit)
    everything = canonical(opened, pipeline)
    if is_small(opened) or is_short(opened):
        everything = cache.keep(narrowed(everything, pipeline))
    found = Later(everything) if is_small(opened) else _later(spark, pipeline, opened, before)
    later = found.frame
    new = arrived_since(later, before.as_of)
    if opened.has_topic:  # it is read once for all stages
        new = cache.keep(narrowed(new, pipeline))
    new = cut_at(new, again_to or {})
    new = _arrived_before(new, until) if ends is None else cut_at(new, ends)
    with progress.stage("new records", opened.description):
        past = _compared_with(spark, pipeline, opened, before.read, everything, found, before.records)
        all_unplaced = unplaced(opened, pipeline) if can_be_unplaced(opened, pipeline) else None
        seen, touched, changed, came_unplaced = run_parallel(
            spark,
            lambda: inspect_history(
                spark,
                pipeline,
                opened,
                as_of=ends,
                records=new,
                until=until if ends is None else None,
                since=before.as_of,
            ),
            lambda: affected_windows(good(new), spec, before, published, cache),
            past.changes,
            lambda: 0 if all_unplaced is None else _came_unplaced(spark, tables, all_unplaced),
        )
    if changed.full:
        return full(changed.full)
    if seen.clocks:
        seen_to = before.as_of | {p.partition: p.end_offset for p in seen.partitions}
        opened = opened_again(spark, pipeline, opened, seen.clocks)
        again_to = ends_within(seen_to, seen.clocks)
        return _planned(frames, spark, pipeline, progress, until, end_policy, now, opened, again_to)
    if why := _why_behind(before, pipeline, opened, seen):
        return full(why)
    if {p.partition for p in seen.partitions} - before.as_of.keys():
        return full("there is a new partition")
    # A batch without data lets windows out.
    has_batches = batches is not None and batches.last_number > before.state["last_batch"]
    has_new = has_batches or came_unplaced > 0 or any(p.records for p in seen.partitions)
    if not has_new and not _has_live_news(spark, pipeline, end_policy, everything, published):
        return NothingNew(before)
    times = TimeRange(
        min(published.start, seen.event_times.start if seen.event_times else published.start),
        max(published.end, seen.event_times.end if seen.event_times else published.end),
    )
    partitions = merged(before, seen)
    seen = replace(seen, records=seen.records + came_unplaced, quarantined=seen.quarantined + came_unplaced)
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
        empty=_empty_after(before, new, seen),
    )
    # The chunks are those of the late records, and only new ones can be late.
    plan = make_plan(spark, pipeline, as_of=ends or again_to, opened=opened, seen=known, records=new, batches=batches)
    if ahead := why_ahead(before, spec, new, seen):
        return full(ahead)
    return Incremental(
        plan,
        before,
        base,
        cut_at(everything, plan.as_of),
        cut_at(new, plan.as_of),
        touched,
        changed,
        idle=not has_new,
        unplaced=all_unplaced,
    )


def _empty_after(before: PreviousRun, new: DataFrame, seen: Inspection) -> Empty | None:
    """The offsets without a record after the new ones; None where they are not known."""
    known = None if before.past is None else before.past.empty
    if known is None:
        return None
    return empty_after(known, before.as_of, empty_offsets(new, seen.partitions))


def _why_full(pipeline: Pipeline, before: PreviousRun, limit: int | None, batches: LiveBatches | None) -> str:
    """Why a night cannot go on from the run `before`; empty: it can. `limit`: arrivals from then on are ahead."""
    if windows_of(pipeline).is_merging:
        return "sessions are read as a whole"
    if batches is not None and not _has_same_batches(before, batches):
        return f"the batches of the live query are not known to be those that run {before.run_id} had"
    if pipeline.lookup is not None:
        return "the records are looked up anew"
    if pipeline.deduplicate is not None:
        return "duplicates are found in the whole history"
    if restarts_of(pipeline):
        return "the live job was restarted: its timeline is made as a whole"
    if pipeline.engine is Engine.KAFKA_STREAMS and application_of(pipeline).needs_tasks:
        return "the order of each partition decides: it is read as a whole"
    if pipeline.engine is Engine.KAFKA_STREAMS and not before.steps.by_partition:
        return f"run {before.run_id} kept no stream time of each partition"
    if limit is not None and before.processing_time_end >= limit:
        at = format_instant(before.processing_time_end)
        return f"run {before.run_id} has read an arrival that is ahead of the clock ({at})"
    return ""


def _why_behind(before: PreviousRun, pipeline: Pipeline, opened: OpenHistory, seen: Inspection) -> str:
    """Why a record that the run `before` has read is ahead of new ones behind it; empty: none is."""
    for partition, first in first_arrivals(pipeline, opened, seen.partitions, before.as_of).items():
        last = before.last_arrivals.get(partition, first)
        if last - first > pipeline.quarantine.ahead:
            return (
                f"run {before.run_id} has read an arrival ({format_instant(last)}) that is ahead of a record behind it "
                f"({format_instant(first)}), in partition {partition_in_words(partition, names_of(pipeline))}"
            )
    return ""


def _came_unplaced(spark: SparkSession, tables: Tables, records: DataFrame) -> int:
    """How many records without a place in the log are in the history, and not in quarantine yet."""
    known = 0
    if spark.catalog.tableExists(tables.quarantine):
        known = spark.table(tables.quarantine).where(is_unplaced("partition", "offset")).count()
    return max(0, records.count() - known)


def _has_same_batches(before: PreviousRun, batches: LiveBatches) -> bool:
    """Whether the batches that the run `before` had are there as they were: those that were estimated may be others."""
    last = before.state.get("last_batch")
    return last is not None and batches.up_to_batch(last).as_arrays().digest == before.state["batches"]


def _has_live_news(
    spark: SparkSession, pipeline: Pipeline, end_policy: EndPolicy, records: DataFrame, published: TimeRange
) -> bool:
    """Whether the live job may have emitted something that no run has compared."""
    if pipeline.live is None or end_policy.compare is None or end_policy.live_news is None:
        return False
    return end_policy.live_news(spark, pipeline, records.schema, published)


def _newer_run(
    spark: SparkSession,
    pipeline: Pipeline,
    ledger: Ledger,
    until: int,
    ends: Mapping[int, int] | None,
    now: Callable[[], datetime],
) -> str | None:
    """A published run that has read more than what has arrived before `until`: these end offsets, where they are known.

    Times choose which runs are looked at, offsets decide: one record with a wrong clock says nothing of the others.
    """
    limit = datetime.fromtimestamp(until / 1000, UTC)
    seen = ledger.published_runs().where(F.col("processing_time_end") >= F.lit(limit))
    rows = seen.orderBy(F.desc("processing_time_end"), "run_id").select("run_id", "as_of").collect()
    if not rows:
        return None
    if ends is None:
        ends = _end_offsets(spark, pipeline, until, now)
    for run_id, as_of in rows:
        read = as_of or {}
        has_all = all(read.get(partition, 0) >= end for partition, end in ends.items())
        if has_all and any(end > ends.get(partition, 0) for partition, end in read.items()):
            return run_id
    return None


def _nothing_new(
    pipeline: Pipeline, run_id: str | None, night: NothingNew, store: RunStore, now: Callable[[], datetime]
) -> RunResult:
    result = RunResult(run_id or night.before.run_id, Tables.of(pipeline), note=night.note)
    if run_id is not None:
        outcome = Outcome(run_id=run_id, status=RunStatus.UNCHANGED, message=result.note, finished_at=now().isoformat())
        outcome.write(store.folder(run_id))
    return result


def _end_offsets(spark: SparkSession, pipeline: Pipeline, until: int, now: Callable[[], datetime]) -> dict[int, int]:
    """The end offsets of what has arrived before `until`."""
    opened = open_history(spark, pipeline, arrivals_before=arrival_limit(pipeline, now()))
    if counts_latest_arrival(pipeline) and (clocks := inspect_history(spark, pipeline, opened).clocks):
        opened = opened_again(spark, pipeline, opened, clocks)
    return end_offsets_before(canonical(opened, pipeline), until)


def _later(spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, before: PreviousRun) -> Later:
    """Canonical records, without most of those that the run before has seen."""
    past = before.past
    inputs = () if past is None else tuple(one.snapshot for one in past.inputs)
    read = AlreadyRead(before.as_of, None if past is None else past.snapshot, inputs)
    found = source_of(spark, pipeline).since(opened, read)
    return replace(found, frame=canonical(opened, pipeline, found.frame))


def _later_of(spark: SparkSession, pipeline: Pipeline, opened: OpenHistory, read: ReadBefore) -> Later:
    """The same of one input of a union."""
    snapshot = None if read.past is None else read.past.snapshot
    found = source_of(spark, pipeline).since(opened, AlreadyRead(read.as_of, snapshot))
    return replace(found, frame=canonical(opened, pipeline, found.frame))


def _compared_with(
    spark: SparkSession,
    pipeline: Pipeline,
    opened: OpenHistory,
    before: ReadBefore,
    everything: DataFrame,
    later: Later,
    records: int | None = None,
) -> Comparison:
    """The history of now beside what the run `before` has read."""
    source = source_of(spark, pipeline)
    owns = zip(pipeline.inputs, opened.inputs, before.of_inputs(len(opened.inputs)), strict=True)
    inputs = tuple(
        _compared_with(spark, one, part, own, records_of_input(everything, number), _later_of(spark, one, part, own))
        for number, (one, part, own) in enumerate(owns)
    )

    def in_files(files: Sequence[PinnedFile]) -> DataFrame:
        return canonical(opened, pipeline, source.in_files(opened, files))

    return Comparison(pipeline, opened, everything, later, in_files, before, records, inputs)


def _arrived_before(records: DataFrame, until: int | None) -> DataFrame:
    """The log up to the last record of each partition that has arrived before `until` (epoch ms; None: all of it).

    Records before that one whose arrival is not usable, or later, stay: they go to quarantine, or break the order.
    """
    if until is None:
        return records
    return cut_at(records, end_offsets_before(records, until) or _NOTHING)


def why_ahead(before: PreviousRun, spec: ReplaySpec, new: DataFrame, seen: Inspection) -> str:
    """Why the watermark cannot go on from the saved state with the new records; empty: it can."""
    if before.state["kind"] != "simulation" and not is_past_discoveries(before.state, spec.strategy):
        return f"run {before.run_id} has not read each partition beyond the discovery of the last one"
    if before.state["kind"] == "simulation":
        position = new.agg(F.min(record_position(new).as_struct())).collect()[0][0]
        first = None if position is None else position[0]
        fits = position is None or can_continue(before.state, spec.strategy, tuple(position))
    else:
        arrivals = (p.first_arrival for p in seen.partitions if p.records and p.first_arrival is not None)
        first = min(arrivals, default=None)
        fits = before.state["kind"] != "inversion" or is_past_carried(before.state, first)
    if fits or first is None:
        return ""
    ends = format_instant(before.processing_time_end)
    return (
        f"the saved watermark state is ahead of new records: one arrived at {format_instant(first)}, and run "
        f"{before.run_id} has read another partition up to {ends}"
    )


def _published_starts(spark: SparkSession, tables: Tables) -> TimeRange:
    there = spark.catalog.tableExists(tables.windows)
    low, high = start_bounds(spark.table(tables.windows)) if there else (None, None)
    return TimeRange(low, high + 1) if low is not None and high is not None else TimeRange(0, 1)
