"""Flink's rule book: a watermark that follows the records of each partition, and the minimum over them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.errors import HistoryError
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.assign import in_window_time
from spark_jobs.replay.columns import (
    ARRIVAL,
    HANDED,
    PARTITION,
    PositionColumns,
    admitted,
    position_names,
    record_position,
)
from spark_jobs.replay.deduplication import is_kept
from spark_jobs.replay.flink.making import TimelineMaker, restarted_timeline
from spark_jobs.replay.flink.two_phases import Buffers, at_last_ticks, of_subtasks
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, nothing_closed
from spark_jobs.replay.rule_book import RuleBook, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells, operate, suspicion
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline


@dataclass(frozen=True)
class FlinkRules(RuleBook):
    """The golden rules of `tests/golden/flink/README.md`, the timeline as `spark_jobs.replay.flink.making` chooses.

    `slices`: those in which the source subtasks of a Flink SQL job hold records back (`tests/golden/flink_sql`); None:
    they hold none. `checkpoint_interval` (ms): at least so often they hand on all that they hold; None: not known.
    """

    late_between_windows: ClassVar[bool] = True

    slices: Slices | None = None
    checkpoint_interval: int | None = None

    def buffers(self, spec: ReplaySpec) -> Buffers | None:
        """The subtasks' buffers; None where they change nothing: one subtask alone closes what it has handed on."""
        if self.slices is None or len(spec.strategy.subtasks) < 2:
            return None
        return Buffers(self.slices, spec.strategy)

    def holds_back(self, spec: ReplaySpec) -> bool:
        return self.buffers(spec) is not None

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        whole = self._whole(spec, request, thresholds)
        buffers = self.buffers(spec)
        return whole if buffers is None else with_subtasks(whole, buffers, spec, request, thresholds)

    def held_back(self, records: DataFrame, spec: ReplaySpec, timeline: Timeline, span: TimeRange) -> DataFrame:
        buffers, steps = self.buffers(spec), timeline.steps
        if buffers is None or steps is None:
            return records
        return buffers.handed_on(records, steps, span)

    def comes_before(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column:
        if position_names(HANDED)[0] not in records.columns:
            return super().comes_before(closes, index, records)
        close, handed = closes.at_index(index, records), PositionColumns.named(HANDED)
        in_time = F.coalesce(handed.not_after(close), F.lit(False))
        if self.checkpoint_interval is not None:  # one was taken between the record and the close
            waited = close.arrival - F.col(ARRIVAL) > F.lit(self.checkpoint_interval)
            in_time = in_time | (record_position(records).not_after(close) & waited)
        return in_time & is_kept(records)

    def is_undecided(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column | None:
        if position_names(HANDED)[0] not in records.columns:
            return None
        in_time = record_position(records).not_after(closes.at_index(index, records))
        return in_time & ~self.comes_before(closes, index, records)

    def _whole(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        if "maker" not in request.kept:
            request.kept["maker"] = TimelineMaker(spec.strategy, request.event_times, request.cache)
        maker: TimelineMaker = request.kept["maker"]
        if spec.restarts:
            return restarted_timeline(
                request.records,
                spec.restarts,
                request.processing_time_end,
                lambda life, until: maker.timeline(life, thresholds, until),
                request.cache,
            )
        return maker.timeline(request.records, thresholds, request.processing_time_end, request.state)

    def suspicion(self, records: DataFrame, cells: ThresholdCells, flushes: bool) -> tuple[Column, Column]:
        return suspicion(records, cells, flushes)

    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        return operate(members, work)


def with_subtasks(
    whole: Timeline, buffers: Buffers, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds
) -> Timeline:
    """The timeline with the steps of each source subtask, and where each hands on what it holds."""
    found = [_of_subtask(spec.strategy, subtask, request, thresholds) for subtask in spec.strategy.subtasks]
    steps = of_subtasks({number: own for number, (own, _) in enumerate(found)})
    idle = {number for number, (_, is_idle) in enumerate(found) if is_idle}
    together = whole.steps
    if together is None:
        raise HistoryError(
            "two phases over so many windows",
            hint="replay a shorter range, or larger windows: the closes of all must fit the driver's memory",
        )
    records = in_window_time(admitted(request.records, spec.after_watermark), spec.windows)
    times = spec.windows.covering(request.event_times)
    table = replace(
        at_last_ticks(together, steps), by_subtask=steps, flushes=buffers.flushes(records, steps, times, idle)
    )
    return replace(whole, table=table)


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
