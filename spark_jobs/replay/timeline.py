"""The timeline: when the watermark passed which value.

`C(x)`, the close position of `x`, is the first position after whose record (or at whose tick) the
watermark is at or above `x`. It depends on no key, so it is computed once and looked up for every
record: no sort and no watermark per record.

A timeline is a DataFrame `x_from BIGINT, arrival BIGINT, major BIGINT, minor BIGINT`: C(x) is the largest
position of the rows with `x_from <= x`. There is always a row of `NEVER`: the watermark has
not reached that value and all above.
All ways to make one give this table; `spark_jobs.replay.flink.making` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.replay.columns import NEVER, PARTITION, PositionColumns, long_arrays
from spark_jobs.replay.grid import EndGrid, RegularGrid
from spark_jobs.replay.in_memory_timeline import MAX_IN_MEMORY, InMemoryTimeline

_PARTS = ("arrival", "major", "minor")
MAX_GRID_POINTS = 1_000_000
"""The most window ends that one chunk may hold: its close positions travel with every task."""


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The watermark values at which something closes: a timeline needs to be exact for these alone.

    `floor(value, shift)` gives the largest threshold at or below the watermark `value + shift`, less `shift`, so that
    constants need not be added for each record. A finer floor is always right; it only makes more rows. `step` and
    `apart` are the mean and the least distance of two thresholds (ms) where they are known, else 0.
    """

    floor: Callable[[Column, int], Column]
    step: int = 0
    apart: int = 0

    def fits_in_memory(self, span: TimeRange, partitions: int) -> bool:
        """Whether the thresholds that so many partitions reach within `span` surely fit the driver's memory."""
        return self.step > 0 and ((span.end - span.start) // self.step + 2) * partitions <= MAX_IN_MEMORY


def grid_thresholds(grid: EndGrid, lateness: int) -> Thresholds:
    """Ends - 1, and ends - 1 + L where that is another grid. With a lateness of "forever" nothing closes for good."""
    step = grid.step if isinstance(grid, RegularGrid) else 0
    if lateness == MAX_TIMESTAMP or (step and lateness % step == 0):
        return Thresholds(lambda value, shift: grid.floor(value, shift + 1), step, step)
    between = lateness % step if step else 0
    return Thresholds(
        lambda value, shift: F.greatest(grid.floor(value, shift + 1), grid.floor(value, shift + 1 - lateness)),
        step // 2,
        min(between, step - between),
    )


def exact_thresholds() -> Thresholds:
    """Every millisecond."""
    return Thresholds(lambda value, shift: value)


_FAR = 2**58
"""Beyond all times that occur (ms), and small enough to add several without an overflow."""


@dataclass
class CloseArrays:
    """Close positions of consecutive grid ends (C of `end - 1 + shift`): int64, shape (ends, 3).

    `reads`: columns of a record that its window's close depends on, beside the end.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    grid: EndGrid
    first: int
    positions: np.ndarray
    _arrays: dict[str, Column] | None = None

    def at(self, end: Column, frame: DataFrame) -> PositionColumns:
        """The close position of each `end`; ends outside the arrays give null."""
        return self.at_index((self.grid.index(end) - F.lit(self.first)).cast("int"), frame)

    def at_index(self, index: Column, frame: DataFrame) -> PositionColumns:
        """The close position of the end number `first + index`: an array look-up, no join."""
        if self._arrays is None:
            self._arrays = _by_part(frame, self.positions)
        return PositionColumns(*(F.get(self._arrays[name], index) for name in _PARTS))

    @cached_property
    def least_delay(self) -> int | None:
        """The least processing time (ms) from a window end to its close; None: no useful bound."""
        ends = self.grid.ends(self.first, len(self.positions))
        if not len(ends) or ends[0] < -_FAR or ends[-1] > _FAR:
            return None
        least = int((self.positions[:, 0].clip(-4 * _FAR, 4 * _FAR) - ends).min())
        return least if abs(least) < 2 * _FAR else None


@dataclass
class PartitionCloseArrays(CloseArrays):
    """Close positions of consecutive grid ends, for each partition its own.

    `positions` are those of the slowest partition. `by_partition`: int64, shape (rows, ends, 3); `rows` says which row
    a partition has.
    """

    reads: ClassVar[tuple[str, ...]] = (PARTITION,)
    rows: Mapping[int, int] = field(default_factory=dict[int, int])
    by_partition: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 3), dtype=np.int64))

    def at_index(self, index: Column, frame: DataFrame) -> PositionColumns:
        """The close position of the end number `first + index` in the record's own partition (`rw_partition`)."""
        if self._arrays is None:
            self._arrays = _by_part(frame, self.by_partition.reshape(-1, 3))
        count = self.by_partition.shape[1]
        pairs = [F.lit(v) for partition, row in self.rows.items() for v in (partition, row * count)]
        place = F.create_map(*pairs)[F.col(PARTITION)] + index
        inside = F.when((index >= 0) & (index < F.lit(count)), place).cast("int")
        return PositionColumns(*(F.get(self._arrays[name], inside) for name in _PARTS))

    @cached_property
    def least_delay(self) -> int | None:
        """The least processing time (ms) from a window end to its close in any partition; None: no useful bound."""
        delays = (CloseArrays(self.grid, self.first, positions).least_delay for positions in self.by_partition)
        known = [delay for delay in delays if delay is not None]
        return min(known) if len(known) == len(self.by_partition) and known else None


def _by_part(frame: DataFrame, positions: np.ndarray) -> dict[str, Column]:
    return long_arrays(frame, {name: positions[:, i] for i, name in enumerate(_PARTS)})


@dataclass(frozen=True)
class Timeline:
    """A timeline, and what else became known with it.

    Attributes:
        table: The rows: in the driver's memory where they are few, else in Spark.
        thresholds: The values for which the rows are exact.
        flushes: Whether the end of input reaches the windows; a stream that is idle then is not flushed (rule 15).
        state: What a later run needs to continue from here, as values that JSON can hold.
        watermark_below: The watermark has passed no threshold above this (epoch ms).
        note: How the timeline was made, for people; empty for the usual way.
        idle: When partitions were idle, see `spark_jobs.replay.flink.idleness`; None without an idleness timeout.
    """

    table: DataFrame | InMemoryTimeline
    thresholds: Thresholds
    flushes: bool
    state: dict[str, Any]
    watermark_below: int
    note: str = ""
    idle: dict[str, Any] | None = None

    def to_document(self) -> dict[str, Any]:
        """All but the table, and of the thresholds their step, as values that JSON can hold; `restored` reads it."""
        return {
            "flushes": self.flushes,
            "state": self.state,
            "watermark_below": self.watermark_below,
            "note": self.note,
            "idle": self.idle,
            "step": self.thresholds.step,
        }

    @classmethod
    def restored(
        cls, document: Mapping[str, Any], table: DataFrame | InMemoryTimeline, thresholds: Thresholds
    ) -> Timeline:
        """The timeline that wrote `document` with `to_document`, for these thresholds."""
        known = {name: value for name, value in document.items() if name != "step"}
        return cls(table=table, thresholds=thresholds, **known)

    def rows(self, spark: SparkSession) -> DataFrame:
        """The rows in Spark, wherever they are."""
        return self.table.frame(spark) if isinstance(self.table, InMemoryTimeline) else self.table

    @cached_property
    def steps(self) -> InMemoryTimeline | None:
        """All rows, when they are few enough for memory."""
        if isinstance(self.table, InMemoryTimeline):
            return self.table
        table = self.table.limit(MAX_IN_MEMORY + 1).toArrow()
        return None if table.num_rows > MAX_IN_MEMORY else InMemoryTimeline.of_table(table)

    @property
    def never_from(self) -> int:
        """The first value that the watermark has not passed (epoch ms)."""
        if isinstance(self.table, InMemoryTimeline):
            return self.table.never_from
        return self.table.where(F.col("arrival") == F.lit(NEVER)).agg(F.min("x_from")).collect()[0][0]

    def after(self, earlier: InMemoryTimeline) -> Timeline:
        """The closes of an `earlier` run's steps, and this timeline from there on.

        The earlier watermark alone is not enough: the tick at which it is emitted may have come after that run's end.
        """
        if self.steps is not None:
            return replace(self, table=earlier.followed_by(self.steps))
        first = earlier.never_from
        mine = _in_spark(self.table).withColumn("x_from", F.greatest("x_from", F.lit(first)))
        return replace(self, table=earlier.below(first).frame(mine.sparkSession).unionByName(mine))

    def close_arrays(self, grid: EndGrid, first: int, count: int, shift: int = 0) -> CloseArrays:
        """C(end - 1 + shift) of `count` grid ends from number `first` on.

        Only the rows of this slice come to the driver, at most one a grid end and threshold.
        """
        x = grid.closes(first, count)
        x = np.full(count, MAX_TIMESTAMP, dtype=np.int64) if shift == MAX_TIMESTAMP else x + shift
        steps = self.steps or _slice(_in_spark(self.table), grid, x, shift)
        if not steps.by_partition:
            return CloseArrays(grid, first, steps.at(x))
        by_partition = np.stack([own.at(x) for own in steps.by_partition.values()])
        rows = {partition: row for row, partition in enumerate(steps.by_partition)}
        return PartitionCloseArrays(grid, first, steps.at(x), rows=rows, by_partition=by_partition)


def _in_spark(table: DataFrame | InMemoryTimeline) -> DataFrame:
    if isinstance(table, InMemoryTimeline):
        raise TypeError("the timeline is in memory")
    return table


def _slice(rows: DataFrame, grid: EndGrid, x: np.ndarray, shift: int) -> InMemoryTimeline:
    low, high = int(x[0]), int(x[-1])
    position = PositionColumns(F.col("arrival"), F.col("major"), F.col("minor")).as_struct()
    carried = (
        rows.where(F.col("x_from") <= low).agg(F.max(position).alias("p")).select(F.lit(low).alias("x_from"), "p.*")
    )
    # Of the rows between two points that are looked up, only the largest position counts.
    cell = F.lit(0) if shift == MAX_TIMESTAMP else grid.floor(F.col("x_from") - F.lit(shift))
    inside = (
        rows.where((F.col("x_from") > low) & (F.col("x_from") <= high))
        .groupBy(cell.alias("cell"))
        .agg(F.max("x_from").alias("x_from"), F.max(position).alias("p"))
        .select("x_from", "p.*")
    )
    return InMemoryTimeline.of_table(carried.unionByName(inside).toArrow())
