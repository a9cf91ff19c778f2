"""The timeline by inversion: for generators whose watermark is a maximum, without sorting the records.

    first_p(x) = first position in partition p whose record takes the watermark of p to x
    C(x)       = max over p of first_p(x)                       (the watermark is the minimum over p)

`first_p` is a suffix minimum over a small aggregate, one row a partition and threshold reached. Exact
for per-event emission; a periodic watermark passes x at the first tick strictly later, before every
record of that millisecond (golden rule 7). Punctuated watermarks are not rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import RecordTime, RunningMaximum
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, MARKER, NEVER, OFFSET, PARTITION, SEQUENCE, PositionColumns
from spark_jobs.replay.in_memory_timeline import MAX_IN_MEMORY, SCHEMA, InMemoryTimeline, inverted, nothing_closed
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames


def _maximum_of(strategy: WatermarkStrategy) -> RunningMaximum:
    maximum = strategy.running_maximum
    if maximum is None:
        raise ValueError(f"the watermark of generator {strategy.generator.kind} is not a maximum")
    return maximum


def followed_time(time: RecordTime) -> Column:
    """The time (epoch ms) of each record that the maximum is taken of; null: the record does not move it."""
    match time:
        case RecordTime.EVENT_TIME:
            return F.col(EVENT_TIME)
        case RecordTime.EVENT_TIME_OF_MARKERS:
            return F.when(F.col(MARKER), F.col(EVENT_TIME))
        case RecordTime.ARRIVAL:
            return F.col(ARRIVAL)
        case RecordTime.NOTHING:
            return F.lit(None).cast("bigint")


def first_reached(records: DataFrame, strategy: WatermarkStrategy, thresholds: Thresholds) -> DataFrame:
    """`partition, reached, arrival, minor`: the first record of each partition to reach each threshold.

    One narrow hash aggregation. Within a partition the arrival never decreases with the offset, so the
    smallest of both belong to one record. Where thresholds lie further apart than the largest partition
    number, the key is the sum of threshold and partition: one column to hash and compare for each record, not two.
    """
    ordering = SEQUENCE if SEQUENCE in records.columns else OFFSET
    maximum = _maximum_of(strategy)
    time, delay = followed_time(maximum.time), maximum.delay
    moving = records.where(time.isNotNull())
    values = [F.min(ARRIVAL).alias("arrival"), F.min(ordering).alias("minor")]
    numbers = strategy.partitions
    if min(numbers, default=-1) >= 0 and max(numbers) < thresholds.apart:
        registered = F.col(PARTITION).between(0, max(numbers))
        key = thresholds.floor(time, -delay) + F.col(PARTITION)
        firsts = moving.where(registered).groupBy(key.alias("key")).agg(*values)
        cell = thresholds.floor(F.col("key"), -delay)
        partition = (F.col("key") - cell).cast("int")
    else:
        cell, partition = F.col("cell"), F.col("partition")
        keys = F.col(PARTITION).alias("partition"), thresholds.floor(time, -delay).alias("cell")
        firsts = moving.groupBy(*keys).agg(*values)
    return firsts.select(partition.alias("partition"), (cell - F.lit(delay)).alias("reached"), "arrival", "minor")


def invert(
    records: DataFrame,
    strategy: WatermarkStrategy,
    thresholds: Thresholds,
    *,
    processing_time_end: int,
    cache: CachedFrames,
    state: dict[str, Any] | None = None,
    fits_in_memory: bool = False,
    by_subtask: bool = False,
) -> Timeline:
    """The timeline of `records`, continued from `state` (an earlier run's) if given.

    With a state, C(x) is exact for x above that run's watermark; below it, it is the end of that run. `fits_in_memory`:
    the caller knows that the rows fit the driver's memory, so they are fetched without being cached first.
    `by_subtask`: with the steps of each source subtask, where the rows fit.
    """
    firsts = closes_reached(records, strategy, thresholds, processing_time_end=processing_time_end, state=state)
    if strategy.discovered and strategy.scope is WatermarkScope.PARTITION:
        firsts = cache.keep(firsts)
        firsts = firsts.unionByName(_before_discovery(firsts, strategy))
    if fits_in_memory:
        table, few = firsts.toArrow(), True
    else:
        firsts = cache.keep(firsts)
        table = firsts.limit(MAX_IN_MEMORY + 1).toArrow()
        few = table.num_rows <= MAX_IN_MEMORY
    last = last_of(table) if few else _last_reached(firsts)
    groups = strategy.generator_groups
    never_from = _never_from(last, groups)
    complete = never_from > MIN_TIMESTAMP
    if not few:
        steps = cache.keep(_steps(firsts, strategy, never_from))
    else:
        steps = inverted(table, groups, never_from)
        if by_subtask:
            steps = replace(steps, by_subtask=_of_each_subtask(table, last, strategy))
    return Timeline(
        steps,
        thresholds,
        flushes=True,
        state={"kind": "inversion", "partitions": {str(p): values for p, values in last.items()}},
        watermark_below=never_from - 1 if complete else MIN_TIMESTAMP,
    )


def _never_from(last: Mapping[int, Mapping[str, int]], groups: Sequence[Sequence[int]]) -> int:
    """The first value that the minimum over the generators has not reached."""
    reached_by = [max((last[p]["reached"] for p in group if p in last), default=None) for group in groups]
    reached = [threshold for threshold in reached_by if threshold is not None]
    return min(reached) + 1 if reached and len(reached) == len(groups) else MIN_TIMESTAMP


def _of_each_subtask(
    table: pa.Table, last: Mapping[int, Mapping[str, int]], strategy: WatermarkStrategy
) -> dict[int, InMemoryTimeline]:
    """The steps of each source subtask's own watermark."""
    steps: dict[int, InMemoryTimeline] = {}
    for number, subtask in enumerate(strategy.subtasks):
        groups = [subtask] if strategy.scope is WatermarkScope.SUBTASK else [(partition,) for partition in subtask]
        steps[number] = inverted(table, groups, _never_from(last, groups)) if subtask else nothing_closed()
    return steps


def is_past_discoveries(state: dict[str, Any], strategy: WatermarkStrategy) -> bool:
    """Whether each partition was surely read beyond the last discovery of one, so that a later run can go on.

    What the watermark had at a discovery is known only then.
    """
    last = max((at for _, at in strategy.discovered), default=MIN_TIMESTAMP)
    read = {int(partition): values["arrival"] for partition, values in state.get("partitions", {}).items()}
    return not strategy.discovered or all(read.get(p, MIN_TIMESTAMP) >= last for p in strategy.partitions)


def is_past_carried(state: dict[str, Any], first: int | None) -> bool:
    """Whether records that arrived from `first` (epoch ms) on come after all that the state has; None: there are none.

    Of each partition it has the highest threshold alone, and where that was reached. When the partition had passed what
    lies below it is not known any more: before all new records, if each of them came later than that.
    """
    reached = (values["arrival"] for values in state.get("partitions", {}).values())
    return first is None or first > max(reached, default=MIN_TIMESTAMP)


def _before_discovery(firsts: DataFrame, strategy: WatermarkStrategy) -> DataFrame:
    """Rows of `firsts` for the partitions that were discovered later: each had reached what its subtask had then.

    So it holds back what lies above, and nothing below.
    """
    discovered = dict(strategy.discovered)
    times = sorted(set(discovered.values()))
    marks = [F.max(F.when(F.col("close_arrival") < F.lit(at), F.col("reached"))).alias(f"m{at}") for at in times]
    rows_of = {row["partition"]: row for row in firsts.groupBy("partition").agg(*marks).collect()}
    found: dict[int, tuple[int, int]] = {}

    def reached(partition: int, at: int) -> int | None:
        """What the partition had reached before a discovery; None: nothing."""
        own = rows_of[partition][f"m{at}"] if partition in rows_of else None
        _, then = found.get(partition, (at, None))
        return max((mark for mark in (own, then) if mark is not None), default=None)

    for at in times:
        for subtask in strategy.subtasks:
            known = [reached(p, at) for p in subtask if p not in discovered or discovered[p] < at]
            sure = [mark for mark in known if mark is not None]
            if sure and len(sure) == len(known):
                found |= {p: (at, min(sure)) for p in subtask if discovered.get(p) == at}
    rows = [(p, mark, at, 0, MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP) for p, (at, mark) in found.items()]
    columns = "partition INT, reached BIGINT, arrival BIGINT, minor BIGINT, close_arrival BIGINT"
    return firsts.sparkSession.createDataFrame(rows, f"{columns}, close_major BIGINT, close_minor BIGINT")


def closes_reached(
    records: DataFrame,
    strategy: WatermarkStrategy,
    thresholds: Thresholds,
    *,
    processing_time_end: int,
    state: dict[str, Any] | None,
) -> DataFrame:
    """`first_reached` with `close_arrival, close_major, close_minor`, continued from `state` if given."""
    firsts = first_reached(records, strategy, thresholds)
    if state and state["partitions"]:
        carried = [(int(p), s["reached"], s["arrival"], s["minor"]) for p, s in state["partitions"].items()]
        firsts = firsts.unionByName(
            records.sparkSession.createDataFrame(carried, "partition INT, reached BIGINT, arrival BIGINT, minor BIGINT")
        )
    return with_closes(firsts, strategy, processing_time_end, SEQUENCE in records.columns)


def with_closes(
    firsts: DataFrame, strategy: WatermarkStrategy, processing_time_end: int, by_sequence: bool
) -> DataFrame:
    """Add `close_arrival, close_major, close_minor`: where the watermark shows that the threshold was reached.

    Per event that is the record itself. A periodic watermark moves at the first tick strictly later; a tick
    after the end never comes. Rounding does not change the order, so it is done before all minima and maxima.
    """
    zero = F.lit(0).cast("long")
    major, minor = (F.col("minor"), zero) if by_sequence else (F.col("partition").cast("long"), F.col("minor"))
    exact = PositionColumns(F.col("arrival"), major, minor)
    if strategy.emits_on_records:
        return firsts.select("*", *exact.aliased("close"))
    start, interval = F.lit(strategy.timer_start), F.lit(strategy.interval)
    since = F.greatest(F.col("arrival") - start, F.lit(0))
    tick = start + since - F.pmod(since, interval) + interval
    exists = (tick <= F.lit(processing_time_end)) if strategy.interval else F.lit(False)
    parts = (tick, F.lit(-1).cast("long"), F.lit(-1).cast("long"))
    rounded = PositionColumns(*(F.when(exists, part).otherwise(F.lit(NEVER)) for part in parts))
    return firsts.select("*", *rounded.aliased("close"))


def _steps(firsts: DataFrame, strategy: WatermarkStrategy, never_from: int) -> DataFrame:
    """The timeline's rows, in Spark: what `inverted` computes, for timelines of any size."""
    generator_of = {p: i for i, group in enumerate(strategy.generator_groups) for p in group}
    pairs = [F.lit(v) for item in generator_of.items() for v in item]
    generator = F.create_map(*pairs)[F.col("partition")].alias("generator")
    close = PositionColumns.named("close").as_struct()
    by_generator = firsts.groupBy(generator, "reached").agg(F.min(close).alias("p")).where("generator IS NOT NULL")
    ascending = Window.partitionBy("generator").orderBy("reached")
    later = Window.partitionBy("generator").orderBy(F.desc("reached"))
    steps = by_generator.select(
        F.coalesce(F.lag("reached").over(ascending) + F.lit(1), F.lit(MIN_TIMESTAMP)).alias("x_from"),
        F.min("p").over(later.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("p"),
    )
    rows = steps.groupBy("x_from").agg(F.max("p").alias("p")).select("x_from", "p.*")
    never = firsts.sparkSession.createDataFrame([(never_from, NEVER, NEVER, NEVER)], SCHEMA)
    return rows.where(F.col("x_from") < F.lit(never_from)).unionByName(never)


def last_of(table: pa.Table) -> dict[int, dict[str, int]]:
    """As `_last_reached`, in memory."""
    names = ("partition", "reached", "arrival", "minor")
    columns = [table.column(name).to_numpy() for name in names]
    order = np.lexsort(columns[::-1])
    ends = np.flatnonzero(np.diff(columns[0][order], append=-1))  # no partition is -1
    rows = np.stack([column[order[ends]] for column in columns], axis=1).tolist()
    return {partition: dict(zip(names[1:], values, strict=True)) for partition, *values in rows}


def _last_reached(firsts: DataFrame) -> dict[int, dict[str, int]]:
    """Per partition its highest threshold, and the first position that reached it.

    That is also all that a later run needs. There the position means "before this run", which is right for every x that
    the watermark has not passed yet, ticks included.
    """
    best = F.max(F.struct("reached", "arrival", "minor")).alias("best")
    rows = firsts.groupBy("partition").agg(best).select("partition", "best.*").collect()
    return {r["partition"]: {k: r[k] for k in ("reached", "arrival", "minor")} for r in rows}
