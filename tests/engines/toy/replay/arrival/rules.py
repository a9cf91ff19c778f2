"""The rules of the toy engine, for sets of records."""

from __future__ import annotations

from spark_jobs.replay.flink.making import TimelineMaker
from spark_jobs.replay.rule_book import RuleBook, TimelineRequest
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline


class ArrivalRules(RuleBook):
    """A watermark by arrivals is made as Flink's; late records and panes follow from it."""

    def timeline(self, spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
        maker = TimelineMaker(spec.strategy, request.event_times, request.cache)
        return maker.timeline(request.records, thresholds, request.processing_time_end, request.state)


RULES = ArrivalRules
