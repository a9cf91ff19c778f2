"""The timeline of a job that was restarted: its watermark begins from nothing, as Flink's does after a restore.

What had closed before the restart stays closed; what had not closes when the new watermark gets there:

    C(x) = C1(x) where the watermark before the restart passed x, else C2(x) from the records since
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, NEVER
from spark_jobs.replay.idleness import joined
from spark_jobs.replay.timeline import Timeline
from spark_jobs.spark.cached import CachedFrames

MakeTimeline = Callable[[DataFrame, int], Timeline]
"""Records and the end of processing time (epoch ms) to their timeline, from nothing."""


def restarted_timeline(
    records: DataFrame, restarts: Sequence[int], processing_time_end: int, make: MakeTimeline, held: CachedFrames
) -> Timeline:
    """One timeline over all lives of a job that was restarted at `restarts` (epoch ms, ascending).

    A record that arrives at the instant of a restart belongs to the life after it.
    """
    edges = [None, *(r for r in restarts if r <= processing_time_end), None]
    rows: DataFrame | None = None
    passed = MIN_TIMESTAMP
    timeline: Timeline | None = None
    idle = []
    for begin, end in itertools.pairwise(edges):
        life = records if begin is None else records.where(F.col(ARRIVAL) >= F.lit(begin))
        life = life if end is None else life.where(F.col(ARRIVAL) < F.lit(end))
        timeline = make(life, processing_time_end if end is None else end - 1)
        idle.append(timeline.idle)
        # What an earlier life closed, this one cannot close again.
        own = timeline.rows(records.sparkSession).withColumn("x_from", F.greatest("x_from", F.lit(passed)))
        if end is not None:
            passed = max(passed, timeline.never_from)
            own = own.where((F.col("arrival") < F.lit(NEVER)) & (F.col("x_from") < F.lit(passed)))
        rows = own if rows is None else rows.unionByName(own)
    note = f"{len(edges) - 2} restarts of the live job"
    return replace(timeline, table=held.keep(rows), note=note, idle=joined(idle))
