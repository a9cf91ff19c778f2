"""Flink's rule book: a watermark that follows the records of each partition, and the minimum over them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deduplicate import DeduplicateKind, UpdateType
from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.windows import CalendarDayWindows
from spark_jobs.replay.assign import in_window_time
from spark_jobs.replay.columns import NEVER, PARTITION, admitted
from spark_jobs.replay.deduplication import ID, Deduplication, FirstByProcessingTime, FirstByRowTime
from spark_jobs.replay.defined_windows import losing_slices_of, slices_of
from spark_jobs.replay.flink.making import TimelineMaker, restarted_timeline
from spark_jobs.replay.flink.two_phases import Buffers, HeldCloses, handed_on_by, of_subtasks, together
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, nothing_closed
from spark_jobs.replay.rule_book import SessionRules, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells, operate, suspicion
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline


@dataclass(frozen=True)
class FlinkRules(SessionRules):
    """The golden rules of `tests/golden/flink/README.md`, the timeline as `spark_jobs.replay.flink.making` chooses.

    `slices`: those in which the source subtasks of a Flink SQL job hold records back (`tests/golden/flink_sql`); None:
    they hold none. `checkpoint_interval` (ms): at least so often they hand on all that they hold; None: not known.
    `losing`: the slices in which the window operator gathers records where it loses some; None: it loses none.
    """

    late_between_windows: ClassVar[bool] = True

    slices: Slices | None = None
    checkpoint_interval: int | None = None
    losing: Slices | None = None

    @classmethod
    def of(cls, pipeline: Pipeline, recorded: object | None) -> FlinkRules:
        """A DataStream job's rules, or those of a query of Flink SQL."""
        section, slices, losing = pipeline.flink_sql, slices_of(pipeline), losing_slices_of(pipeline)
        if section is None or (slices is None and losing is None):
            return FLINK
        return cls(slices, section.checkpoint_interval, losing)

    def buffers(self, spec: ReplaySpec) -> Buffers | None:
        """The buffers; None where they change nothing: one subtask alone closes what it has handed on."""
        losing = None if spec.restarts else self.losing
        if losing is None and (self.slices is None or len(spec.strategy.subtasks) < 2):
            return None
        slices = losing or self.slices
        assert slices is not None
        is_calendar = isinstance(spec.windows, CalendarDayWindows)
        return Buffers(slices, spec.strategy, self.slices is not None, losing is not None, is_calendar)

    def holds_back(self, spec: ReplaySpec) -> bool:
        return self.buffers(spec) is not None

    def finer(self, thresholds: Thresholds, spec: ReplaySpec) -> Thresholds:
        buffers = self.buffers(spec)
        return thresholds if buffers is None else buffers.finer(thresholds)

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        whole = self._whole(spec, request, thresholds)
        buffers = self.buffers(spec)
        return whole if buffers is None else with_buffers(whole, buffers, spec, request, thresholds)

    def held_back(self, records: DataFrame, spec: ReplaySpec, timeline: Timeline, span: TimeRange) -> DataFrame:
        buffers, steps = self.buffers(spec), timeline.steps
        if buffers is None or steps is None:
            return records
        return handed_on_by(buffers.handed_on(records, steps, span), self.checkpoint_interval)

    def closes(self, closes: CloseArrays, spec: ReplaySpec, timeline: Timeline) -> CloseArrays:
        buffers, steps = self.buffers(spec), timeline.steps
        if buffers is None or steps is None or not steps.flushes:
            return closes
        return buffers.closes(closes, steps, self.checkpoint_interval)

    def comes_before(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column:
        return super().comes_before(closes.handed_on if isinstance(closes, HeldCloses) else closes, index, records)

    def is_undecided(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column | None:
        if not isinstance(closes, HeldCloses):
            return None
        return super().comes_before(closes, index, records) & ~self.comes_before(closes, index, records)

    def _whole(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        buffers = self.buffers(spec)
        if "maker" not in request.kept:
            request.kept["maker"] = TimelineMaker(
                spec.strategy, request.event_times, request.cache, by_subtask=buffers is not None and buffers.two_phases
            )
        maker: TimelineMaker = request.kept["maker"]
        if spec.restarts and request.state is None:  # a saved state is that of the last life
            return restarted_timeline(
                request.records,
                spec.restarts,
                request.processing_time_end,
                lambda life, until: maker.timeline(life, thresholds, until),
                request.cache,
            )
        return maker.timeline(request.records, thresholds, request.processing_time_end, request.state)

    def deduplication(self, pipeline: Pipeline) -> Deduplication | None:
        section = pipeline.deduplicate
        if section is None:
            return None
        if section.kind is DeduplicateKind.ROW_TIME:
            return FirstByRowTime((ID,), section.within)
        return FirstByProcessingTime((ID,), section.within, section.update_type is UpdateType.ON_READ_AND_WRITE)

    def suspicion(
        self, records: DataFrame, spec: ReplaySpec, cells: ThresholdCells, flushes: bool
    ) -> tuple[Column, Column]:
        return suspicion(records, spec, cells, flushes)

    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        return operate(members, work)


def with_buffers(
    whole: Timeline, buffers: Buffers, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds
) -> Timeline:
    """The timeline with the steps of each source subtask, and where each buffer hands on what it holds."""
    if spec.restarts:
        raise HistoryError(
            "two phases are not replayed over restarts of the live job",
            hint="write `flink_sql: {aggregation: one_phase}`, or leave out `live.restarts`",
        )
    known = whole.steps
    if known is None:
        raise HistoryError(
            "records that Flink SQL holds back over so many windows",
            hint="replay a shorter range, or larger windows: the closes of all must fit the driver's memory",
        )
    records = in_window_time(admitted(request.records, spec.after_watermark), spec.windows)
    times = spec.windows.covering(request.event_times)
    if buffers.two_phases:
        steps, ends = _steps_of_subtasks(known, spec, request, thresholds)
        flushes = buffers.flushes(records, steps, times, ends)
        known = replace(together(known, steps, flushes=spec.flush), by_subtask=steps, flushes=flushes)
    if buffers.loses:
        taken = buffers.taken(records, known, times, spec.aligned_windows)
        known = replace(known, flushes={**known.flushes, buffers.last: taken})
    return replace(whole, table=known)


def _steps_of_subtasks(
    known: InMemoryTimeline, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds
) -> tuple[Mapping[int, InMemoryTimeline], Mapping[int, tuple[int, int, int]]]:
    """The steps of each subtask's own watermark, and where it hands on what is left at the end of input."""
    if known.by_subtask:
        found, idle = dict(known.by_subtask), set[int]()
    else:
        subtasks = enumerate(spec.strategy.subtasks)
        each = {number: _of_subtask(spec.strategy, subtask, request, thresholds) for number, subtask in subtasks}
        found = {number: own for number, (own, _) in each.items()}
        idle = {number for number, (_, is_idle) in each.items() if is_idle}
    ends = {
        # What ends idle hands on when all has closed.
        number: (NEVER, NEVER, number - len(found) if spec.flush and number not in idle else NEVER)
        for number in found
    }
    return of_subtasks(found, flushes=spec.flush), ends


def _of_subtask(
    strategy: WatermarkStrategy, subtask: tuple[int, ...], request: TimelineRequest, thresholds: Thresholds
) -> tuple[InMemoryTimeline, bool]:
    """The steps of one subtask's own watermark, and whether it is idle at the end."""
    if not subtask:
        return nothing_closed(), True
    discovered = tuple((p, at) for p, at in strategy.discovered if p in subtask)
    own = replace(strategy, partitions=subtask, subtasks=(subtask,), discovered=discovered)
    maker = TimelineMaker(own, request.event_times, request.cache)
    records = request.records.where(F.col(PARTITION).isin(*subtask))
    timeline = maker.timeline(records, thresholds, request.processing_time_end)
    steps = timeline.steps
    if steps is None:
        raise HistoryError("two phases over so many windows", hint="replay a shorter range, or larger windows")
    return steps, not timeline.flushes


FLINK = FlinkRules()
RULES = FlinkRules
