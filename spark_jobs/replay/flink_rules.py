"""Flink's rule book: a watermark that follows the records of each partition, and the minimum over them."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pyspark.sql import Column, DataFrame

from spark_jobs.replay.inversion import invert
from spark_jobs.replay.restarts import restarted_timeline
from spark_jobs.replay.rule_book import RuleBook, TimelineRequest
from spark_jobs.replay.sessions import SessionWork, ThresholdCells, operate, suspicion
from spark_jobs.replay.simulation import simulate
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline


class FlinkRules(RuleBook):
    """The golden rules of `tests/golden/flink/README.md`, by inversion where the watermark is a minimum of maxima."""

    late_between_windows: ClassVar[bool] = True

    def simulates(self, spec: ReplaySpec) -> bool:
        return not spec.strategy.is_invertible

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        fits_in_memory = thresholds.fits_in_memory(request.event_times, len(spec.strategy.partitions))
        make = simulate if self.simulates(spec) else partial(invert, fits_in_memory=fits_in_memory)
        if spec.restarts:
            return restarted_timeline(
                request.records,
                spec.restarts,
                request.processing_time_end,
                lambda life, until: make(
                    life, spec.strategy, thresholds, processing_time_end=until, cache=request.cache
                ),
                request.cache,
            )
        return make(
            request.records,
            spec.strategy,
            thresholds,
            processing_time_end=request.processing_time_end,
            cache=request.cache,
            state=request.state,
        )

    def suspicion(self, records: DataFrame, cells: ThresholdCells, flushes: bool) -> tuple[Column, Column]:
        return suspicion(records, cells, flushes)

    def operate_sessions(self, members: DataFrame, work: SessionWork) -> tuple[DataFrame, Timeline]:
        return operate(members, work)


FLINK = FlinkRules()
