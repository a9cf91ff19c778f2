"""What a run computes: all windows of its range, or those that new records touch. Runs differ in nothing else.

Here the windows and late records of each chunk, and the quarantine, go into the staging tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cached_property, partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition.instants import format_instant
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.lakehouse.publication import TableAt
from spark_jobs.lakehouse.staging import StagedPart
from spark_jobs.replay.aggregates import overflow_in_words
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import ARRIVAL, CLOSED_AT, EVENT_TIME, NEVER, PANE, STATE
from spark_jobs.replay.engine import FIRED_COLUMNS, History, Replay
from spark_jobs.replay.rounding import with_bounds
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.runs.life.documents import ChunkDocument, StagedRange
from spark_jobs.runs.life.start import from_table, full_range, keep_reasons
from spark_jobs.runs.night.account import Account, joined
from spark_jobs.runs.night.affected import AffectedWindows, PreviousRun
from spark_jobs.runs.night.counting import (
    RESTARTS_UNSAID,
    SESSIONS_UNSAID,
    counted_night,
    counted_pairs,
    counted_whole,
    pairs_in,
    pairs_in_sessions,
)
from spark_jobs.runs.night.retained import keep_of_range, keep_touched
from spark_jobs.runs.planning.chunking import chunks_of
from spark_jobs.runs.planning.plan import read_planned
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.work.comparing import ToCompare
from spark_jobs.runs.work.difference import identity_of, is_last_pane, staged_windows
from spark_jobs.runs.work.job import Job
from spark_jobs.runs.work.stages import ReplayChunk, ReplayTouched, chunk_stages
from spark_jobs.runs.work.timeline import opened_replay, saved_timeline
from spark_jobs.sources import good, quarantined, reading
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.failures import AggregateOverflowError
from spark_jobs.spark.parallel import run_parallel


class FullWork:
    """All windows of the plan's range. `records` are the plan's, good and bad; None: read once a stage needs them.

    `begins_beside`: whether the run enters the ledger while its timeline is made, and not before. `to_quarantine`: the
    records of which the unusable ones are staged.
    """

    begins_beside = False

    def __init__(self, job: Job, records: DataFrame | None = None) -> None:
        self.job = job
        self._records = records
        self.replay_stages = chunk_stages(job.plan.chunks)

    @cached_property
    def to_quarantine(self) -> DataFrame:
        return (
            read_planned(self.job.spark, self.job.pipeline, self.job.plan) if self._records is None else self._records
        )

    @cached_property
    def history(self) -> History:
        plan = self.job.plan
        return History(good(self.to_quarantine), plan.event_times, plan.processing_time_end)

    def staged(self) -> StagedRange:
        """What the staged rows stand for, from the published table as it is when the run begins."""
        return full_range(self.job)

    def replay(self, *, goes_on: bool) -> AbstractContextManager[Replay]:
        """The run's replay. `goes_on`: another process of the run has made its timeline."""
        saved = saved_timeline(self.job) if goes_on and self.job.is_faithful else None
        return opened_replay(self.job, self.history, saved, goes_on=goes_on)

    def share(self, replay: Replay) -> None:
        """Make the tables that processes fill side by side, chunk by chunk."""
        prepare_staging(self.job, replay)

    def stage(self, replay: Replay, stage: ReplayChunk | ReplayTouched) -> None:
        """Stage windows and late records."""
        assert isinstance(stage, ReplayChunk)
        began = self.job.clock()
        stage_chunk(self.job, replay, stage.number)
        if self.job.in_stages:
            seconds, chunk = round(self.job.clock() - began, 3), stage.chunk
            document = ChunkDocument(chunk=stage.number, start=chunk.start, end=chunk.end, seconds=seconds)
            document.write_as(self.job.folder, document.file)

    def keep(self, staged: StagedRange, replay: Replay) -> None:
        """Keep published windows whose records are not in the history any more."""
        has_none = self.job.spec.deduplication is None
        records = self.history.records if has_none else replay.deduplicated
        keep_of_range(self.job, staged, records, self.to_quarantine)

    def account(self, replay: Replay, before: DataFrame) -> Account:
        """What became of each record, and of each pair of a record and a window. `before`: not used."""
        job, span = self.job, None if self.job.plan.is_whole else self.job.plan.span
        records = pairs = counted_whole(job.spark, job.pipeline, job.plan, self.to_quarantine, job.spec, span)
        if job.spec.deduplication is not None:
            pairs = counted_pairs(replay.deduplicated, job.spec, span)
        counted = job.staging.rows()
        if PANE in counted.columns and STATE in counted.columns:
            counted = counted.where(is_last_pane(job.spec))
        aside = 0 if job.spec.deduplication is None else job.result.counts.records_duplicate
        forgets = job.is_faithful and job.spec.rules.forgets_records
        found = None if forgets else self._pairs_of(counted, replay)
        return joined(records, pairs, found, aside, why=RESTARTS_UNSAID if forgets else SESSIONS_UNSAID)

    def _pairs_of(self, windows: DataFrame, replay: Replay) -> int | None:
        spec, is_faithful = self.job.spec, self.job.is_faithful
        if not spec.has_sessions:
            return pairs_in(windows)
        late = self.job.staging.rows(StagedPart.LATE) if is_faithful else None
        return pairs_in_sessions(windows, late, spec, is_out=is_faithful and spec.flush and replay.timeline.flushes)

    def compared(self, *, keeps: bool) -> ToCompare:
        """The windows of the live job's that are judged."""
        return ToCompare(self.job.plan.chunks, keeps=keeps)


@dataclass(frozen=True, slots=True)
class Incremental:
    """What a night has planned that goes on from the run `before`.

    `records` are the history, `new` those of it that have arrived since; `touched`: the windows that they touch.
    `base`: the published table when that run was looked for. `lacks`: records that were read before are gone, so that
    windows may keep their values. `idle`: nothing has arrived; only what the live job has emitted is compared.
    `unplaced`: all records without a partition or an offset; None: the history has none. `changed`: records that were
    read before and get other rows of the lookup, as they are now; None: there are none. `deciding`: the records that
    decide behind a deduplication; None: there is none.
    """

    plan: Plan
    before: PreviousRun
    base: TableAt
    records: DataFrame
    new: DataFrame
    touched: AffectedWindows
    lacks: bool
    idle: bool = False
    unplaced: DataFrame | None = None
    changed: DataFrame | None = None
    deciding: DataFrame | None = None

    @property
    def replay_stages(self) -> tuple[ReplayTouched, ...]:
        return (ReplayTouched(self.touched.recent, self.touched.older),)

    @property
    def note(self) -> str:
        """What people are told of the night."""
        if self.idle:
            return f"nothing has arrived since run {self.before.run_id}; what the live job emitted since was compared"
        if self.changed is not None:
            return f"it goes on from run {self.before.run_id}; records that get other rows of the lookup count anew"
        return f"it goes on from run {self.before.run_id}"


class IncrementalWork:
    """The windows that new records touch, and those that were not closed for good before."""

    begins_beside = True

    def __init__(self, job: Job, night: Incremental) -> None:
        self.job, self.night = job, night
        self.history = History(good(night.records), night.plan.event_times, night.plan.processing_time_end)
        self.good_news = good(night.new)
        self.to_quarantine = night.new
        if night.unplaced is not None:
            self.to_quarantine = night.new.unionByName(night.unplaced, allowMissingColumns=True)
        self.replay_stages = night.replay_stages

    @cached_property
    def recent(self) -> tuple[TimeRange, ...]:
        """The slices in which the recent windows are computed."""
        recent = self.night.touched.recent
        if recent.start >= recent.end:
            return ()
        return chunks_of(self.job.spec.windows, recent, records=self.history.records)

    @cached_property
    def parts(self) -> list[tuple[TimeRange, DataFrame | None]]:
        """The slices of all windows that are computed; with the pairs of key and window, where only those are."""
        windows, touched = self.job.spec.windows, self.night.touched
        parts: list[tuple[TimeRange, DataFrame | None]] = []
        if touched.older is not None:
            parts += [(chunk, touched.pairs) for chunk in chunks_of(windows, touched.older, records=touched.pairs)]
        parts += [(chunk, None) for chunk in self.recent]
        if not parts:  # nothing to recompute: the staging table is there all the same
            before = TimeRange(touched.recent.start - 1, touched.recent.start)
            parts = [(chunk, touched.pairs) for chunk in chunks_of(windows, before)]
        return parts

    @property
    def late_spans(self) -> Sequence[TimeRange]:
        """The slices in which late records are looked for: those of the new records, since only these can be late."""
        return self.night.plan.chunks

    def late_of(self, replay: Replay, span: TimeRange) -> DataFrame:
        """The late records among the new and the changed ones, of the windows with a start in one of the slices."""
        changed = self.night.changed
        among = self.good_news if changed is None else self.good_news.unionByName(good(changed), True)
        return replay.late(span, self.night.plan.span, among)

    def staged(self) -> StagedRange:
        touched = self.night.touched
        order = [StagedPart.TOUCHED] if touched.older else []
        order += [StagedPart.WINDOWS] * len(self.parts) + [StagedPart.LATE] * len(self.late_spans)
        has_quarantine = bool(self.night.plan.quarantined)
        expected: dict[str, tuple[int, ...]] = {StagedPart.QUARANTINE.value: (0,)} if has_quarantine else {}
        for number, part in enumerate(order, 1):
            expected[part.value] = (*expected.get(part.value, ()), number)
        return StagedRange(
            **from_table(self.night.base),
            reach=TimeRange((touched.older or touched.recent).start, touched.recent.end),
            replaces=False,
            since=self.night.before.as_of,
            recent=touched.recent,
            older=touched.older,
            attempt=self.job.attempt,
            expected=expected,
            changes_late=self.night.changed is not None,
        )

    @contextmanager
    def replay(self, *, goes_on: bool) -> Iterator[Replay]:
        self.job.result.continued_from = self.night.before.run_id
        with CachedFrames() as self._cache:
            opened = self.opened(self.history, with_bounds(self.job.spec, self.history.records))
            with opened as replay, reading(self.night.plan.pipeline):
                yield replay

    def opened(self, history: History, spec: ReplaySpec) -> Replay:
        """The replay of the history's records, which goes on from the run before."""
        before = self.night.before
        return Replay(history, spec, state=before.state, timeline_records=self.good_news, earlier=before.steps)

    def stage(self, replay: Replay, stage: ReplayChunk | ReplayTouched) -> None:
        touched = self.night.touched
        with self.job.stage("windows", f"in {len(self.parts)} parts, and late records"):
            rows: list[tuple[StagedPart, Callable[[], DataFrame]]] = []
            pairs = touched.pairs
            if touched.older is not None and pairs is not None:
                rows.append((StagedPart.TOUCHED, lambda: pairs))
            rows += [(StagedPart.WINDOWS, partial(replay.windows, chunk, only=only)) for chunk, only in self.parts]
            rows += [(StagedPart.LATE, partial(self.late_of, replay, span)) for span in self.late_spans]
            stage_parallel(self.job, replay, rows)

    def keep(self, staged: StagedRange, replay: Replay) -> None:
        if self.night.lacks or self.night.before.reading.has_gone:
            keep_touched(self.job, staged, self.good_news)

    def account(self, replay: Replay, before: DataFrame) -> Account:
        """What became of each new record, and of its pairs. `before`: the published windows that are computed again."""
        job, night = self.job, self.night
        records = counted_night(job.spark, job.pipeline, job.plan, night.before.reading, night.new, job.spec)
        return self.beside(records, records, before, 0)

    def beside(self, records: Account, pairs: Account, before: DataFrame, aside: int) -> Account:
        """One account of these terms, beside the pairs that the windows count more than `before`."""
        job, counted = self.job, staged_windows(self.job)
        if PANE in counted.columns and STATE in counted.columns:
            counted, before = counted.where(is_last_pane(job.spec)), before.where(is_last_pane(job.spec))
        if job.spec.rules.forgets_records:
            return joined(records, pairs, None, aside, why=RESTARTS_UNSAID)
        known = self.night.before.run_id == job.published.latest
        found = pairs_in(counted) - pairs_in(before) if known else None
        why = "a run over a part of the range was published since the run that this one goes on from"
        return joined(records, pairs, found, aside, why=why)

    def compared(self, *, keeps: bool) -> ToCompare:
        return ToCompare(self.recent, self.night.touched, self.night.before.as_of, keeps)


Work = FullWork | IncrementalWork
"""What a run computes, and from what; both kinds have the same members."""


def prepare_staging(job: Job, replay: Replay) -> None:
    """Make the tables that processes fill side by side, chunk by chunk."""
    first = job.plan.chunks[0]
    job.staging.prepare(published_windows(replay.windows(first)).schema)
    if job.is_faithful:
        job.staging.prepare(_published_late(_late_of_chunk(job, replay, first)).schema, StagedPart.LATE)


def stage_chunk(job: Job, replay: Replay, number: int) -> None:
    """Stage the windows and the late records of chunk `number`, counted from 1, side by side."""
    chunk, of = job.plan.chunks[number - 1], len(job.plan.chunks)
    # The frames are made one after the other: of sessions, both come from one replay.
    frames = [(StagedPart.WINDOWS, published_windows(replay.windows(chunk)))]
    if job.is_faithful:
        frames.append((StagedPart.LATE, _published_late(_late_of_chunk(job, replay, chunk))))
    with job.stage("windows", f"{number} of {of}: {format_instant(chunk.start)} to {format_instant(chunk.end)}"):
        distinct_by = {StagedPart.WINDOWS: aggregated_by(job.spec)}
        writes = (
            partial(job.staging.write, number, rows, part, distinct_by=distinct_by.get(part, ()))
            for part, rows in frames
        )
        with _overflow_named(replay):
            run_parallel(job.spark, *writes)


@contextmanager
def _overflow_named(replay: Replay) -> Iterator[None]:
    """Name the aggregate, the window and the key where a sum overflows: Spark names none of them."""
    try:
        yield
    except AggregateOverflowError as problem:
        found = overflow_in_words(replay.entering, replay.spec)
        if found is None:
            raise
        raise AggregateOverflowError(found, problem.where, problem.hint) from problem


def aggregated_by(spec: ReplaySpec) -> tuple[str, ...]:
    """The columns by which one aggregation makes all windows of a chunk; none where it is not one aggregation."""
    identity = identity_of(spec)
    return () if PANE in identity else identity


def _late_of_chunk(job: Job, replay: Replay, chunk: TimeRange) -> DataFrame:
    is_last = chunk == job.plan.chunks[-1]
    # Records just behind the range can still have missed its last windows.
    reach = 0 if replay.merges or not is_last else replay.spec.aligned_windows.longest
    late = replay.late(TimeRange(chunk.start, chunk.end + reach), job.plan.span)
    if late is None:
        raise ValueError("a run of complete values alone has no late records")
    return late


def stage_parallel(job: Job, replay: Replay, parts: Sequence[tuple[StagedPart, Callable[[], DataFrame]]]) -> None:
    """Stage what the engine gives, side by side; the chunks are numbered from 1 in the order of `parts`."""
    columns = {StagedPart.WINDOWS: published_windows, StagedPart.LATE: _published_late}

    def stage(number: int, part: StagedPart, rows_of: Callable[[], DataFrame]) -> None:
        rows = rows_of()
        job.staging.write(number, columns[part](rows) if part in columns else rows, part)

    with _overflow_named(replay):
        run_parallel(job.spark, *(partial(stage, number, *one) for number, one in enumerate(parts, 1)))


def stage_quarantine(job: Job, records: DataFrame) -> None:
    """Stage the records that cannot be used."""
    if job.plan.quarantined:
        with job.stage("quarantine", f"{job.plan.quarantined} records"):
            job.staging.write(0, quarantined(records), StagedPart.QUARANTINE)
            keep_reasons(job, job.staging.rows(StagedPart.QUARANTINE))


def published_windows(windows: DataFrame) -> DataFrame:
    """The engine's windows in the published table's columns: timestamps in UTC, the close as `closed_at`."""
    fired = [c for c in FIRED_COLUMNS if c in windows.columns]
    rest = [c for c in windows.columns if c not in (START, END, *fired)]
    closed_at = (
        F.when(F.col(FIRED_COLUMNS[0]) < F.lit(NEVER), F.timestamp_millis(FIRED_COLUMNS[0]))
        if fired
        else F.lit(None).cast("timestamp")
    )
    return windows.select(
        F.timestamp_millis(START).alias("window_start"),
        F.timestamp_millis(END).alias("window_end"),
        *rest,
        closed_at.alias(CLOSED_AT),
    )


def _published_late(late: DataFrame) -> DataFrame:
    instants = {ARRIVAL: "arrival", EVENT_TIME: "event_time", START: "window_start", END: "window_end"}
    renamed = {"rw_partition": "partition", "rw_offset": "offset", "rw_sequence": "sequence"}
    columns = []
    for name in late.columns:
        if name in instants:
            columns.append(F.timestamp_millis(name).alias(instants[name]))
        else:
            columns.append(F.col(name).alias(renamed.get(name, name)))
    placed = late.select(*columns)
    return placed.withColumn("range_start", F.coalesce("window_start", "event_time"))
