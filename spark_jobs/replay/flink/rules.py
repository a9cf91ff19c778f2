"""Flink's rule book: a watermark that follows the records of each partition, and the minimum over them."""

from __future__ import annotations

from typing import ClassVar

from pyspark.sql import Column, DataFrame

from spark_jobs.replay.flink.making import TimelineMaker, restarted_timeline
from spark_jobs.replay.rule_book import RuleBook, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells, operate, suspicion
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline


class FlinkRules(RuleBook):
    """The golden rules of `tests/golden/flink/README.md`, the timeline as `spark_jobs.replay.flink.making` chooses."""

    late_between_windows: ClassVar[bool] = True

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
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


FLINK = FlinkRules()
