"""The timeline of Kafka Streams: each task has its own stream time, so a window closes in each partition by itself.

    C_p(x) = first position in partition p whose record has ts >= x + 1 + grace

It is made as Flink's bounded timeline is, but the partitions' steps are looked up one by one; there is no minimum over
them. Taken together, as other engines are, the slowest partition counts: what is still open anywhere is open.
"""

from __future__ import annotations

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, inverted, nothing_closed
from spark_jobs.replay.inversion import closes_reached, last_of
from spark_jobs.replay.rule_book import TimelineRequest
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import Thresholds, Timeline


def streams_timeline(spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> Timeline:
    """The timeline of the records, as `invert` makes it, with the steps of each partition.

    Its rows fit the driver's memory: there are at most as many as window ends and partitions.
    """
    table = closes_reached(
        request.records,
        spec.strategy,
        thresholds,
        processing_time_end=request.processing_time_end,
        state=request.state,
    ).toArrow()
    last = last_of(table)
    reached = {partition: values["reached"] for partition, values in last.items()}
    steps = {
        p: inverted(table, [[p]], reached[p] + 1) if p in reached else nothing_closed()
        for p in spec.strategy.partitions
    }
    return Timeline(
        InMemoryTimeline.of_partitions(steps),
        thresholds,
        flushes=False,
        state={"kind": "stream_time", "partitions": {str(p): values for p, values in last.items()}},
        # A later run may go on from here where no partition has passed what it looks up.
        watermark_below=max(reached.values(), default=MIN_TIMESTAMP),
        note="stream time of each partition",
    )
