"""Batches of a query that nobody has kept, placed by the append times of the history's records."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.structured_streaming import StreamingWatermark
from spark_jobs.errors import DefinitionError
from spark_jobs.eventtime.microbatch.batches import Partition
from spark_jobs.eventtime.microbatch.checkpoint import Checkpoint
from spark_jobs.eventtime.microbatch.estimate import Gap, Tick, gaps_of, with_batches
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.sources import AlreadyRead, arrived_since, canonical, cut_at, open_history, source_of
from spark_jobs.sources.decode import REASON


def without_gaps(
    spark: SparkSession,
    pipeline: Pipeline,
    watermark: StreamingWatermark,
    checkpoint: Checkpoint,
    places: Sequence[Partition],
) -> tuple[Checkpoint, tuple[TimeRange, ...]]:
    """The checkpoint with batches in its gaps, and between which batches around them these lie (epoch ms).

    Reads the records of the gaps, once. `places`: what of the query reads the history. Raises DefinitionError where no
    rule can place them.
    """
    history, interval = pipeline.history, watermark.trigger
    if interval is None or pipeline.inputs or ("arrival" in history.position.missing and history.last_topic is None):
        what = "watermark.trigger is missing" if interval is None else "the history has no append time of its records"
        what = "the history is a union" if pipeline.inputs else what
        raise DefinitionError(
            f"batches are missing that cannot be placed: {what}",
            pipeline.source_of(("watermark", "gaps")) or pipeline.name,
            "Write `gaps: refuse`, or correct that.",
        )
    source, topic = places[0].source, places[0].topic
    spans = []
    for gap in gaps_of(checkpoint):
        ticks = _ticks(spark, pipeline, gap, checkpoint, places, interval)
        checkpoint = with_batches(checkpoint, gap, ticks, source, topic, watermark.delay, interval)
        spans.append(TimeRange(0 if gap.before is None else gap.before.timestamp, gap.after.timestamp + 1))
    return checkpoint, tuple(spans)


def _ticks(
    spark: SparkSession,
    pipeline: Pipeline,
    gap: Gap,
    checkpoint: Checkpoint,
    places: Sequence[Partition],
    interval: int,
) -> list[Tick]:
    """What there was to read at each tick between the batches around the gap."""
    ends = {place.number: place.end_in(gap.after.offsets.get(place.source)) for place in places}
    before = checkpoint.first_offsets if gap.before is None else gap.before.offsets
    starts = {place.number: place.end_in(before.get(place.source)) for place in places}
    since = gap.before.timestamp if gap.before is not None else 0
    rows = _read(spark, pipeline, starts, ends, since, interval).where(F.col("tick") < gap.after.timestamp)
    ticks: list[Tick] = []
    reached = dict(starts)
    for row in rows.orderBy("tick").collect():
        for partition, end in row["ends"].items():
            reached[partition] = max(reached.get(partition, 0), end)
        ticks.append(Tick(row["tick"], dict(reached), row["largest"]))
    return ticks


def _read(
    spark: SparkSession, pipeline: Pipeline, starts: dict[int, int], ends: dict[int, int], since: int, interval: int
) -> DataFrame:
    """One row a tick that had records: its time, the end offsets by partition, the largest event time."""
    opened = open_history(spark, pipeline, as_of=ends)
    frame = source_of(spark, pipeline).since(opened, AlreadyRead(starts)).frame
    records = arrived_since(cut_at(canonical(opened, pipeline, frame), ends), starts).where(F.col(ARRIVAL).isNotNull())
    time = F.greatest(F.col(ARRIVAL), F.lit(since).cast("bigint"))
    tick = (F.call_function("div", time, F.lit(interval)) + 1) * F.lit(interval)
    known = F.when(F.col(REASON).isNull(), F.col(EVENT_TIME))
    of_partition = records.groupBy(tick.alias("tick"), PARTITION).agg(
        (F.max(OFFSET) + 1).alias("end"), F.max(known).alias("largest")
    )
    entries = F.map_from_entries(F.collect_list(F.struct(PARTITION, "end"))).alias("ends")
    return of_partition.groupBy("tick").agg(entries, F.max("largest").alias("largest"))
