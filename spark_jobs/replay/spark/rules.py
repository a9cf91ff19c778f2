"""The rule book of Spark Structured Streaming: everything follows from the micro-batch that has read a record.

A window comes out of the first batch whose watermark has reached its end. A record is late for a window that ended at
or before the watermark of the batch before its own (Spark rules 15, 19 of `tests/golden/spark/README.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar
from zoneinfo import ZoneInfo

import numpy as np
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deduplicate import DeduplicateKind
from spark_jobs.definition.engines.spark import query_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import INITIAL_WATERMARK
from spark_jobs.eventtime.windows import CalendarSessionWindows
from spark_jobs.replay.assign import END
from spark_jobs.replay.band import Wider
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, MICROS, OFFSET, PARTITION, admitted
from spark_jobs.replay.deduplication import ID, Deduplication, DeduplicationKind, SparkDeduplication, is_kept
from spark_jobs.replay.flink.rules import FlinkRules
from spark_jobs.replay.grid import RegularGrid, end_grid
from spark_jobs.replay.other_values import OtherValue
from spark_jobs.replay.rule_book import Emission, RuleBook, SessionRules, TimelineRequest
from spark_jobs.replay.session_members import GROUP, SESSION_ROWS
from spark_jobs.replay.sessions import SESSION_END, SESSION_START, SessionWork, ThresholdCells, in_micros
from spark_jobs.replay.spark.microbatch_sessions import sessions_of_groups
from spark_jobs.replay.spark.microbatches import LATE_WATERMARK, MicroBatches
from spark_jobs.replay.spec import Panes, ReplaySpec
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline

FITS = "rw_fits"
MOST = 1_000_000
"""So many pairs of a window end and a partition are held in the driver."""


@dataclass(frozen=True)
class StructuredStreamingRules(SessionRules):
    """One query, by the batches of its checkpoint.

    `merge_locally`: `spark.sql.streaming.sessionWindow.merge.sessions.in.local.partition`.
    """

    batches: MicroBatches
    output_mode: OutputMode
    merge_locally: bool = False

    knows_every_step: ClassVar[bool] = True

    @classmethod
    def of(cls, pipeline: Pipeline, recorded: object | None) -> RuleBook:
        if not isinstance(recorded, MicroBatches):
            return RulesWithoutBatches()
        query = query_of(pipeline)
        merges = query.watermark.merge_sessions_in_local_partition
        return cls(recorded, query.output_mode or OutputMode.APPEND, merge_locally=merges)

    def deduplication(self, pipeline: Pipeline) -> Deduplication | None:
        section = pipeline.deduplicate
        if section is None:
            return None
        kind = DeduplicationKind.WITHIN_WATERMARK
        if section.kind is DeduplicateKind.DROP_DUPLICATES:
            kind = DeduplicationKind.ID_AND_TIME if section.event_time else DeduplicationKind.ID
        delays = [(one.first_batch, one.delay) for one in section.delays] or [(0, query_of(pipeline).watermark.delay)]
        times = tuple((self.batches.time_from(batch), delay) for batch, delay in delays)
        return SparkDeduplication(kind, (ID,), times, self.batches)

    def other_values(self, spec: ReplaySpec, *, is_whole: bool) -> Iterator[OtherValue]:
        drops_late = self.output_mode is not OutputMode.COMPLETE or spec.has_sessions  # Spark rules 18 and 31
        if drops_late and spec.deduplication is None:  # which needs allowMultiple
            batches, allows = _with_other_lateness(self.batches)
            other = replace(spec, rules=replace(self, batches=batches))
            yield OtherValue("watermark.allow_multiple", str(allows).lower(), other)
        if spec.has_sessions:
            merges = not self.merge_locally
            other = replace(spec, rules=replace(self, merge_locally=merges))
            yield OtherValue("watermark.merge_sessions_in_local_partition", str(merges).lower(), other)
        if isinstance(spec.windows, CalendarSessionWindows) and spec.windows.time_zone.key != "UTC":
            windows = replace(spec.windows, time_zone=ZoneInfo("UTC"))
            yield OtherValue("window.time_zone", "UTC", replace(spec, windows=windows))

    @property
    def emission(self) -> Emission:
        """In update and complete mode a window gives a row with each batch that it took a record in."""
        return Emission.AT_CLOSE if self.output_mode is OutputMode.APPEND else Emission.EACH_BATCH

    @property
    def may_be_out_until(self) -> int | None:
        """The watermark of a batch that was planned and not committed: it may have let windows out (Spark rule 5)."""
        return self.batches.pending if self.output_mode is OutputMode.APPEND else None

    @property
    def wider(self) -> tuple[Wider, ...]:
        """A record may have been in the batch before or after the one that its append time gives."""
        return tuple(Wider(span, 2 * self.batches.interval) for span in self.batches.estimated)

    def placed(self, records: DataFrame) -> DataFrame:
        return self.batches.placed(records)

    def unplaced(self, records: DataFrame, spec: ReplaySpec, span: TimeRange) -> DataFrame | None:
        """Where only the window's end and the record's offset count: no batch has to be found for each record."""
        alone = self.emission is Emission.AT_CLOSE and spec.panes is Panes.LAST and spec.deduplication is None
        cuts = self.batches.cuts
        if not alone or spec.has_sessions or cuts is None:
            return None
        grid = end_grid(spec.aligned_windows)
        is_small = isinstance(grid, RegularGrid) and len(cuts.partitions) * (span.end - span.start) < MOST * grid.step
        return cuts.read(records) if is_small else None

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        return Timeline(
            table=self.batches.timeline(),
            thresholds=thresholds,
            flushes=False,
            state={"kind": "checkpoint", "last_batch": self.batches.last_number, "batches": self.batches.digest},
            watermark_below=self.batches.last_watermark,
            note="",
        )

    def comes_before(self, closes: CloseArrays, index: Column, records: DataFrame) -> Column:
        """Whether the record enters its window: `end > W` of its batch. Complete mode drops nothing."""
        kept = is_kept(records)
        if self.output_mode is OutputMode.COMPLETE:
            return kept
        if not isinstance(closes.grid, RegularGrid):
            raise TypeError("windows of Structured Streaming lie on a regular grid")
        first = closes.grid.phase + closes.first * closes.grid.step
        if LATE_WATERMARK not in records.columns:
            assert self.batches.cuts is not None
            ends = first + np.arange(len(closes.positions), dtype=np.int64) * closes.grid.step
            return self.batches.cuts.before(np.searchsorted(self.batches.late, ends), index, records)
        end = F.lit(first) + index.cast("bigint") * F.lit(closes.grid.step)
        return kept & (end > F.col(LATE_WATERMARK))

    def session_records(self, records: DataFrame, spec: ReplaySpec) -> DataFrame:
        """Records with an event time and a positive gap, and `rw_fits`: whether they are late alone (Spark rule 27).

        With `merge_locally` those of one key that one task reads in one batch are judged together.
        """
        usable = admitted(records, spec.after_watermark).where(
            F.col(EVENT_TIME).isNotNull() & (F.col(SESSION_END) > F.col(SESSION_START))
        )
        end, watermark = in_micros(usable, SESSION_END), F.col(LATE_WATERMARK) * F.lit(_unit(usable))
        if self.merge_locally:
            task = [F.col(name) for name in (ARRIVAL, PARTITION)] + [F.col(f"`{key}`") for key in spec.keys]
            start = in_micros(usable, SESSION_START)
            by_time = Window.partitionBy(*task).orderBy(start, OFFSET)
            reach = F.max(end).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
            begins = F.when(reach.isNull() | (start > reach), 1).otherwise(0)
            usable = usable.withColumn("rw_begins", begins)
            numbered = F.sum("rw_begins").over(by_time.rowsBetween(Window.unboundedPreceding, Window.currentRow))
            usable = usable.withColumn("rw_local", numbered)
            end = F.max(end).over(Window.partitionBy(*task, "rw_local"))
        return usable.withColumn(FITS, is_kept(records) & (end > watermark)).drop("rw_begins", "rw_local")

    def suspicion(
        self, records: DataFrame, spec: ReplaySpec, cells: ThresholdCells, flushes: bool
    ) -> tuple[Column, Column]:
        """A record with an event time above its batch's late watermark touches no session that is out."""
        if self.output_mode is OutputMode.COMPLETE:
            return ~F.col(FITS), F.lit(False)
        return (
            ~F.col(FITS) | (F.col(SESSION_START) <= F.col(LATE_WATERMARK)),
            F.col(END) >= F.lit(self.batches.last_watermark),  # the end may have microseconds more
        )

    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        ordered = members.repartition(F.col(GROUP)).sortWithinPartitions(GROUP, ARRIVAL)
        bounds = [in_micros(members, name).alias(name) for name in (SESSION_START, SESSION_END)]
        rows = ordered.select(GROUP, PARTITION, OFFSET, ARRIVAL, *bounds, FITS)
        run = partial(
            sessions_of_groups,
            times=self.batches.times,
            watermarks=self.batches.watermark,
            mode=self.output_mode,
            unit=_unit(members),
        )
        return work.cache.keep(rows.mapInArrow(run, SESSION_ROWS)), work.finer.coarse


class RulesWithoutBatches(FlinkRules):
    """A query of which no batch is known: only complete values can be computed."""

    def deduplication(self, pipeline: Pipeline) -> Deduplication | None:
        return None


RULES = StructuredStreamingRules


def _with_other_lateness(batches: MicroBatches) -> tuple[MicroBatches, bool]:
    """The batches with the other value of `allowMultiple`, and that value (Spark rule 16)."""
    if not np.array_equal(batches.late, batches.watermark):
        return replace(batches, late=batches.watermark), False
    before = np.concatenate(([INITIAL_WATERMARK], batches.watermark[:-1]))
    return replace(batches, late=before), True


def _unit(records: DataFrame) -> int:
    """How many units of `in_micros` make one of the watermark."""
    return 1000 if MICROS in records.columns else 1
