"""The timeline by inversion: for generators whose watermark is a maximum, without a look at the order.

    first_p(x) = first position in partition p whose record takes the watermark of p to x
    C(x)       = max over p of first_p(x)                       (the watermark is the minimum over p)

`first_p` is a suffix minimum over a small aggregate, one row a partition and threshold reached. Exact
for per-event emission; a periodic watermark passes x at the first tick strictly later, before every
record of that millisecond (golden rule 7). Punctuated watermarks are not rounded.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.eventtime.strategy import GeneratorKind, Scope, WatermarkStrategy
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, MARKER, NEVER, OFFSET, PARTITION, SEQUENCE, Held
from spark_jobs.replay.timeline import SCHEMA, Thresholds, Timeline

_MAXIMA = (
    GeneratorKind.ASCENDING,
    GeneratorKind.BOUNDED,
    GeneratorKind.LAG,
    GeneratorKind.PUNCTUATED,
    GeneratorKind.NONE,
)


def is_invertible(strategy: WatermarkStrategy) -> bool:
    """Whether this strategy's watermark is a minimum of maxima and of nothing else."""
    if strategy.kind is GeneratorKind.TIME_LAG:
        return strategy.per_event and strategy.idleness is None
    can_go_idle = strategy.idleness is not None and strategy.interval > 0
    return strategy.kind in _MAXIMA and not can_go_idle


def _watermark_value(strategy: WatermarkStrategy) -> Column:
    """What a record takes its generator's watermark to (epoch ms); null: it does not move it."""
    if strategy.kind is GeneratorKind.NONE:
        return F.lit(None).cast("bigint")
    time = F.col(ARRIVAL if strategy.kind is GeneratorKind.TIME_LAG else EVENT_TIME)
    value = time - F.lit(strategy.delay)
    return F.when(F.col(MARKER), value) if strategy.kind is GeneratorKind.PUNCTUATED else value


def first_reached(records: DataFrame, strategy: WatermarkStrategy, thresholds: Thresholds) -> DataFrame:
    """`partition, reached, arrival, minor`: the first record of each partition to reach each threshold.

    One narrow hash aggregation. Within a partition the arrival never decreases with the offset, so the
    smallest of both belong to one record.
    """
    ordering = SEQUENCE if SEQUENCE in records.columns else OFFSET
    value = _watermark_value(strategy)
    return (
        records.where(value.isNotNull())
        .groupBy(F.col(PARTITION).alias("partition"), thresholds.floor(value).alias("reached"))
        .agg(F.min(ARRIVAL).alias("arrival"), F.min(ordering).alias("minor"))
    )


def invert(
    records: DataFrame,
    strategy: WatermarkStrategy,
    thresholds: Thresholds,
    *,
    processing_time_end: int,
    held: Held,
    state: dict | None = None,
) -> Timeline:
    """The timeline of `records`, going on from `state` (an earlier run's) if given.

    With a state, C(x) is exact for x above that run's watermark, and "at its end" below.
    """
    spark = records.sparkSession
    by_sequence = SEQUENCE in records.columns
    firsts = first_reached(records, strategy, thresholds)
    if state and state["partitions"]:
        carried = [(int(p), s["reached"], s["arrival"], s["minor"]) for p, s in state["partitions"].items()]
        firsts = firsts.unionByName(
            spark.createDataFrame(carried, "partition INT, reached BIGINT, arrival BIGINT, minor BIGINT")
        )
    firsts = held.keep(firsts)

    if by_sequence:
        position = F.struct("arrival", F.col("minor").alias("major"), F.lit(0).cast("long").alias("minor"))
    else:
        position = F.struct("arrival", F.col("partition").cast("long").alias("major"), "minor")
    subtask_of = {p: i for i, group in enumerate(strategy.generator_groups) for p in group}
    if strategy.scope is Scope.SUBTASK:
        pairs = [F.lit(v) for item in subtask_of.items() for v in item]
        group = F.create_map(*pairs)[F.col("partition")] if pairs else F.col("partition")
    else:
        group = F.col("partition")
    if state is None and strategy.scope is Scope.PARTITION:
        by_group = firsts.select(group.alias("generator"), "reached", position.alias("p"))
    else:
        by_group = firsts.groupBy(group.alias("generator"), "reached").agg(F.min(position).alias("p"))

    ascending = Window.partitionBy("generator").orderBy("reached")
    later = Window.partitionBy("generator").orderBy(F.desc("reached"))
    steps = by_group.select(
        "generator",
        F.coalesce(F.lag("reached").over(ascending) + F.lit(1), F.lit(MIN_TIMESTAMP)).alias("x_from"),
        F.min("p").over(later.rowsBetween(Window.unboundedPreceding, Window.currentRow)).alias("p"),
    )
    rows = steps.groupBy("x_from").agg(F.max("p").alias("p")).select("x_from", "p.*")
    rows = _round_to_ticks(rows, strategy, processing_time_end)
    last = _last_reached(firsts)
    groups = strategy.generator_groups
    reached_by = [max((last[p]["reached"] for p in group if p in last), default=None) for group in groups]
    complete = reached_by and None not in reached_by
    from_here_never = min(reached_by) + 1 if complete else MIN_TIMESTAMP
    rows = rows.where(F.col("x_from") < F.lit(from_here_never)).unionByName(
        spark.createDataFrame([(from_here_never, NEVER, NEVER, NEVER)], SCHEMA)
    )
    rows = held.keep(rows)
    saved = {"kind": "inversion", "partitions": {str(p): values for p, values in last.items()}}
    below = min(reached_by) if complete else MIN_TIMESTAMP
    return Timeline(rows, thresholds, flushes=True, state=saved, watermark_below=below)


def _last_reached(firsts: DataFrame) -> dict[int, dict[str, int]]:
    """Per partition its highest threshold, and the first position that reached it.

    It is also all that a later run needs. The position stands for "before that run": it is right for
    every x that the watermark has not passed yet, ticks included.
    """
    best = F.max(F.struct("reached", "arrival", "minor")).alias("best")
    rows = firsts.groupBy("partition").agg(best).select("partition", "best.*").collect()
    return {r["partition"]: {k: r[k] for k in ("reached", "arrival", "minor")} for r in rows}


def _round_to_ticks(rows: DataFrame, strategy: WatermarkStrategy, processing_time_end: int) -> DataFrame:
    """A periodic watermark: C moves to the first tick strictly later; a tick after the end never comes."""
    punctuated = strategy.kind is GeneratorKind.PUNCTUATED
    if strategy.per_event or punctuated or strategy.kind is GeneratorKind.NONE:
        return rows
    start, interval = F.lit(strategy.timer_start), F.lit(strategy.interval)
    since = F.greatest(F.col("arrival") - start, F.lit(0))
    tick = start + since - F.pmod(since, interval) + interval
    exists = (tick <= F.lit(processing_time_end)) if strategy.interval else F.lit(False)
    return rows.select(
        "x_from",
        F.when(exists, tick).otherwise(F.lit(NEVER)).alias("arrival"),
        F.when(exists, F.lit(-1).cast("long")).otherwise(F.lit(NEVER)).alias("major"),
        F.when(exists, F.lit(-1).cast("long")).otherwise(F.lit(NEVER)).alias("minor"),
    )
