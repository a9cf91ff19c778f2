"""The timeline of a strategy, by the way that fits it: the one choice among them.

| the watermark | way |
| --- | --- |
| a minimum of maxima | `spark_jobs.replay.flink.inversion` |
| the same with idleness, or the clock's | `spark_jobs.replay.flink.thinned` |
| of a generator that looks at every record | `spark_jobs.replay.flink.traced` |
| where statuses change so often that nothing is quiet | `spark_jobs.replay.flink.simulation` |
| with partitions that are discovered later, where it is more than a minimum of maxima | the same |

Where a job was restarted (`restarted_timeline`), its watermark begins from nothing, as Flink's does after a restore.
What had closed before the restart stays closed. The rest closes when the new watermark reaches it: C(x) = C1(x) where
the watermark before the restart passed x, else C2(x) from the records since.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import RecordTime
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, PARTITION
from spark_jobs.replay.flink.idleness import merged_summaries
from spark_jobs.replay.flink.inversion import invert
from spark_jobs.replay.flink.simulation import simulate
from spark_jobs.replay.flink.thinned import ThinnedHistory, TooManyChangesError, is_thinnable
from spark_jobs.replay.flink.traced import TracedHistory
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames


def way_of(strategy: WatermarkStrategy) -> str:
    """How the timeline is made, in a plan's words."""
    strategy, _ = strategy.over_one_maximum()
    if _is_simulated(strategy):
        return "timeline record by record, in one task, since partitions were discovered later"
    if strategy.is_invertible:
        return "from the largest event times of each partition, without sorting the records"
    if is_thinnable(strategy):
        return "timeline from aggregates; record by record where a partition or subtask becomes idle or active"
    return "timeline from each generator over its own records, in offset order, one task a generator"


def _is_simulated(strategy: WatermarkStrategy) -> bool:
    """Whether partitions are discovered later where the watermark is more than a minimum of maxima of records' times.

    So it is with idleness, with the clock, and where the inputs of a union differ in the scope.
    """
    maximum = strategy.running_maximum
    follows_records = maximum is not None and maximum.time is not RecordTime.ARRIVAL
    is_alike = len({one.scope for one in strategy.inputs}) < 2
    return bool(strategy.discovered) and not (strategy.is_invertible and follows_records and is_alike)


class TimelineMaker:
    """Makes the timelines of one history, or of its parts between restarts, for any thresholds.

    What does not depend on the thresholds is computed once for each end of processing time.
    """

    def __init__(self, strategy: WatermarkStrategy, event_times: TimeRange, cache: CachedFrames) -> None:
        self.strategy, self._delays = strategy.over_one_maximum()
        self._event_times = event_times
        self._cache = cache
        self._histories: dict[int, ThinnedHistory] = {}
        self._simulated: dict[int, Timeline] = {}

    def timeline(
        self, records: DataFrame, thresholds: Thresholds, until: int, state: dict[str, Any] | None = None
    ) -> Timeline:
        """The timeline of `records` up to the processing time `until` (epoch ms), continued from `state` if given."""
        strategy, cache, records = self.strategy, self._cache, _less_delays(records, self._delays)
        fits = thresholds.fits_in_memory(self._event_times, len(strategy.partitions))
        one_by_one = _is_simulated(strategy)
        if strategy.is_invertible and not one_by_one:
            return invert(
                records, strategy, thresholds,
                processing_time_end=until, cache=cache, state=state, fits_in_memory=fits,
            )  # fmt: skip
        if until not in self._simulated and not one_by_one:
            if until not in self._histories:
                history_of = ThinnedHistory if is_thinnable(strategy) else TracedHistory
                self._histories[until] = history_of(
                    records, strategy,
                    begins=self._event_times.start, processing_time_end=until, cache=cache, state=state,
                )  # fmt: skip
            with suppress(TooManyChangesError):
                return self._histories[until].timeline(thresholds, fits_in_memory=fits)
        if until not in self._simulated:
            if until in self._histories:
                records = self._histories[until].that_count()
            self._simulated[until] = simulate(
                records, strategy, thresholds, processing_time_end=until, cache=cache, state=state
            )
        return self._simulated[until]


def _less_delays(records: DataFrame, delays: Mapping[int, int]) -> DataFrame:
    """The records with the event times that one generator for all inputs follows."""
    partitions: dict[int, list[int]] = defaultdict(list)
    for partition, delay in delays.items():
        partitions[delay].append(partition)
    if not partitions:
        return records
    first, *others = partitions.items()
    delay = F.when(F.col(PARTITION).isin(first[1]), first[0])
    for value, own in others:
        delay = delay.when(F.col(PARTITION).isin(own), value)
    return records.withColumn(EVENT_TIME, F.col(EVENT_TIME) - delay.otherwise(0).cast("bigint"))


MakeTimeline = Callable[[DataFrame, int], Timeline]
"""Makes the timeline of records, given the end of processing time (epoch ms), for a job that starts with them."""


def restarted_timeline(
    records: DataFrame, restarts: Sequence[int], processing_time_end: int, make: MakeTimeline, cache: CachedFrames
) -> Timeline:
    """One timeline of a job that was restarted at `restarts` (epoch ms, ascending).

    A record that arrives at the instant of a restart was read after it.
    """
    edges = [None, *(r for r in restarts if r <= processing_time_end), None]
    parts: list[DataFrame] = []
    passed = MIN_TIMESTAMP
    timelines: list[Timeline] = []
    for begin, end in itertools.pairwise(edges):
        life = records if begin is None else records.where(F.col(ARRIVAL) >= F.lit(begin))
        life = life if end is None else life.where(F.col(ARRIVAL) < F.lit(end))
        timeline = make(life, processing_time_end if end is None else end - 1)
        timelines.append(timeline)
        # What was closed before a restart is not closed again after it.
        own = timeline.rows(records.sparkSession).withColumn("x_from", F.greatest("x_from", F.lit(passed)))
        if end is not None:
            passed = max(passed, timeline.never_from)
            own = own.where((F.col("arrival") < F.lit(NEVER)) & (F.col("x_from") < F.lit(passed)))
        parts.append(own)
    note = f"{len(edges) - 2} restarts of the live job"
    rows = reduce(DataFrame.unionByName, parts)
    idle = merged_summaries([timeline.idle for timeline in timelines])
    return replace(timelines[-1], table=cache.keep(rows), note=note, idle=idle)
