"""A closer look at some windows: their records again, and their values under evidence or under a fitted cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.comparison.emitted import OFFSETS
from spark_jobs.comparison.join_keys import join_columns, with_join_keys
from spark_jobs.comparison.timing_band import closes_of
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.strategy import Scope
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.aggregates import conditional
from spark_jobs.replay.assign import END, START, assign_windows, in_span
from spark_jobs.replay.band import Band
from spark_jobs.replay.columns import ARRIVAL, EVENT_TIME, NEVER, OFFSET, PARTITION, PositionColumns
from spark_jobs.replay.engine import Replay
from spark_jobs.replay.inversion import first_reached, is_invertible

LOW, HIGH, FLOORS, BY_PARTITION = "rw_low", "rw_high", "rw_floors", "rw_by_partition"
CLOSE = "rw_close"
TAKEN = "rw_taken"
KEPT, CERTAIN, CONTRADICTED = "rw_kept", "rw_certain", "rw_contradicted"

_MAX_FIRSTS = 2_000_000
_ENDS = (
    f"{END} BIGINT, {LOW} BIGINT, {HIGH} BIGINT, {CLOSE}_arrival BIGINT, {CLOSE}_major BIGINT, {CLOSE}_minor BIGINT, "
    f"{BY_PARTITION} BOOLEAN, {FLOORS} MAP<INT, BIGINT>"
)


@dataclass(frozen=True)
class RecountContext:
    """What a closer look needs: the replay, the band, and whether several subtasks read the log."""

    replay: Replay
    band: Band
    several_subtasks: bool

    @property
    def keys(self) -> tuple[str, ...]:
        return self.replay.spec.keys


def checkpointed(frame: DataFrame) -> DataFrame:
    """`frame` worked out, with nothing of its plan left: steps that build on each other would repeat it ever again."""
    return frame.localCheckpoint(eager=True)


def recounted_name(aggregate: str) -> str:
    """The column of an aggregate recomputed under evidence or a cut."""
    return f"{aggregate}__recounted"


def ends_of(context: RecountContext, doubt: DataFrame) -> DataFrame:
    """One row for each window end in `doubt`: its close for good, its band, and what is certain in spite of it.

    `rw_floors`: the last offset by partition that came in time whatever the order: the watermark cannot pass
    without each partition's first record that takes it there. Where partitions are cut on their own only.
    """
    replay, band = context.replay, context.band
    ends = np.array(sorted(row[0] for row in doubt.select(END).distinct().collect()), np.int64)
    lateness = replay.spec.allowed_lateness
    positions = closes_of(replay.timeline, replay.spec, ends, lateness)
    low, high = band.bounds(ends, positions[:, 0])
    lagging = (high < NEVER) & (high - low > 2 * band.margin)
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


def _schema(frame: DataFrame):
    return frame.sparkSession.createDataFrame([], _ENDS).schema


def _floors(context: RecountContext, ends: np.ndarray, lateness: int) -> Mapping[int, dict[int, int]]:
    strategy = context.replay.spec.strategy
    exact = is_invertible(strategy) and strategy.scope is Scope.PARTITION
    if not len(ends) or not exact or lateness == MAX_TIMESTAMP:
        return {}
    thresholds = ends - 1 + lateness
    firsts = first_reached(context.replay.history.records, strategy, context.replay.timeline.thresholds)
    capped = F.least("reached", F.lit(int(thresholds[-1]))).alias("reached")
    wanted = firsts.where(F.col("reached") >= F.lit(int(thresholds[0])))
    table = wanted.groupBy("partition", capped).agg(F.min("minor").alias("offset")).limit(_MAX_FIRSTS + 1).toArrow()
    if table.num_rows > _MAX_FIRSTS:
        return {}  # a wider band is always right
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


def records_in(context: RecountContext, doubt: DataFrame, ends: DataFrame, *more: str) -> DataFrame:
    """One row for each record of each window in `doubt`, with the window's band and the columns `more` of `doubt`.

    Adds `rw_certain_in` and `rw_certain_out`: what the log says for certain. `more` come as `rw_d_<name>`.
    """
    replay, keys = context.replay, context.keys
    windows = replay.spec.windows
    first, last = doubt.agg(F.min(START), F.max(START)).collect()[0]
    if first is None:
        first = last = 0
    records = replay.history.records.where(F.col(EVENT_TIME).isNotNull())
    if replay.spec.after_watermark:
        records = records.where(replay.spec.after_watermark)
    assigned = assign_windows(in_span(records, windows, TimeRange(first, last + 1)), windows)
    wanted = doubt.join(ends, END).select(
        *join_columns(keys), LOW, HIGH, FLOORS, *(F.col(c).alias(f"rw_d_{c}") for c in more)
    )
    joined = with_join_keys(assigned, keys).join(wanted, join_columns(keys))
    floor = F.coalesce(F.element_at(FLOORS, F.col(PARTITION)), F.lit(-1).cast("bigint"))
    certain_in = (F.col(ARRIVAL) <= F.col(LOW)) | (F.col(OFFSET) <= floor)
    return joined.withColumn("rw_certain_in", certain_in).withColumn(
        "rw_certain_out", (F.col(ARRIVAL) > F.col(HIGH)) & ~F.col("rw_certain_in")
    )


def taken_by_offsets(offsets: str = OFFSETS) -> Column:
    """Evidence: a record is in a row's contents if its offset is at most the last one of its partition there.

    A partition's records reach a window in offset order. No row, or none of the partition: no record.
    """
    last = F.element_at(F.col(f"rw_d_{offsets}"), F.col(PARTITION))
    return F.coalesce(F.col(OFFSET) <= last, F.lit(False))


def taken_by_cut(cuts: str) -> Column:
    """Under a fitted cut: what is certain, and of the undecided records those up to the cut of their partition."""
    last = F.coalesce(F.element_at(F.col(f"rw_d_{cuts}"), F.col(PARTITION)), F.lit(-1).cast("bigint"))
    undecided = ~F.col("rw_certain_in") & ~F.col("rw_certain_out")
    return F.col("rw_certain_in") | (undecided & (F.col(OFFSET) <= last))


def recount(context: RecountContext, records: DataFrame, taken: Column, values: tuple[str, ...], *by: str) -> DataFrame:
    """One row for each window (and each value of the columns `by`): the values over the taken records, and how the
    choice stands to the log.

    Columns: the join columns, `<aggregate>__recounted`, `rw_kept` (records taken), `rw_certain` (that the log says
    came in time), `rw_contradicted` (taken though certainly late, or left though certainly in time).
    """
    spark, spec = records.sparkSession, context.replay.spec
    against = (F.col(TAKEN) & F.col("rw_certain_out")) | (~F.col(TAKEN) & F.col("rw_certain_in"))
    return (
        records.withColumn(TAKEN, taken)
        .groupBy(*join_columns(context.keys), *by)
        .agg(
            *(F.expr(conditional(spark, spec.aggregates[v], TAKEN)).alias(recounted_name(v)) for v in values),
            F.count_if(F.col(TAKEN)).alias(KEPT),
            F.count_if("rw_certain_in").alias(CERTAIN),
            F.count_if(against).alias(CONTRADICTED),
        )
    )


def close_position() -> PositionColumns:
    """The close for good of a row of `ends_of`."""
    return PositionColumns.named(CLOSE)
