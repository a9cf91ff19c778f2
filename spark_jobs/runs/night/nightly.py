"""The reconciliation: read what arrived since the last run, recompute the windows that it touches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.definition.union import of_input, partition_in_words
from spark_jobs.engines import Recorded, live_engine
from spark_jobs.eventtime.flink.wall_clock import WallClockSessions, WallClockWindows, disorder
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import AnyWindows
from spark_jobs.lakehouse.ledger import Ledger
from spark_jobs.lakehouse.publication import TableAt
from spark_jobs.lakehouse.published_table import PublishedTable
from spark_jobs.lakehouse.tables import Tables, create_tables, start_bounds
from spark_jobs.pins import ends_of
from spark_jobs.positions import Zone
from spark_jobs.replay.columns import record_position
from spark_jobs.replay.defined_windows import holds_back, windows_of
from spark_jobs.replay.flink.inversion import is_past_carried, is_past_discoveries
from spark_jobs.replay.flink.simulation import can_continue
from spark_jobs.replay.from_pipeline import rule_book_of, spec_of
from spark_jobs.replay.rule_book import TASKS
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.life.documents import Outcome
from spark_jobs.runs.life.lifecycle import new_token
from spark_jobs.runs.life.permission import effective_policy
from spark_jobs.runs.life.recovery import recover
from spark_jobs.runs.life.start import (
    PUBLISHED_ALREADY,
    Asked,
    check_quarantine,
    is_published,
    refuse_missing_event_time,
)
from spark_jobs.runs.life.status import RunKind, RunStatus
from spark_jobs.runs.life.store import RunStore
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun, affected_windows, merged, run_before
from spark_jobs.runs.night.decision import Facts, GoOn, Nothing, ReadAll, decide
from spark_jobs.runs.night.duplicates import copies_of, deciding_records, why_decided_anew
from spark_jobs.runs.night.evidence import Beside
from spark_jobs.runs.night.looked_up import Anew, Changed, looked_up_again
from spark_jobs.runs.night.ordered import affected_in_order
from spark_jobs.runs.night.reading import Reading
from spark_jobs.runs.night.sessions import affected_sessions
from spark_jobs.runs.night.taken import identities_of, positions_of, read_whole, refuse_another_topic, take_new
from spark_jobs.runs.planning.plan import arrival_limit, make_plan, planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.requesting import check_until
from spark_jobs.runs.work.backfill import execute
from spark_jobs.runs.work.computing import Incremental, IncrementalWork
from spark_jobs.runs.work.duplicates_night import DuplicatesWork
from spark_jobs.runs.work.evaluation import EndPolicy, Evaluator
from spark_jobs.runs.work.job import RunResult, chosen_run_id, job_of
from spark_jobs.runs.work.ordered_night import OrderedWork
from spark_jobs.runs.work.progress import Progress
from spark_jobs.runs.work.sessions_night import SessionsWork
from spark_jobs.runs.work.stages import ReplayChunk, chunk_stages
from spark_jobs.sources import (
    Clocks,
    Evidence,
    Inspection,
    OpenHistory,
    Sign,
    arrived_since,
    can_be_unplaced,
    canonical,
    counts_latest_arrival,
    cut_at,
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
    source_of,
    unplaced,
)
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.failures import catalog_answers
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


@catalog_answers()
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

    The tables are then those of a full run at the same end offsets. A first run, another definition, and a new
    partition are full runs; `result.note` says so. What a live job records of its reading (`Recorded`) arrives when
    it is recorded. Where a run has been published that saw what arrived at `until` or later, this one compares only: it
    must not take back what is known now.

    Raises as `spark_jobs.runs.work.backfill.execute`.
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
    live_engine(pipeline).keep(spark, pipeline)
    with planned_night(spark, pipeline, progress, until=until, end_policy=end_policy, now=now) as night:
        if isinstance(night, NothingNew):
            result = _nothing_new(pipeline, run_id, night, folders, now)
            result.corrections = end_policy.delivered(spark, pipeline, folders.folder(result.run_id))
            return result
        if end_policy.prepare is not None:
            end_policy.prepare()
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
                asked=asked,
                note=night.note,
                end_policy=ends,
                **common,
            )
            if night.rival:
                result.note = night.note
            return result
        started = now()
        chosen = chosen_run_id(pipeline, run_id, started)
        job = job_of(spark, pipeline, night.plan, progress, chosen, RunKind.RECONCILE, attempt=new_token(), **common)
        work = _work_of(job.spec)(job, night)
        check_quarantine(job)
        refuse_missing_event_time(pipeline, night.plan, replace(work.history, records=work.good_news))
        result = Evaluator(work, end_policy, started=started, asked=asked).evaluate()
        if night.idle or night.changed is not None:
            result.note = night.note
        return result


def _work_of(spec: ReplaySpec) -> type[IncrementalWork]:
    if spec.rules.decides_by_order:
        return OrderedWork
    if spec.has_sessions:
        return SessionsWork
    return IncrementalWork if spec.deduplication is None else DuplicatesWork


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
        facts = _Facts(frames, spark, pipeline, progress, until, end_policy or EndPolicy(), now)
        match decide(facts):
            case ReadAll() as decision:
                yield facts.full(decision)
            case Nothing():
                yield NothingNew(facts.before)
            case GoOn() as decision:
                yield facts.incremental(decision)


class _Facts(Facts):
    """What a night is decided by. Each fact is looked up once, when it is asked for; frames are cached in `frames`."""

    def __init__(
        self,
        frames: ExitStack,
        spark: SparkSession,
        pipeline: Pipeline,
        progress: Progress,
        until: int | None,
        end_policy: EndPolicy,
        now: Callable[[], datetime],
    ) -> None:
        self._frames, self._spark, self._pipeline, self._progress = frames, spark, pipeline, progress
        self._until, self._end_policy, self._now = until, end_policy, now
        self._tables = Tables.of(pipeline)
        before = None if until is None else until - 1
        self._recorded = live_engine(pipeline).recorded(spark, pipeline, until=before)
        self._ends = None if self._recorded is None else self._recorded.ends
        self._cache = frames.enter_context(CachedFrames())
        self._again: OpenHistory | None = None
        self._again_to: dict[int, int] = {}

    @cached_property
    def rival(self) -> str | None:
        if self._until is not None:
            ledger = Ledger(self._spark, self._tables)
            newer = _newer_run(self._spark, self._pipeline, ledger, self._until, self._ends, self._now)
            if newer is not None:
                return newer
        before, recorded = self._found[0][0], self._recorded
        if before is None or recorded is None or not _has_read_more(self._spark, self._pipeline, before, recorded):
            return None
        return before.run_id  # it has seen what moves no offset

    @cached_property
    def _found(self) -> tuple[tuple[PreviousRun | None, str], OpenHistory, TimeRange]:
        """The run to go on from, the history as it is now, and the span of the published starts."""
        limit = arrival_limit(self._pipeline, self._now())
        _ = self._base  # read the base first: whatever is published after this line counts as a conflict
        before, opened, published = run_parallel(
            self._spark,
            lambda: run_before(self._spark, self._tables, self._pipeline),
            lambda: open_history(self._spark, self._pipeline, as_of=self._ends, arrivals_before=limit),
            lambda: _published_starts(self._spark, self._tables),
        )
        return before, opened, published

    @cached_property
    def _base(self) -> TableAt:
        return PublishedTable(self._spark, self._tables.windows).now()

    @property
    def before(self) -> PreviousRun:
        """The run to go on from, where there is one."""
        found = self._found[0][0]
        assert found is not None
        return found

    @property
    def _opened(self) -> OpenHistory:
        """The history as it is now, without arrivals that are known to be ahead."""
        return self._again or self._known

    @cached_property
    def _known(self) -> OpenHistory:
        before, opened = self._found[0][0], self._found[1]
        if before is None or not before.clocks:
            return opened
        limit = arrival_limit(self._pipeline, self._now())
        return opened_again(self._spark, self._pipeline, opened, Clocks(before.clocks), arrivals_before=limit)

    @property
    def _published(self) -> TimeRange:
        return self._found[2]

    @cached_property
    def no_start(self) -> str:
        return self._found[0][1]

    @cached_property
    def whole_only(self) -> str:
        if self._pipeline.mode is Mode.COMPLETE:
            return "complete values have no timeline to go on from: all of them are computed"
        limit = arrival_limit(self._pipeline, self._now())
        why = _why_full(self._pipeline, self.before, limit, self._recorded) or self._why_forgotten
        return why or (self._looked_up.why if isinstance(self._looked_up, Anew) else "")

    @cached_property
    def _looked_up(self) -> Anew | Changed | None:
        if self._opened.lookup is None:
            return None
        with self._progress.stage("lookup", self._opened.lookup.table):
            found = looked_up_again(self._spark, self._pipeline, self.before, self._opened, self._cache)
        why = _why_changed_whole(self._pipeline, self._spec, self.before) if isinstance(found, Changed) else ""
        return Anew(f"the records are looked up anew: rows of its table have changed, and {why}") if why else found

    @property
    def _changed(self) -> Changed | None:
        return self._looked_up if isinstance(self._looked_up, Changed) else None

    @property
    def _why_forgotten(self) -> str:
        """Why what was decided with records of forgotten people does not stay."""
        stays = self._spec.rules.decides_by_order or self._pipeline.deduplicate is not None
        if not self._opened.erasures or not stays:
            return ""
        last, before = max(one.requested_at for one in self._opened.erasures), self.before.run_id
        is_after = (F.col("run_id") == F.lit(before)) & (F.col("started_at") > F.lit(last))
        is_known = not Ledger(self._spark, self._tables).published_runs().where(is_after).isEmpty()
        return "" if is_known else f"somebody was forgotten since run {before}"

    @cached_property
    def _spec(self) -> ReplaySpec:
        recorded = None if self._recorded is None else self._recorded.rules_input
        return spec_of(self._pipeline, sorted(self.before.as_of), mode=self._pipeline.mode, recorded=recorded)

    @cached_property
    def _everything(self) -> DataFrame:
        everything = canonical(self._opened, self._pipeline)
        if is_small(self._opened) or is_short(self._opened):
            return self._cache.keep(narrowed(everything, self._pipeline))
        return everything

    @cached_property
    def _beside(self) -> Beside:
        return Beside(self._spark, self._pipeline, self._opened, self.before.read)

    @cached_property
    def evidence(self) -> Evidence:
        with self._progress.stage("what was read", self._opened.description):
            names = names_of(self._pipeline)
            refuse_another_topic(self._beside.identities, self.before.read, self._opened, names)
            found = self._beside.evidence()
        why = _gone_whole(self._pipeline, self._changed) if found.sign is Sign.GONE else ""
        return Evidence(Sign.UNPROVEN, why) if why else found

    @cached_property
    def _later(self) -> DataFrame:
        """Rows of the history without most of those that were read before."""
        source = source_of(self._spark, self._pipeline)
        return source.since(self._opened, self.before.as_of, read_whole(self._spark, self._pipeline, self.before.read))

    @cached_property
    def _new(self) -> DataFrame:
        """The canonical records that have come since."""
        small = is_small(self._opened)
        later = self._everything if small else canonical(self._opened, self._pipeline, self._later)
        new = arrived_since(later, self.before.as_of)
        if self._opened.has_topic:  # it is read once for all stages
            new = self._cache.keep(narrowed(new, self._pipeline))
        new = cut_at(new, self._again_to)
        return _arrived_before(new, self._until) if self._ends is None else cut_at(new, self._ends)

    @cached_property
    def _unplaced(self) -> DataFrame | None:
        """All records without a partition or an offset; None: the history has none."""
        return unplaced(self._opened, self._pipeline) if can_be_unplaced(self._opened, self._pipeline) else None

    @cached_property
    def _seen(self) -> tuple[Inspection, AffectedWindows, int]:
        """What the new records are, which windows they touch, and how many have come without a position.

        Where arrivals are ahead, the history is opened again without them, and looked at once more.
        """
        found = self._looked_at()
        if clocks := found[0].clocks:
            seen_to = self.before.as_of | ends_of(found[0].partitions)
            self._again_to = ends_within(seen_to, clocks)
            self._again = opened_again(self._spark, self._pipeline, self._opened, clocks)
            for name in ("_everything", "_later", "_new", "_unplaced"):
                vars(self).pop(name, None)
            found = self._looked_at()
        return found

    def _looked_at(self) -> tuple[Inspection, AffectedWindows, int]:
        spark, pipeline, without_place = self._spark, self._pipeline, self._unplaced
        with self._progress.stage("new records", self._opened.description):
            seen, touched, came_unplaced = run_parallel(
                spark,
                lambda: inspect_history(
                    spark,
                    pipeline,
                    self._opened,
                    as_of=self._ends,
                    records=self._new,
                    until=self._until if self._ends is None else None,
                    since=self.before.as_of,
                    known=self.before.reading.known,
                ),
                self._touched_by_new,
                lambda: 0 if without_place is None else self._came_unplaced(without_place),
            )
        return seen, touched, came_unplaced

    def _touched_by_new(self) -> AffectedWindows:
        new, spec, before = good(self._new), self._spec, self.before
        windows = self._spark.table(self._tables.windows)
        if spec.rules.decides_by_order:
            return affected_in_order(new, spec, before, windows, self._cache)
        if not spec.has_sessions:
            others = () if self._changed is None else (good(self._changed.then), good(self._changed.now))
            return affected_windows(new, spec, before, self._published, self._cache, others)
        return affected_sessions(new, spec, before, windows, self._published, self._cache)

    def _came_unplaced(self, records: DataFrame) -> int:
        """How many records without a place in the log have come since; where nobody knows, those not in quarantine."""
        known = self.before.reading.without_place
        if known is None and self._spark.catalog.tableExists(self._tables.quarantine):
            known = self._spark.table(self._tables.quarantine).where(is_unplaced("partition", "offset")).count()
        return max(0, records.count() - (known or 0))

    @cached_property
    def behind(self) -> str:
        return _why_behind(self.before, self._pipeline, self._opened, self._seen[0])

    @cached_property
    def has_new_partition(self) -> bool:
        return bool({p.partition for p in self._seen[0].partitions} - self.before.as_of.keys())

    @cached_property
    def has_new(self) -> bool:
        has_gone_on = self._recorded is not None and self._recorded.goes_beyond(self.before.state)
        seen, _, came_unplaced = self._seen
        has_more = has_gone_on or came_unplaced > 0 or self._changed is not None
        return has_more or any(p.records for p in seen.partitions)

    @cached_property
    def has_live_news(self) -> bool:
        return _has_live_news(self._spark, self._pipeline, self._end_policy, self._everything, self._published)

    @cached_property
    def ahead(self) -> str:
        why = why_ahead(self.before, self._spec, self._new, self._seen[0])
        deduplication, new = self._spec.deduplication, good(self._new)
        if why or deduplication is None:
            return why
        there = self._spark.catalog.tableExists(self._tables.late)
        late = self._spark.table(self._tables.late) if there else None
        read = cut_at(self._deciding, self.before.as_of)
        return why_decided_anew(copies_of(read, new, deduplication, self._cache), new, late, deduplication)

    @cached_property
    def _deciding(self) -> DataFrame:
        """The records that decide the windows behind a deduplication; they are read once for all."""
        deduplication = self._spec.deduplication
        assert deduplication is not None
        records, new = good(narrowed(self._everything, self._pipeline)), good(self._new)
        found = deciding_records(records, new, self._seen[1], self._spec, deduplication, self._cache)
        return self._cache.keep(found)

    def full(self, decision: ReadAll) -> Full:
        """A night that computes all windows."""
        as_of = self._ends
        if as_of is None and self._until is not None:
            as_of = _end_offsets(self._spark, self._pipeline, self._until, self._now)
        with self._progress.stage("plan", decision.why):
            plan, records = self._frames.enter_context(
                planned_records(self._spark, self._pipeline, as_of=as_of, recorded=self._recorded, now=self._now)
            )
        return Full(decision.why, plan, records, decision.rival)

    def incremental(self, decision: GoOn) -> Incremental:
        """A night that computes the windows that new records touch."""
        (seen, touched, came_unplaced), before, published = self._seen, self.before, self._published
        times, read = seen.event_times or published, seen.records + came_unplaced
        known = replace(
            seen,
            records=read,
            quarantined=seen.quarantined + came_unplaced,
            without_place=came_unplaced,
            partitions=merged(before, seen),
            event_times=TimeRange(min(published.start, times.start), max(published.end, times.end)),
            history_records=before.records + read,
        )
        # The chunks are those of the late records, and only new ones can be late.
        plan = make_plan(
            self._spark,
            self._pipeline,
            as_of=self._ends or self._again_to or None,
            opened=self._opened,
            seen=known,
            reading=self._reading(known, decision),
            records=self._new if self._changed is None else self._new.unionByName(self._changed.now, True),
            recorded=self._recorded,
        )
        records, new = (cut_at(frame, plan.as_of) for frame in (self._everything, self._new))
        return Incremental(
            plan,
            before,
            self._base,
            records,
            new,
            touched,
            decision.lacks,
            idle=not self.has_new,
            unplaced=self._unplaced,
            changed=None if self._changed is None else self._changed.now,
            deciding=None if self._spec.deduplication is None else cut_at(self._deciding, plan.as_of),
        )

    def _reading(self, known: Inspection, decision: GoOn) -> Reading:
        spark, pipeline, before = self._spark, self._pipeline, self.before.read
        ends = ends_of(known.partitions)
        identities = identities_of(spark, pipeline, self._opened, ends)
        inputs = self._opened.inputs or (self._opened,)

        def rows_since(number: int) -> DataFrame | None:
            if not pipeline.inputs:
                return self._later
            own = of_input(before.reading.ends, number)
            return source_of(spark, pipeline.inputs[number]).since(inputs[number], own)

        found = positions_of(spark, pipeline, self._opened, known, before.reading.known, ends, rows_since)
        later = {p: {zone: b for zone, b in zones.items() if zone is Zone.LATER} for p, zones in found.items()}
        return take_new(pipeline, identities, before, later, self._new, known, lacks=decision.lacks)


def _gone_whole(pipeline: Pipeline, changed: Changed | None = None) -> str:
    """Why all windows are computed where records are gone; empty: those they touch are enough."""
    if pipeline.deduplicate is not None:
        return "records are gone, and whether they were the first of their ids is found in the whole history"
    if windows_of(pipeline).is_merging:
        return "records are gone, and which sessions they were in is found in the whole history"
    if rule_book_of(pipeline).of(pipeline, None).decides_by_order:
        return "records are gone, and the tasks may have to read them again"
    if changed is not None:
        return "records are gone, and others get other rows of the lookup's table than they did"
    return ""


def _why_full(pipeline: Pipeline, before: PreviousRun, limit: int | None, recorded: Recorded | None) -> str:
    """Why a night cannot go on from the run `before`; empty: it can. `limit`: arrivals from then on are ahead."""
    windows = windows_of(pipeline)
    if windows.is_merging and (why := _why_sessions_whole(pipeline, windows)):
        return why
    if pipeline.deduplicate is not None and pipeline.live is not None:
        return "what the live job made behind a deduplication is compared as a whole"
    if before.reading.has_gone and (why := _gone_whole(pipeline)):
        return why
    if recorded is not None and not recorded.agrees_with(before.state):
        return f"what the live job had read is not known to be what run {before.run_id} knew of it"
    if any(at > before.processing_time_end for at in restarts_of(pipeline)):
        return f"the live job was restarted after what run {before.run_id} has read: its timeline is made as a whole"
    if isinstance(windows, WallClockWindows) and disorder(windows.zone):
        return f"windows in the wall clock of {windows.zone.key} need not close in order: they are read as a whole"
    if holds_back(pipeline):
        return "what each source subtask holds back is known from the start of the log"
    rules = rule_book_of(pipeline)
    if rules.of(pipeline, None).decides_by_order and (why := _why_order_whole(pipeline, before)):
        return why
    if rules.closes_by_partition and not before.steps.by_partition:
        return f"run {before.run_id} kept no closes of each partition"
    if limit is not None and before.processing_time_end >= limit:
        at = format_instant(before.processing_time_end)
        return f"run {before.run_id} has read an arrival that is ahead of the clock ({at})"
    return ""


def _why_order_whole(pipeline: Pipeline, before: PreviousRun) -> str:
    """Why windows that the order of each partition decides are computed as a whole; empty: those touched are enough."""
    if pipeline.live is not None:
        return "what the live job's tasks made is compared as a whole"
    if TASKS not in before.state:
        return f"run {before.run_id} kept no state of the tasks"
    return rule_book_of(pipeline).of(pipeline, None).why_not_gone_on(before.state[TASKS])


def _why_changed_whole(pipeline: Pipeline, spec: ReplaySpec, before: PreviousRun) -> str:
    """Why all windows are computed where rows of the lookup have changed; empty: those they touch are enough."""
    if pipeline.deduplicate is not None:
        return "which record is the first of its id is found in the whole history"
    if spec.has_sessions or spec.rules.decides_by_order:
        return "which windows records leave is found in the whole history"
    if spec.aligned_windows.leaves_gaps:
        return "records between two windows are told late in the whole history"
    if before.reading.has_gone:
        return "some records are gone"
    return ""


def _why_sessions_whole(pipeline: Pipeline, windows: AnyWindows) -> str:
    """Why sessions are computed as a whole; empty: those that new records reach are enough."""
    if pipeline.live is not None:
        return "the live job's sessions are compared as a whole"
    if pipeline.deduplicate is not None:
        return "sessions behind a deduplication are read as a whole"
    if isinstance(windows, WallClockSessions):
        return f"sessions in the wall clock of {windows.zone.key} are read as a whole"
    if pipeline.mode is Mode.FAITHFUL:
        return "the published sessions do not say where late records lie: all are computed"
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


def _has_read_more(spark: SparkSession, pipeline: Pipeline, before: PreviousRun, recorded: Recorded) -> bool:
    """Whether the run `before` knew more of the live job than this, and that is of its life still.

    It is not where what it records was put back from a copy. What has gaps does not say.
    """
    if not recorded.stays_behind(before.state):
        return False
    known = live_engine(pipeline).recorded(spark, pipeline)
    return known is None or bool(known.gaps) or known.agrees_with(before.state)


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
    if first is not None and spec.restarts and first < spec.restarts[-1]:
        return f"a new record arrived before the job's last restart ({format_instant(spec.restarts[-1])})"
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
