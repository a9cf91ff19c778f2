"""The timeline of a job that was restarted: its watermark begins from nothing, as Flink's does after a restore.

What had closed before the restart stays closed. The rest closes when the new watermark reaches it:

    C(x) = C1(x) where the watermark before the restart passed x, else C2(x) from the records since
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, NEVER
from spark_jobs.replay.idleness import merged_summaries
from spark_jobs.replay.timeline import Timeline
from spark_jobs.spark.cached import CachedFrames

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
