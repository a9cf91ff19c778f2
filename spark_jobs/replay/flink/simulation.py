"""The timeline by simulation: every record in one task, for histories in which statuses change all the time.

The plainest way, to which the tests hold the others. Spark reduces the history to what the watermark logic can see, and
one task runs `spark_jobs.eventtime.flink.source.Source` over it in position order. Rows go in and out in batches;
nothing is collected to the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import Signal, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, MARKER, NEVER, PARTITION, STREAM, record_position
from spark_jobs.replay.flink.idleness import IdleSpans
from spark_jobs.replay.in_memory_timeline import SCHEMA
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames

_BATCH = 65_536
_ARROW = pa.schema([(name, pa.int64()) for name in ("x_from", "arrival", "major", "minor")] + [("state", pa.string())])


def simulate(
    records: DataFrame,
    strategy: WatermarkStrategy,
    thresholds: Thresholds,
    *,
    processing_time_end: int,
    cache: CachedFrames,
    state: dict[str, Any] | None = None,
) -> Timeline:
    """The timeline of `records`, continued from `state` (an earlier run's) if given.

    `processing_time_end` (epoch ms) is how far the timer runs; ticks due then still run.
    """
    steps = _visible_steps(records, strategy).repartition(1).sortWithinPartitions("arrival", "major", "minor")
    saved = None if state is None else state["source"]
    run = partial(_run, strategy=strategy, processing_time_end=processing_time_end, state=saved)
    output = cache.keep(steps.mapInArrow(run, f"{SCHEMA}, state STRING"))
    final = json.loads(output.where("state IS NOT NULL").select("state").collect()[0][0])
    idle = final.pop("idle")
    return Timeline(
        output.select("x_from", "arrival", "major", "minor"),
        thresholds,
        flushes=_flush_reaches_windows(strategy, final["source"]),
        state={"kind": "simulation", **final},
        watermark_below=final["source"]["valve"]["last_watermark"],
        note="watermark simulated in one task, in position order",
        idle=None if strategy.idleness is None else idle,
    )


def can_continue(state: dict[str, Any], strategy: WatermarkStrategy, first: tuple[int, int, int]) -> bool:
    """Whether a simulation may go on from `state` with records from position `first` on.

    The state is that of a prefix of the history in position order. End offsets that cut the partitions at
    different times leaves no such prefix. Where records count at ticks only, no tick may have passed them.
    """
    if strategy.sees_only_maxima_at_ticks:
        return first[0] >= state["processing_time_end"]
    return first[0] >= state["processing_time_end"] and (state["last"] is None or first > tuple(state["last"]))


def _visible_steps(records: DataFrame, strategy: WatermarkStrategy) -> DataFrame:
    """`arrival, major, minor, partition, ts, marker, stream`: what the watermark logic can see.

    A periodic generator that follows a maximum emits nothing between two ticks, so one row a partition and interval is
    enough.
    """
    position = record_position(records)
    no_time = F.lit(MIN_TIMESTAMP)
    timestamp: Column = F.coalesce(F.col(EVENT_TIME), no_time).alias("ts")
    marker = (F.coalesce(F.col(MARKER), F.lit(False)) if MARKER in records.columns else F.lit(False)).alias("marker")
    stream = (F.col(STREAM) if STREAM in records.columns else F.lit(None).cast("string")).alias("stream")
    partition = F.col(PARTITION).alias("partition")
    if not strategy.sees_only_maxima_at_ticks:
        columns = (position.arrival.alias("arrival"), position.major.alias("major"), position.minor.alias("minor"))
        return records.select(*columns, partition, timestamp, marker, stream)
    since = F.col(ARRIVAL) - F.lit(strategy.timer_start)
    before_tick = F.greatest(since - F.pmod(since, F.lit(strategy.interval)), F.lit(0))
    return (
        records.groupBy(partition, before_tick.alias("before_tick"))
        .agg(F.min(position.arrival).alias("arrival"), F.max(timestamp).alias("ts"))
        .select(
            "arrival",
            F.col("partition").cast("long").alias("major"),
            F.lit(0).cast("long").alias("minor"),
            "partition",
            "ts",
            F.lit(False).alias("marker"),
            F.lit(None).cast("string").alias("stream"),
        )
    )


def _run(
    batches: Iterable[pa.RecordBatch],
    *,
    strategy: WatermarkStrategy,
    processing_time_end: int,
    state: dict[str, Any] | None,
) -> Iterator[pa.RecordBatch]:
    """Run the source over all steps; yields timeline rows, the last of them with the final state."""
    source = Source(strategy)
    if state is not None:
        source.restore(state)
    idle = IdleSpans()
    rows: list[tuple[int, int, int, int]] = []
    next_x = MIN_TIMESTAMP if source.watermark == MIN_TIMESTAMP else source.watermark + 1
    if state is not None:
        rows.append((MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP))

    def note(signals: Sequence[Signal], arrival: int, major: int, minor: int) -> None:
        nonlocal next_x
        idle.note(signals, arrival)
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                rows.append((next_x, arrival, major, minor))
                next_x = signal.watermark + 1

    last = None
    for batch in batches:
        columns = (batch.column(i).to_pylist() for i in range(batch.num_columns))
        for arrival, major, minor, partition, timestamp, marker, stream in zip(*columns, strict=True):
            for tick in source.ticks(arrival):
                note(tick.signals, tick.time, -1, -1)
            note(source.on_event(partition, Event(timestamp, arrival, marker, stream)), arrival, major, minor)
            last = (arrival, major, minor)
        if len(rows) >= _BATCH:
            yield _batch(rows)
            rows.clear()
    for tick in source.ticks(processing_time_end):
        note(tick.signals, tick.time, -1, -1)
    rows.append((min(next_x, MAX_TIMESTAMP), NEVER, NEVER, NEVER))
    final = {
        "source": source.snapshot(),
        "processing_time_end": processing_time_end,
        "last": last,
        "idle": idle.summary(processing_time_end),
    }
    yield _batch(rows, state=json.dumps(final))


def _batch(rows: list[tuple[int, int, int, int]], state: str | None = None) -> pa.RecordBatch:
    columns = [pa.array(column, pa.int64()) for column in zip(*rows, strict=True)]
    states = pa.array([None] * (len(rows) - 1) + [state], pa.string())
    return pa.RecordBatch.from_arrays([*columns, states], schema=_ARROW)


def _flush_reaches_windows(strategy: WatermarkStrategy, state: dict[str, Any]) -> bool:
    """Whether MAX_WATERMARK gets through at the end of input (golden rule 15)."""
    source = Source(strategy)
    source.restore(state)
    return any(isinstance(s, WatermarkEmitted) and s.watermark == MAX_TIMESTAMP for s in source.end_of_input())
