"""Batches of a query that nobody has kept, placed by the append times of the history's records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.definition import Pipeline
from spark_jobs.definition.engines.spark import StreamingWatermark, query_of
from spark_jobs.errors import DefinitionError, HistoryError
from spark_jobs.eventtime.durations import format_duration
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.aggregation import OutputMode
from spark_jobs.eventtime.spark.batches import Batches
from spark_jobs.eventtime.spark.checkpoint import Checkpoint, read_checkpoint
from spark_jobs.eventtime.spark.estimate import NO_TIME, Gap, Ticks, gaps_of, with_batches
from spark_jobs.eventtime.spark.logs import CommitLog, Partition
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, OFFSET, PARTITION
from spark_jobs.sources import arrived_since, canonical, cut_at, open_history, source_of
from spark_jobs.sources.records.decode import REASON

MOST = 20_000_000
"""The most ticks, counted by partition, that are placed: they come to the driver, up to 32 bytes each."""


def without_gaps(
    spark: SparkSession,
    pipeline: Pipeline,
    watermark: StreamingWatermark,
    checkpoint: Checkpoint,
    found: Batches,
    places: Sequence[Partition],
) -> tuple[Checkpoint, tuple[TimeRange, ...]]:
    """The checkpoint with batches in its gaps, and between which batches around them these lie (epoch ms).

    Reads the records of the gaps, once. `found`: the batches that it has. `places`: what of the query reads the
    history. Raises DefinitionError where no rule can place them.
    """
    interval, spans = _interval(pipeline, watermark), []
    for gap in gaps_of(checkpoint, found):
        assert gap.after is not None
        ends = {place.number: place.end_in(gap.after.offsets.get(place.source)) for place in places}
        before = checkpoint.first_offsets if gap.before is None else gap.before.offsets
        starts = {place.number: place.end_in(before.get(place.source)) for place in places}
        since, until = 0 if gap.before is None else gap.before.timestamp, gap.after.timestamp
        ticks = _ticks(spark, pipeline, starts, ends, interval, since, until)
        checkpoint = _with_batches(pipeline, watermark, checkpoint, gap, ticks, places[0], interval)
        spans.append(TimeRange(since, until + 1))
    return checkpoint, tuple(spans)


def instead_of_all(
    spark: SparkSession, pipeline: Pipeline, watermark: StreamingWatermark, as_of: Mapping[int, int] | None
) -> tuple[Checkpoint, TimeRange]:
    """Batches in the place of all that a query has run, where its checkpoint is lost; and when these ran (epoch ms).

    Reads the records below the end offsets `as_of`, or all that are there. Raises as `without_gaps`, and HistoryError
    where there is no record.
    """
    interval = _interval(pipeline, watermark)
    ticks = _ticks(spark, pipeline, {}, as_of, interval)
    if not len(ticks.times):
        raise HistoryError("the history has no record", pipeline.name, "Wait until it has one.")
    history = pipeline.history.last_topic
    nothing = read_checkpoint(())
    topic = "" if history is None else history.topic
    gap, place = Gap(0, None, None, None), Partition("0", topic, 0)
    made = _with_batches(pipeline, watermark, nothing, gap, ticks, place, interval)
    committed = CommitLog(made.offsets.numbers, made.offsets.watermarks)
    return replace(made, commits=committed), TimeRange(0, int(made.offsets.timestamps[-1]) + 1)


def _with_batches(
    pipeline: Pipeline,
    watermark: StreamingWatermark,
    checkpoint: Checkpoint,
    gap: Gap,
    ticks: Ticks,
    place: Partition,
    interval: int,
) -> Checkpoint:
    is_complete = query_of(pipeline).output_mode is OutputMode.COMPLETE
    without_data = watermark.no_data_batches and not is_complete  # Spark rule 22
    source, topic, delay = place.source, place.topic, watermark.delay
    return with_batches(checkpoint, gap, ticks, source, topic, delay, interval, no_data_batches=without_data)


def records_between(
    spark: SparkSession, pipeline: Pipeline, starts: Mapping[int, int], ends: Mapping[int, int] | None
) -> DataFrame:
    """The canonical records from the start offsets to the end offsets (exclusive); without any, from or to the end."""
    opened = open_history(spark, pipeline, as_of=ends)
    seeks = bool(starts) and not pipeline.has_files_of_query
    frame = source_of(spark, pipeline).since(opened, dict(starts)) if seeks else None
    below = cut_at(canonical(opened, pipeline, frame), ends or {})
    return arrived_since(below, starts) if starts else below


def _interval(pipeline: Pipeline, watermark: StreamingWatermark) -> int:
    """The trigger's interval (ms). Raises DefinitionError where the history does not say what a tick had to read."""
    history = pipeline.history
    if pipeline.inputs:
        what = "the history is a union, and the append times of several topics do not say what a batch had read of each"
    elif pipeline.has_files_of_query:
        what = "the query reads files, and a file's time says when it was written, not when the query listed it"
    elif "arrival" in history.position.missing and history.last_topic is None:
        what = "the history has no append time of its records"
    else:
        assert watermark.trigger is not None  # with `gaps: approximate` it is there
        return watermark.trigger
    raise DefinitionError(
        f"batches are missing that cannot be placed: {what}",
        pipeline.source_of(("watermark", "gaps")) or pipeline.name,
        "Run `rewindow archive` more often than Spark removes batches. What is lost of this query cannot be replayed.",
    )


def _ticks(
    spark: SparkSession,
    pipeline: Pipeline,
    starts: Mapping[int, int],
    ends: Mapping[int, int] | None,
    interval: int,
    since: int = 0,
    until: int = MAX_TIMESTAMP,
) -> Ticks:
    """What there was to read at each tick between two times (epoch ms), from the start offsets to the end offsets.

    Partitions without a start offset begin with their first record.
    """
    read = _read(records_between(spark, pipeline, starts, ends), pipeline, interval, since, until)
    tick, partition, end, largest = (column.to_numpy().astype(np.int64) for column in read.columns)
    times, row = np.unique(tick, return_inverse=True)
    latest = np.full(len(times), NO_TIME, dtype=np.int64)
    np.maximum.at(latest, row, largest)
    reached = {}
    _refuse_many(pipeline, len(times) * len({*starts, *partition.tolist()}), interval)
    for number in sorted({*starts, *np.unique(partition).tolist()}):
        own, start = partition == number, starts.get(number, 0)
        column = np.full(len(times), start, dtype=np.int64)
        column[row[own]] = np.maximum(end[own], start)
        reached[number] = np.maximum.accumulate(column)
    return Ticks(times, latest, reached)


def _read(records: DataFrame, pipeline: Pipeline, interval: int, since: int, until: int) -> pa.Table:
    """One row a tick before `until` and partition that had records then: end offset, largest event time."""
    records = records.where(F.col(ARRIVAL).isNotNull())
    time = F.greatest(F.col(ARRIVAL), F.lit(since).cast("bigint"))
    tick = (F.call_function("div", time, F.lit(interval)) + 1) * F.lit(interval)
    known = F.when(F.col(REASON).isNull(), F.col(EVENT_TIME))
    of_partition = records.groupBy(tick.alias("tick"), PARTITION).agg(
        (F.max(OFFSET) + 1).alias("end"), F.coalesce(F.max(known), F.lit(NO_TIME)).alias("largest")
    )
    found = of_partition.where(F.col("tick") < F.lit(until)).limit(MOST + 1).toArrow()
    _refuse_many(pipeline, found.num_rows, interval)
    return found


def _refuse_many(pipeline: Pipeline, count: int, interval: int) -> None:
    """Raises HistoryError where ticks times partitions do not fit into the driver's memory."""
    if count > MOST:
        raise HistoryError(
            f"batches are missing over more than {MOST:,} ticks, counted by partition: too many to place them "
            f"(trigger {format_duration(interval)})",
            pipeline.source_of(("watermark", "trigger")) or pipeline.name,
            "Begin the history later, or write a longer `trigger`. Archive batches before Spark removes them.",
        )
