"""The plan of a cutover, proven by a replay that begins at its offsets with nothing in its state. Writes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.cutover.beside import DIFFERS, EXPECTED, FOUND, as_texts, beside
from spark_jobs.cutover.document import CutoverPlan, Differing
from spark_jobs.cutover.offsets import Log, described, first_offsets, from_offsets, logs_of, refuse_removed
from spark_jobs.definition import Pipeline
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.mode import Mode
from spark_jobs.engines import live_engine
from spark_jobs.errors import DefinitionError, EmptyRangeError
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.assign import END, START
from spark_jobs.replay.columns import DROPPED, LATE, PANE, STATE
from spark_jobs.replay.defined_windows import windows_of
from spark_jobs.replay.engine import History, Replay
from spark_jobs.replay.rounding import rounding_bounds
from spark_jobs.replay.spec import Panes, ReplaySpec, complete_name
from spark_jobs.runs.planning.plan import planned_records
from spark_jobs.runs.planning.plan_document import Plan
from spark_jobs.runs.planning.planned_spec import spec_of_plan
from spark_jobs.runs.work.progress import Progress
from spark_jobs.sources import good, reading

MOST_TRIED, MOST_SHOWN = 8, 5
"""How many later instants are tried where one is not exact; how many windows that differ are shown."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What a replay from the offsets gave beside the replay of the whole history. Times are epoch ms.

    `clean_from`: behind the last window that differs.
    """

    windows: int
    late: int
    differing: int
    clean_from: int | None
    samples: tuple[Differing, ...]


@dataclass(frozen=True, slots=True)
class Cutover:
    """The history that the new job goes on with: what was read once, for each instant that is tried."""

    pipeline: Pipeline
    plan: Plan
    records: DataFrame
    logs: list[Log]
    whole: Replay

    def offsets(self, at: int) -> dict[int, int]:
        return first_offsets(self.records, self.plan, self.logs, at)

    def proof(self, offsets: Mapping[int, int], at: int) -> Proof:
        """The windows from `at` on, by the whole history and from the offsets on."""
        parts = [TimeRange(max(part.start, at), part.end) for part in self.plan.chunks if part.end > at]
        with self._from(offsets) as new:
            found = [self._compared(new, part) for part in parts]
        samples = sorted((one for proof in found for one in proof.samples), key=lambda one: one.start)
        return Proof(
            sum(one.windows for one in found),
            sum(one.late for one in found),
            sum(one.differing for one in found),
            max((one.clean_from for one in found if one.clean_from is not None), default=None),
            tuple(samples[:MOST_SHOWN]),
        )

    def _from(self, offsets: Mapping[int, int]) -> Replay:
        spec = self.whole.spec
        if live_engine(self.pipeline).reads_backlog_at_once:
            spec = replace(spec, mode=Mode.COMPLETE)
        own = from_offsets(self.records, offsets)
        return Replay(History(own, self.plan.event_times, self.plan.processing_time_end), spec)

    def _compared(self, new: Replay, span: TimeRange) -> Proof:
        keys, values = list(self.pipeline.keys), list(self.pipeline.aggregates)
        old = self.whole.windows(span)
        came_out = old.where(F.col(PANE).isNotNull())
        facts = came_out.agg(F.count(F.lit(1)), F.count_if((F.col(LATE) + F.col(DROPPED)) > 0)).head()
        out = beside(came_out, self._given(new, old, span), keys, values)
        different = out.where(F.col(DIFFERS) | F.col(EXPECTED).isNull() | F.col(FOUND).isNull())
        found = different.agg(F.count(F.lit(1)), F.max(START), F.max(END)).head()
        if facts is None or found is None:
            raise AssertionError("an aggregate without keys has one row")
        rows = different.orderBy(START, END).limit(MOST_SHOWN).collect() if found[0] else []
        samples = tuple(_sample(row, keys, values) for row in rows)
        return Proof(facts[0], facts[1], found[0], self._behind(found[1], found[2]), samples)

    def _given(self, new: Replay, old: DataFrame, span: TimeRange) -> DataFrame:
        """The windows that the new job gives. One that reads its backlog at once: those that the old one has closed."""
        given = new.windows(span)
        if new.spec.mode is not Mode.COMPLETE:
            return given.where(F.col(PANE).isNotNull())
        keys = list(self.pipeline.keys)
        still_open = with_join_keys(old.where(F.col(STATE) == F.lit("open")), keys).select(*join_columns(keys))
        closed = with_join_keys(given, keys).join(still_open, join_columns(keys), "left_anti")
        return closed.withColumnsRenamed({complete_name(name): name for name in self.pipeline.aggregates})

    def _behind(self, start: int | None, end: int | None) -> int | None:
        if start is None or end is None:
            return None
        windows = windows_of(self.pipeline)
        return windows.first_start_at_or_after(start + 1) if isinstance(windows, AlignedWindows) else end


def plan_cutover(
    spark: SparkSession, pipeline: Pipeline, at: int, progress: Progress, as_of: Mapping[int, int] | None = None
) -> CutoverPlan:
    """How a new live job takes over with the windows that start at or after `at` (epoch ms).

    `as_of`: one end offset for each partition; None: the history up to now.

    Raises:
        DefinitionError: no window starts at `at`, or the history has no offsets.
        EmptyRangeError: `at` is before the history.
        HistoryError: a topic does not have the records any more that the new job needs.
        RewindowError: the history cannot be planned.
    """
    check_start(pipeline, at)
    with progress.stage("plan", pipeline.name):
        logs = logs_of(spark, pipeline)
    with _cutover(spark, pipeline, logs, as_of) as cutover, reading(cutover.plan.pipeline):
        refuse_before(cutover.plan, at)
        with progress.stage("offsets", "the first offset of each partition that is needed"):
            offsets = cutover.offsets(at)
            refuse_removed(logs, offsets, at)
        with progress.stage("replay", "from these offsets with an empty state, beside the whole history"):
            proof = cutover.proof(offsets, at)
            exact_from = at if not proof.differing else _exact_from(cutover, proof)
        return _document(cutover, at, offsets, proof, exact_from)


def check_start(pipeline: Pipeline, at: int) -> None:
    """Raises DefinitionError where no window starts at `at`, or where the history's records have no offsets."""
    if pipeline.has_files_of_query:
        raise DefinitionError(
            "the query reads files, and a new one begins with all of them: it takes no offsets",
            pipeline.source_of(("history",)) or pipeline.name,
            "Give the new query the files from the cutover on alone, and its sink the filter.",
        )
    missing = [name for name in pipeline.missing_positions if name != "arrival"]
    if missing:
        raise DefinitionError(
            f"the history has no {' and no '.join(missing)}, so nothing says where a new job would begin to read",
            pipeline.source_of(("history",)) or pipeline.name,
            "Name them under history.position.",
        )
    windows = windows_of(pipeline)
    if not isinstance(windows, AlignedWindows):
        return
    following = windows.first_start_at_or_after(at)
    if following != at:
        raise DefinitionError(
            f"--at: no window starts at {format_instant(at)}", pipeline.name,
            f"The next one starts at {format_instant(following)}.",
        )  # fmt: skip


def refuse_before(plan: Plan, at: int) -> None:
    """Raises EmptyRangeError where the history holds no window that starts before `at`."""
    if at <= plan.span.start:
        raise EmptyRangeError(
            f"--at: the history begins with the window of {format_instant(plan.span.start)}, so nothing is left for a "
            f"backfill before {format_instant(at)}",
            plan.source,
            "Choose a later time, or start the new job from the beginning.",
        )


@contextmanager
def _cutover(
    spark: SparkSession, pipeline: Pipeline, logs: list[Log], as_of: Mapping[int, int] | None
) -> Iterator[Cutover]:
    with planned_records(spark, pipeline, as_of=as_of, mode=Mode.FAITHFUL) as (plan, records):
        usable = good(records)
        spec = _spec(spark, pipeline, plan, usable)
        with Replay(History(usable, plan.event_times, plan.processing_time_end), spec) as whole:
            yield Cutover(pipeline, plan, usable, logs, whole)


def _spec(spark: SparkSession, pipeline: Pipeline, plan: Plan, records: DataFrame) -> ReplaySpec:
    """The last pane of each window; the end of input shows what windows hold that are still open."""
    spec = spec_of_plan(spark, pipeline, plan, Mode.FAITHFUL, Panes.LAST)
    flush = spec.flush or not live_engine(pipeline).reads_backlog_at_once
    return replace(spec, flush=flush, aggregates={**spec.aggregates, **rounding_bounds(records, spec.aggregates)})


def _exact_from(cutover: Cutover, proof: Proof) -> int | None:
    """The first of the later instants that are tried from which both replays give the same; None: there is none yet."""
    for _ in range(MOST_TRIED):
        at = proof.clean_from
        if at is None or at >= cutover.plan.span.end:
            return None
        proof = cutover.proof(cutover.offsets(at), at)
        if not proof.differing:
            return at
    return None


def _document(
    cutover: Cutover, at: int, offsets: Mapping[int, int], proof: Proof, exact_from: int | None
) -> CutoverPlan:
    pipeline, plan = cutover.pipeline, cutover.plan
    return CutoverPlan(
        pipeline=pipeline.name,
        definition_hash=pipeline.definition_hash,
        at=format_instant(at),
        history_until=format_instant(plan.event_times.end - 1),
        offsets=described(cutover.records, cutover.logs, offsets, at),
        windows=proof.windows,
        late=proof.late,
        differing=proof.differing,
        samples=proof.samples,
        exact_from=None if exact_from is None else format_instant(exact_from),
        backfill_waits=cutover.whole.timeline.never_from < _closed_by(pipeline, at),
        doubts=tuple(live_engine(pipeline).doubts_of_cutover(pipeline, cutover.whole.spec.strategy)),
    )


def _closed_by(pipeline: Pipeline, at: int) -> int:
    """The watermark with which the last window that starts before `at` is closed for good."""
    windows = windows_of(pipeline)
    if not isinstance(windows, AlignedWindows):
        return at
    overlap = windows.longest - windows.usual_step
    return at + max(0, overlap) + min(pipeline.allowed_lateness, MAX_TIMESTAMP // 4)


def _sample(row: Row, keys: list[str], values: list[str]) -> Differing:
    def texts(found: Row | None) -> dict[str, str | None] | None:
        return None if found is None else as_texts(found, values)

    return Differing(
        key=as_texts(row, keys),
        start=format_instant(row[START]),
        end=format_instant(row[END]),
        old=texts(row[EXPECTED]),
        new=texts(row[FOUND]),
    )
