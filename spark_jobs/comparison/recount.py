"""Recounts chosen windows: reads their records again and computes their values under evidence or a fitted cut."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark_jobs.comparison.emitted import OFFSETS
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.timing_band import closes_of
from spark_jobs.eventtime.flink.strategy import WatermarkScope
from spark_jobs.eventtime.ranges import TimeRange, ranges_of
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.aggregates import conditional
from spark_jobs.replay.assign import END, START, assign_windows, in_spans
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    HANDED,
    NEVER,
    OFFSET,
    PARTITION,
    PositionColumns,
    admitted,
    position_names,
)
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.flink.inversion import first_reached

LOW, HIGH, FLOORS, BY_PARTITION = "rw_low", "rw_high", "rw_floors", "rw_by_partition"
CLOSE = "rw_close"
TAKEN = "rw_taken"
KEPT, CERTAIN, CONTRADICTED = "rw_kept", "rw_certain", "rw_contradicted"
HELD_BACK = "rw_held_back"

_MAX_SPANS = 32
"""Ranges of starts that records are read for: a source skips what lies between them."""
_MAX_FIRSTS = 2_000_000
_ENDS = (
    f"{END} BIGINT, {LOW} BIGINT, {HIGH} BIGINT, {CLOSE}_arrival BIGINT, {CLOSE}_major BIGINT, {CLOSE}_minor BIGINT, "
    f"{BY_PARTITION} BOOLEAN, {FLOORS} MAP<INT, BIGINT>"
)


@dataclass(frozen=True)
class RecountContext:
    """What a recount needs: the replay, the timing band, and whether several subtasks read the log."""

    replay: Replay
    band: Band
    several_subtasks: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return self.replay.spec.keys


def checkpointed(frame: DataFrame) -> DataFrame:
    """`frame` computed and stored (localCheckpoint), so that later steps do not compute its plan again."""
    return frame.localCheckpoint(eager=True)


def recounted_name(aggregate: str) -> str:
    """The column of an aggregate that was recounted under evidence or a cut."""
    return f"{aggregate}__recounted"


def ends_of(context: RecountContext, doubt: DataFrame, known: Iterable[int] | None = None) -> DataFrame:
    """One row for each window end in `doubt`: its final close (allowed lateness included) and its timing band.

    `known`: these ends (epoch ms), where the caller has them already.

    `rw_floors` is, for each partition, the last offset that came in time whatever the order was: the watermark cannot
    pass before the first record of each partition that moves it so far. Empty where one cut holds for all partitions.
    """
    replay, band = context.replay, context.band
    found = (row[0] for row in doubt.select(END).distinct().collect()) if known is None else set(known)
    ends = np.array(sorted(found), np.int64)
    lateness = replay.spec.allowed_lateness
    positions = closes_of(replay.timeline, replay.spec, ends, lateness)
    low, high = band.bounds(ends, positions[:, 0])
    lagging = (high < NEVER) & band.lagging(ends, positions[:, 0])
    on_their_own = lagging | context.several_subtasks
    floors = _floors(context, ends[on_their_own], lateness)
    rows = pa.table(
        {
            END: ends,
            LOW: low,
            HIGH: high,
            **{f"{CLOSE}_{part}": positions[:, i] for i, part in enumerate(("arrival", "major", "minor"))},
            BY_PARTITION: on_their_own,
            FLOORS: pa.array([list(floors.get(int(end), {}).items()) for end in ends], pa.map_(pa.int32(), pa.int64())),
        }
    )
    return F.broadcast(doubt.sparkSession.createDataFrame(rows).to(_schema(doubt)))


def _schema(frame: DataFrame) -> StructType:
    return frame.sparkSession.createDataFrame([], _ENDS).schema


def _floors(context: RecountContext, ends: np.ndarray, lateness: int) -> Mapping[int, dict[int, int]]:
    strategy = context.replay.spec.strategy
    exact = strategy.is_invertible and strategy.scope is WatermarkScope.PARTITION and not strategy.discovered
    if not len(ends) or not exact or lateness == MAX_TIMESTAMP:
        return {}
    thresholds = ends - 1 + lateness
    firsts = first_reached(context.replay.history.records, strategy, context.replay.timeline.thresholds)
    capped = F.least("reached", F.lit(int(thresholds[-1]))).alias("reached")
    wanted = firsts.where(F.col("reached") >= F.lit(int(thresholds[0])))
    table = wanted.groupBy("partition", capped).agg(F.min("minor").alias("offset")).limit(_MAX_FIRSTS + 1).toArrow()
    if table.num_rows > _MAX_FIRSTS:
        return {}  # without floors the band is wider, which is safe
    partition, reached, offset = (table.column(c).to_numpy() for c in ("partition", "reached", "offset"))
    floors: dict[int, dict[int, int]] = {int(end): {} for end in ends}
    for p in np.unique(partition):
        own = partition == p
        order = np.argsort(reached[own])
        at, first = reached[own][order], offset[own][order]
        earliest = np.minimum.accumulate(first[::-1])[::-1]
        place = np.searchsorted(at, thresholds)
        for end, i in zip(ends.tolist(), place.tolist(), strict=True):
            if i < len(at):
                floors[end][int(p)] = int(earliest[i])
    return floors


def records_in(
    context: RecountContext,
    doubt: DataFrame,
    ends: DataFrame,
    *more: str,
    starts: Collection[int] | None = None,
    are_few: bool = False,
) -> DataFrame:
    """One row for each record of each window in `doubt`, with the band of the window.

    `rw_certain_in` and `rw_certain_out` say whether the record certainly came in time, or certainly late, and
    `rw_held_back` whether it came in time to a subtask that held it back beyond the close. The columns
    `more` of `doubt` are added as `rw_d_<name>`. `starts`: those of the windows (epoch ms), where they are known. With
    `are_few` every task gets the windows, and the records are not shuffled.
    """
    replay, keys = context.replay, context.keys
    windows = replay.spec.aligned_windows
    if starts is None:
        starts = [row[0] for row in doubt.select(START).where(F.col(START).isNotNull()).distinct().collect()]
    spans = ranges_of(sorted(set(starts)), windows.longest, _MAX_SPANS)
    records = replay.entering.where(F.col(EVENT_TIME).isNotNull())
    whole = TimeRange(min((s.start for s in spans), default=0), max((s.end for s in spans), default=0))
    records = replay.handed_on(admitted(records, replay.spec.after_watermark), whole)
    assigned = assign_windows(in_spans(records, windows, spans), windows)
    wanted = doubt.join(ends, END).select(
        *join_columns(keys), LOW, HIGH, FLOORS, *(F.col(c).alias(f"rw_d_{c}") for c in more)
    )
    joined = with_join_keys(assigned, keys).join(F.broadcast(wanted) if are_few else wanted, join_columns(keys))
    floor = F.coalesce(F.element_at(FLOORS, F.col(PARTITION)), F.lit(-1).cast("bigint"))
    handed = position_names(HANDED)[0]  # what a subtask holds back comes to the windows later, or at a checkpoint
    came = F.coalesce(F.col(handed), F.col(ARRIVAL)) if handed in joined.columns else F.col(ARRIVAL)
    certain_in, certain_out = (came <= F.col(LOW)) | (F.col(OFFSET) <= floor), F.col(ARRIVAL) > F.col(HIGH)
    joined = joined.withColumn("rw_certain_in", certain_in)
    return joined.withColumns(
        {
            "rw_certain_out": certain_out & ~F.col("rw_certain_in"),
            HELD_BACK: (F.col(ARRIVAL) <= F.col(LOW)) & ~F.col("rw_certain_in"),
        }
    )


def taken_by_offsets() -> Column:
    """Under evidence: a record is in the emitted row if its offset is at most the row's last offset of its partition.

    This holds because the records of a partition reach a window in offset order. Without a row, or without an offset of
    the partition, the record is not in it.
    """
    last = F.element_at(F.col(f"rw_d_{OFFSETS}"), F.col(PARTITION))
    return F.coalesce(F.col(OFFSET) <= last, F.lit(False))


def taken_by_cut(cuts: str) -> Column:
    """Under a fitted cut: records certainly in time, and undecided records up to the cut of their partition."""
    last = F.coalesce(F.element_at(F.col(f"rw_d_{cuts}"), F.col(PARTITION)), F.lit(-1).cast("bigint"))
    undecided = ~F.col("rw_certain_in") & ~F.col("rw_certain_out")
    return F.col("rw_certain_in") | (undecided & (F.col(OFFSET) <= last))


def recount(context: RecountContext, records: DataFrame, taken: Column, values: tuple[str, ...], *by: str) -> DataFrame:
    """The values over the records where `taken` is true: one row for each window, and each value of the columns `by`.

    Columns: the join columns, `<aggregate>__recounted`, and three numbers of records: `rw_kept` (taken), `rw_certain`
    (certainly in time), `rw_contradicted` (taken though certainly late, or not taken though certainly in time); of
    records from `records_in` also `rw_held_back`, whether one of them was.
    """
    spark, spec = records.sparkSession, context.replay.spec
    held_back = [F.max(HELD_BACK).alias(HELD_BACK)] if HELD_BACK in records.columns else []
    against = (F.col(TAKEN) & F.col("rw_certain_out")) | (~F.col(TAKEN) & F.col("rw_certain_in"))
    return (
        records.withColumn(TAKEN, taken)
        .groupBy(*join_columns(context.keys), *by)
        .agg(
            *(F.expr(conditional(spark, spec.aggregates[v], TAKEN)).alias(recounted_name(v)) for v in values),
            F.count_if(F.col(TAKEN)).alias(KEPT),
            F.count_if("rw_certain_in").alias(CERTAIN),
            F.count_if(against).alias(CONTRADICTED),
            *held_back,
        )
    )


def close_position() -> PositionColumns:
    """The final close of a row of `ends_of`."""
    return PositionColumns.named(CLOSE)
