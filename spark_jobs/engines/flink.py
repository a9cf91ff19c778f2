"""Flink towards runs: its watermark waits for partitions, and its rows show where the job was behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from spark_jobs.definition import Pipeline
from spark_jobs.definition.deployments import restarts_of
from spark_jobs.definition.instants import format_instant
from spark_jobs.definition.live import Live
from spark_jobs.engines.live_engine import Holding, LiveEngine, subtasks_of
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.band import Band, merged
from spark_jobs.replay.flink.making import way_of
from spark_jobs.replay.from_pipeline import strategy_of


class Flink(LiveEngine):
    """A Flink job."""

    shows_lags: ClassVar[bool] = True

    def restart_in_definition(self, ends: Mapping[int, int], first: int) -> str:
        return f"live: {{restarts: [{format_instant(first)}]}}"

    def watermark_in_words(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> str:
        return way_of(strategy)

    def warnings(
        self, pipeline: Pipeline, found: Collection[int], empty: Sequence[int], *, knows_all: bool
    ) -> list[str]:
        said = []
        if pipeline.watermark.partitions is None and not knows_all:
            names = ", ".join(map(str, found))
            said.append(
                f"watermark.partitions is not set: the partitions found ({names}) count as registered; "
                "a live job also waits for registered partitions without records"
            )
        if empty:
            waits = "it holds the watermark"
            waits += "" if pipeline.watermark.idleness is None else " until idle"
            said.append(f"partition {', '.join(map(str, empty))} is registered and has no record: {waits}")
        if restarts_of(pipeline):
            said.append(
                "live.restarts: a record of a window that the job had closed before a restart was taken, until the new "
                "watermark had passed that window again, and the window was emitted anew with such records alone; the "
                "replay drops these records"
            )
        return said

    def holding(self, pipeline: Pipeline, partitions: Sequence[int]) -> list[Holding]:
        strategy = strategy_of(pipeline, partitions)
        waits_for_all = strategy.idleness is None or not strategy.interval
        if not waits_for_all or strategy.follows_the_clock or strategy.moves_without_records:
            return []
        what = "the watermark waits there, so no window that ends later closes (watermark.idleness is not set)"
        return [(group, what) for group in strategy.generator_groups]

    def doubts_of_cutover(self, pipeline: Pipeline, strategy: WatermarkStrategy) -> list[str]:
        watermarks = [one.watermark for one in pipeline.inputs or (pipeline,)]
        said = []
        if any(one.emission == "periodic" for one in watermarks):
            said.append(
                "the new job reads its backlog faster than it arrived: until it has caught up, a record that was late "
                "can come in time; from the first window that closes after that, its watermark is the old job's"
            )
        if strategy.idleness is not None:
            said.append(
                "idleness counts by the job's clock: until each partition has given a record or has been silent for "
                f"{format_duration(strategy.idleness)}, the new job waits where the old one did not"
            )
        if len(strategy.subtasks) > 1:
            said.append(
                "several source subtasks read the backlog in an order of their own: until the new job has caught up, "
                "records near a close can be decided otherwise"
            )
        if strategy.follows_the_clock:
            said.append("the watermark follows the clock: to the new job its whole backlog is late")
        if pipeline.deduplicate is not None:
            said.append(
                "the new job does not know which records came before: a duplicate of a record before these offsets "
                "counts as new, for as long as the state of deduplicate keeps records"
            )
        return said

    def band(self, pipeline: Pipeline, live: Live) -> Band:
        """By the definition alone: one emission interval (periodic watermarks) and the margin, to each side.

        Several source subtasks add the buffer timeout, idleness adds a second interval. The job lagged where a row was
        emitted later than its close plus one interval plus `lag_after`.
        """
        watermarks = [one.watermark for one in pipeline.inputs or (pipeline,)]
        interval = live.interval if live.interval is not None else max(watermark.interval for watermark in watermarks)
        buffered = live.buffer_timeout if subtasks_of(pipeline, live) > 1 else 0
        is_periodic = any(watermark.emission == "periodic" for watermark in watermarks)
        has_idleness = any(watermark.idleness for watermark in watermarks)
        waits = interval if is_periodic or has_idleness else 0
        if has_idleness:
            # Real timer ticks are a little longer than the interval. With a timeout of whole intervals, idleness is
            # therefore detected one tick earlier than with exact ticks.
            waits += interval
        lags = tuple(TimeRange(lag.start, lag.end) for lag in live.lags)
        slack = interval + live.lag_after + buffered
        # The job read what was in the log before its timer started as a backlog: one partition far ahead of another.
        start = max(watermark.timer_start or 0 for watermark in watermarks)
        backlog = start + interval if is_periodic else 0
        return Band(waits + live.margin + buffered, slack, merged(lags), backlog_until=backlog)


ENGINE = Flink()
