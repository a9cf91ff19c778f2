"""The timeline with idleness, from aggregates: no record goes through Python but where a status changes.

1. One aggregation by (partition, threshold) gives the first record that reaches each, as without idleness; one by
   (partition, cell of arrival) tells when partitions are idle (`spark_jobs.replay.flink.thinning`).
2. The driver combines them (`spark_jobs.replay.flink.combine`); it gets the records of those cells in which a status
   changes, and only those that raise a maximum. Where a status waits for a value, further cells may be needed: another
   round. Of a history of more cells than fit the driver, neighbours without a change are joined.
3. Between, the watermark is a minimum of maxima: each generator's steps count in the stretches in which it is active.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import RecordTime
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import ARRIVAL, MARKER, NEVER, OFFSET, PARTITION, SEQUENCE, record_position
from spark_jobs.replay.flink.combine import Combination, Combiner, Raise, combined
from spark_jobs.replay.flink.inversion import first_reached, followed_time, with_closes
from spark_jobs.replay.flink.thinning import Activity, ArrivalCells, Cells, JoinedCells, Silences
from spark_jobs.replay.grid import divided
from spark_jobs.replay.in_memory_timeline import MAX_IN_MEMORY, SCHEMA, InMemoryTimeline
from spark_jobs.replay.range_lookup import joined_to_ranges
from spark_jobs.replay.timeline import Thresholds, Timeline
from spark_jobs.spark.cached import CachedFrames
from spark_jobs.spark.parallel import run_parallel

FEW_CELLS = 100_000
"""Above about this many rows (a partition and a cell of arrival each) cells are made no narrower."""

MAX_CELLS = 200_000
"""The most such rows, about, that come to the driver; with more, cells are joined."""

MAX_ROWS = 2_000_000
"""The most such rows with joined cells, among which those with changes stay single."""

MAX_RAISES = 2_000_000
"""The most records that the driver looks at one by one."""

CELL, _COUNTS = "rw_cell_of_arrival", "rw_counts"
"""Columns beside a record's own: the number of its cell, and whether it can change something."""
_MAX_RANGES = 50
_CLOSES = ("close_arrival", "close_major", "close_minor")
_STEPS = pa.schema([(name, pa.int64()) for name in ("x_from", "arrival", "major", "minor")])


class TooManyChangesError(Exception):
    """Statuses change so often that the records had better be simulated one by one."""


def is_thinnable(strategy: WatermarkStrategy) -> bool:
    """Whether the generators follow a maximum, or the clock: then aggregates tell all there is to know."""
    return (
        strategy.interval > 0
        and strategy.idleness is not None
        and (strategy.running_maximum is not None or strategy.follows_the_clock)
    )


class ThinnedHistory:
    """One history, and what its generators made of it; a timeline for any thresholds.

    Args:
        records: The canonical records; with `state` those that came after that run.
        begins: No record arrives before (epoch ms), as far as is known; a guess, to choose a way.
        state: An earlier run's `Timeline.state`.
    """

    def __init__(
        self,
        records: DataFrame,
        strategy: WatermarkStrategy,
        *,
        begins: int,
        processing_time_end: int,
        cache: CachedFrames,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self.records = records
        self._job = strategy
        self.strategy = strategy = self._followed(strategy)
        self._until = processing_time_end
        self._cache = cache
        self._state = state
        self._source_state = None if state is None else state["source"]
        next_tick = strategy.timer_start + strategy.interval
        self._next_tick = next_tick if self._source_state is None else self._source_state["next_tick"]
        self._generator_of = {p: index for index, group in enumerate(strategy.generators) for p in group}
        self._begins = begins

    def _followed(self, strategy: WatermarkStrategy) -> WatermarkStrategy:
        """The strategy that makes the same timeline of what `_firsts` and `_raises` look at."""
        return strategy

    @cached_property
    def _grid(self) -> ArrivalCells:
        """Narrow cells, while they are few: then few records lie in those in which a status changes."""
        if self._since > self._until:  # event times are ahead of arrivals, so nobody knows when records began to come
            return ArrivalCells.of_strategy(self.strategy, self._until, self._next_tick)
        ticks = self._cells_between(self._since, self._until, self.strategy.interval) // FEW_CELLS + 1
        return ArrivalCells.of_strategy(self.strategy, self._until, self._next_tick, ticks)

    @property
    def _since(self) -> int:
        """No record arrives before (epoch ms), as far as is known: event times are seldom ahead of arrivals."""
        return self._begins if self._state is None else max(self._begins, self._next_tick - self.strategy.interval)

    @property
    def _fits(self) -> bool:
        """Whether the cells surely fit the driver's memory."""
        return self._cells_between(self._since, self._until, self._grid.width) <= MAX_CELLS

    def _cells_between(self, first: int, last: int, width: int) -> int:
        """About how many cells of partitions lie between two arrivals (epoch ms)."""
        return ((last - first) // width + 2) * max(1, len(self.strategy.partitions))

    def timeline(self, thresholds: Thresholds, *, fits_in_memory: bool) -> Timeline:
        """The timeline of these thresholds. Raises TooManyChangesError."""
        firsts = self._firsts(thresholds)
        if fits_in_memory:
            table, combination = run_parallel(self.records.sparkSession, firsts.toArrow, lambda: self.combination)
            few = True
        else:
            firsts = self._cache.keep(firsts)
            table = firsts.limit(MAX_IN_MEMORY + 1).toArrow()
            few, combination = table.num_rows <= MAX_IN_MEMORY, self.combination
        exact = np.array(combination.rows, dtype=np.int64)
        if few:
            steps = InMemoryTimeline.of_table(_table(np.concatenate((exact, *self._steps(table, combination)))))
        else:
            steps = self._cache.keep(self._steps_in_spark(firsts, combination, exact))
        return Timeline(
            steps,
            thresholds,
            flushes=combination.flushes,
            state={
                "kind": "simulation",
                "source": combination.snapshot,
                "processing_time_end": self._until,
                "last": self._last,
            },
            watermark_below=combination.watermark,
            note=self._note,
            idle=None if self.strategy.idleness is None else combination.idle,
        )

    @cached_property
    def combination(self) -> Combination:
        """What the source made of the generators; it holds for all thresholds."""
        first, seen = self._first_seen
        looked_at = 0

        def combiner_of(cells: Cells) -> Combiner:
            activities = self._activities(seen if cells is first else self._seen_in(cells))
            return Combiner(self.strategy, activities, cells, self._source_state, self._until, self._silences)

        def raises_in(numbers: set[int]) -> dict[int, list[Raise]]:
            nonlocal looked_at
            raises = self._raises(numbers)
            looked_at += sum(map(len, raises.values()))
            if looked_at > MAX_RAISES:
                raise TooManyChangesError
            return raises

        combination, self._exact = combined(first, combiner_of, raises_in, MAX_CELLS)
        return combination

    @property
    def _silences(self) -> list[Silences] | None:
        """When partitions are idle, if that is not to be told from the cells."""
        return None

    @property
    def _note(self) -> str:
        changes = f"{self._exact} of {self._grid.last + 1} cells of arrival record by record" if self._exact else ""
        return f"idle times from aggregates, {changes}" if changes else ""

    @cached_property
    def _first_seen(self) -> tuple[Cells, pa.Table]:
        """The cells to begin with, and what is in them."""
        if self._fits or self._between_silences.limit(MAX_CELLS + 1).count() <= MAX_CELLS:
            return self._grid, self._seen_in(self._grid)
        low, high = self._between_silences.agg(F.min("first"), F.max("first")).collect()[0]
        cells = self._joined(low, high)
        return cells, self._seen_in(cells)

    def _joined(self, low: int, high: int) -> JoinedCells:
        """Cells of even length, few enough for the driver, of a history with these arrivals (epoch ms)."""
        together = self._cells_between(low, high, self._grid.width) // MAX_CELLS + 1
        return JoinedCells.evenly(self._grid, together, min(low, self._next_tick - self.strategy.interval))

    def _seen_in(self, cells: Cells) -> pa.Table:
        """`partition, first, last, top, marker, minor`: records by partition and cell. Raises TooManyChangesError.

        In joined cells a partition has a row for each time in which it surely is not idle: see `Activity`.
        """
        found = self._cells_of_partitions if self._fits else self._between_silences.drop("silences")
        if isinstance(cells, JoinedCells):
            values = [F.min(name).alias(name) for name in ("first", *self._marker_column)]
            values += [F.max(name).alias(name) for name in ("last", "top", "minor")]
            placed = self._in_joined(self._between_silences, F.col("first"), cells)
            found = placed.groupBy("partition", "cell", "silences").agg(*values).drop("cell", "silences")
        table = found.limit(MAX_ROWS + 1).toArrow()
        if table.num_rows > MAX_ROWS:
            raise TooManyChangesError
        return table

    def _in_joined(self, rows: DataFrame, arrival: Column, cells: JoinedCells) -> DataFrame:
        """The rows with their `cell`."""
        ends = np.append(cells.begins[1:], cells.begins[-1] + 1)
        payload = {"cell": np.arange(len(cells.begins), dtype=np.int64)}
        return joined_to_ranges(rows, self._grid_number(arrival), cells.begins, ends, payload)

    def _grid_number(self, arrival: Column) -> Column:
        """The number of the grid's cell of an arrival."""
        return divided(self._grid_begin(arrival), self._grid.width)

    def _grid_begin(self, arrival: Column) -> Column:
        """Where that cell begins: ms since the grid's start, a multiple of its width for the last cell too."""
        grid = self._grid
        since = arrival - F.lit(grid.start)
        begin = since - F.pmod(since, F.lit(grid.width))
        return F.when(arrival >= F.lit(grid.last_tick), F.lit(grid.last * grid.width)).otherwise(begin)

    @cached_property
    def _cells_of_partitions(self) -> DataFrame:
        """One row a partition and cell: one narrow hash aggregation, with one key where that is enough."""
        strategy = self.strategy
        maximum = strategy.running_maximum
        top = F.max(self._time) if maximum is None or maximum.time is not RecordTime.ARRIVAL else F.max(ARRIVAL)
        ordering = SEQUENCE if SEQUENCE in self.records.columns else OFFSET
        values = [
            F.min(ARRIVAL).alias("first"),
            F.max(ARRIVAL).alias("last"),
            F.coalesce(top, F.lit(MIN_TIMESTAMP)).alias("top"),
            F.max(ordering).alias("minor"),
        ]
        if self._has_markers:
            values.append(F.coalesce(F.min(F.when(F.col(MARKER), F.col(ARRIVAL))), F.lit(NEVER)).alias("marker"))
        begin, width = self._grid_begin(F.col(ARRIVAL)), self._grid.width
        numbers = strategy.partitions
        if min(numbers, default=-1) >= 0 and max(numbers) < width:
            registered = F.col(PARTITION).between(0, max(numbers))
            grouped = self.records.where(registered).groupBy((begin + F.col(PARTITION)).alias("key")).agg(*values)
            partition = F.pmod(F.col("key"), F.lit(width)).cast("int")
            found = grouped.select(partition.alias("partition"), "first", "last", "top", "minor", *self._marker_column)
        else:
            keys = F.col(PARTITION).alias("partition"), begin.alias("key")
            found = self.records.groupBy(*keys).agg(*values).drop("key")
        return found

    @property
    def _has_markers(self) -> bool:
        maximum = self.strategy.running_maximum
        return maximum is not None and maximum.time is RecordTime.EVENT_TIME_OF_MARKERS

    @property
    def _marker_column(self) -> list[str]:
        return ["marker"] if self._has_markers else []

    @cached_property
    def _between_silences(self) -> DataFrame:
        """The cells of each partition, with the number of `silences` before, in which it may have been idle."""
        strategy = self.strategy
        in_order = Window.partitionBy("partition").orderBy("first")
        silence = F.col("first") - F.lag("last").over(in_order)
        is_long = silence > F.lit((strategy.idleness or 0) + strategy.interval)
        before = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        rows = self._cells_of_partitions.withColumn("is_long", is_long)
        return self._cache.keep(rows.withColumn("silences", F.count_if("is_long").over(before)).drop("is_long"))

    def _activities(self, seen: pa.Table) -> list[Activity]:
        partition = seen.column("partition").to_numpy()
        columns = [seen.column(name).to_numpy() for name in ("first", "last", "top")]
        never = np.full(len(partition), NEVER, dtype=np.int64)
        columns.append(seen.column("marker").to_numpy() if self._has_markers else never)
        return [Activity.of(*(column[own] for column in columns)) for own in self._rows_by_generator(partition)]

    def _rows_by_generator(self, partition: np.ndarray) -> list[np.ndarray]:
        """The numbers of the rows that belong to each generator, given each row's partition."""
        generators = len(self.strategy.generators)
        if not self._generator_of:
            return [np.empty(0, dtype=np.int64)] * generators
        known = np.array(sorted(self._generator_of.items()), dtype=np.int64)
        at = np.minimum(np.searchsorted(known[:, 0], partition), len(known) - 1)
        generator = np.where(known[at, 0] == partition, known[at, 1], -1)
        order = np.argsort(generator, kind="stable")
        edges = np.searchsorted(generator[order], np.arange(generators + 1))
        return [order[edges[index] : edges[index + 1]] for index in range(generators)]

    @property
    def _last(self) -> tuple[int, int, int] | list[int] | None:
        """The position of the last record."""
        seen = self._first_seen[1]
        if not seen.num_rows:
            return None if self._state is None else self._state["last"]
        last, partition, minor = (seen.column(name).to_numpy() for name in ("last", "partition", "minor"))
        by_sequence = SEQUENCE in self.records.columns
        majors, minors = (minor, np.zeros_like(minor)) if by_sequence else (partition.astype(np.int64), minor)
        at = np.lexsort((minors, majors, last))[-1]
        return int(last[at]), int(majors[at]), int(minors[at])

    def _raises(self, numbers: set[int]) -> dict[int, list[Raise]]:
        """The records that raise their generator's maximum, or come after a silence; markers: all.

        Those in these of the grid's cells, by cell.
        """
        found: dict[int, list[Raise]] = defaultdict(list)
        if not numbers or self.strategy.follows_the_clock:
            return found
        records = self._rows_in_cells(self.records, numbers, F.col(ARRIVAL))
        columns = zip(("arrival", "major", "minor"), record_position(records).parts, strict=True)
        rows = records.withColumn(_COUNTS, self._can_raise(records)).where(_COUNTS).select(
            *(part.alias(name) for name, part in columns),
            F.col(PARTITION).alias("partition"),
            F.coalesce(self._time, F.lit(MIN_TIMESTAMP)).alias("time"),
            CELL,
        )  # fmt: skip
        table = rows.limit(MAX_RAISES + 1).toArrow()
        if table.num_rows > MAX_RAISES:
            raise TooManyChangesError
        arrays = [table.column(name).to_numpy() for name in ("arrival", "major", "minor", "partition", "time", CELL)]
        order = np.lexsort((arrays[2], arrays[1], arrays[0]))
        registered = self._generator_of
        for *values, number in zip(*(array[order].tolist() for array in arrays), strict=True):
            if values[3] in registered:
                found[number].append(Raise(*values))
        return found

    def that_count(self) -> DataFrame:
        """The records without which the watermark, or the times in which partitions are idle, would be others.

        Those that can raise their generator's maximum, and the first and the last of each generator and cell.
        """
        placed = self.records.withColumn(CELL, self._grid_number(F.col(ARRIVAL)))
        in_order = self._in_order(placed)
        is_edge = [~near(CELL).over(in_order).eqNullSafe(F.col(CELL)) for near in (F.lag, F.lead)]
        counts = self._can_raise(placed) | is_edge[0] | is_edge[1]
        return placed.withColumn(_COUNTS, counts).where(_COUNTS).drop(_COUNTS, CELL)

    def _can_raise(self, records: DataFrame) -> Column:
        """Whether a record raises its generator's maximum, or comes after a silence; of markers all."""
        if self._has_markers:
            return F.coalesce(F.col(MARKER), F.lit(False))
        in_order = self._in_order(records)
        time = F.coalesce(self._time, F.lit(MIN_TIMESTAMP))
        before = F.max(time).over(in_order.rowsBetween(Window.unboundedPreceding, -1))
        silence = F.col(ARRIVAL) - F.lag(ARRIVAL).over(in_order)
        after_a_silence = F.coalesce(silence > F.lit(self.strategy.idleness), F.lit(False))
        return before.isNull() | (time > before) | after_a_silence

    @property
    def _time(self) -> Column:
        """The time of a record that its generator follows; null where it follows none."""
        maximum = self.strategy.running_maximum
        return F.lit(None).cast("bigint") if maximum is None else followed_time(maximum.time)

    def _in_order(self, records: DataFrame) -> WindowSpec:
        """The records of each generator in position order."""
        generator = F.col(PARTITION)
        if self.strategy.scope is not WatermarkScope.PARTITION:
            pairs = [F.lit(v) for item in self._generator_of.items() for v in item]
            generator = F.create_map(*pairs)[generator]
        return Window.partitionBy(generator).orderBy(*record_position(records).parts)

    def _rows_in_cells(self, rows: DataFrame, numbers: set[int], arrival: Column) -> DataFrame:
        """The rows whose `arrival` lies in these of the grid's cells, with the cell's number as `CELL`.

        Few ranges of arrivals are named, so that files can leave out the rest.
        """
        ranges = list(_ranges(sorted(numbers)))
        if len(ranges) > _MAX_RANGES:
            found = np.array(sorted(numbers), dtype=np.int64)
            within = rows.where(self._between(arrival, ranges[0][0], ranges[-1][1]))
            placed = within.withColumn(CELL, self._grid_number(arrival))
            return joined_to_ranges(placed, F.col(CELL), found, found + 1, {})
        inside = reduce(or_, (self._between(arrival, first, end) for first, end in ranges))
        return rows.where(inside).withColumn(CELL, self._grid_number(arrival))

    def _between(self, arrival: Column, first: int, end: int) -> Column:
        """Whether an arrival lies in the grid's cells from number `first` on, before `end`."""
        begun = arrival >= F.lit(self._grid.begin(first))
        return begun & (arrival < F.lit(self._grid.begin(end))) if end <= self._grid.last else begun

    def _firsts(self, thresholds: Thresholds) -> DataFrame:
        """`partition, reached` and the position at which the partition's generator emits it; carried ones too."""
        if self.strategy.follows_the_clock:
            firsts = self._ticks_reached(thresholds)
        else:
            by_sequence = SEQUENCE in self.records.columns
            firsts = with_closes(
                first_reached(self.records, self.strategy, thresholds), self.strategy, self._until, by_sequence
            )
        return firsts.select("partition", "reached", *_CLOSES)

    def _ticks_reached(self, thresholds: Thresholds) -> DataFrame:
        """Each threshold that the clock reaches at a tick; for the first partition, in place of all."""
        interval, lag = self.strategy.interval, self.strategy.generator.tolerance
        ticks = self.records.sparkSession.range(self._next_tick, self._until + 1, interval)
        cell = thresholds.floor(F.col("id"), -lag).alias("cell")
        minus_one = F.lit(-1).cast("long")
        return (
            ticks.groupBy(cell)
            .agg(F.min("id").alias("close_arrival"))
            .select(
                F.lit(min(self.strategy.partitions, default=0)).alias("partition"),
                (F.col("cell") - F.lit(lag)).alias("reached"),
                "close_arrival",
                minus_one.alias("close_major"),
                minus_one.alias("close_minor"),
            )
        )

    def _carried(self) -> list[list[tuple[int, int, int, int]]]:
        """What each generator had reached before these records: `reached` and position."""
        generators = len(self.strategy.generators)
        if self._source_state is None:
            return [[] for _ in range(generators)]
        saved = [partial for subtask in self._source_state["subtasks"] for partial in subtask["partials"]]
        maximum = self.strategy.running_maximum
        found: list[list[tuple[int, int, int, int]]] = []
        for partial in saved:
            rows: list[tuple[int, int, int, int]] = []
            if partial["watermark"] > MIN_TIMESTAMP:
                rows.append((partial["watermark"], MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP))
            highest = partial["generator"].get("maximum") if maximum is not None else None
            if highest is not None and maximum is not None and self._next_tick <= self._until:
                rows.append((highest - maximum.delay, self._next_tick, -1, -1))
            found.append(rows)
        return found

    def _steps(self, firsts: pa.Table, combination: Combination) -> Iterator[np.ndarray]:
        """Timeline rows of each generator where it counts: int64 of shape (n, 4)."""
        partition, reached = firsts.column("partition").to_numpy(), firsts.column("reached").to_numpy()
        closes = np.stack([firsts.column(name).to_numpy() for name in _CLOSES], axis=1)
        if self.strategy.follows_the_clock:
            rows = [np.arange(len(reached))] * len(self.strategy.generators)
        else:
            rows = self._rows_by_generator(partition)
        for index, (own, carried) in enumerate(zip(rows, self._carried(), strict=True)):
            yield _generator_steps(reached[own], closes[own], index, carried, combination)

    def _steps_in_spark(self, firsts: DataFrame, combination: Combination, exact: np.ndarray) -> DataFrame:
        """The timeline's steps for timelines of any size: each generator runs in a task of its own."""
        spark = firsts.sparkSession
        carried = self._carried()
        everyone = range(len(self.strategy.generators)) if self.strategy.follows_the_clock else None

        def of_generator(table: pa.Table) -> pa.Table:
            reached = table.column("reached").to_numpy()
            closes = np.stack([table.column(name).to_numpy() for name in _CLOSES], axis=1)
            indexes = everyone or [table.column("generator")[0].as_py()]
            steps = [_generator_steps(reached, closes, index, carried[index], combination) for index in indexes]
            return _table(np.concatenate(steps))

        pairs = [F.lit(v) for item in self._generator_of.items() for v in item]
        numbered = firsts.withColumn("generator", F.create_map(*pairs)[F.col("partition")])
        steps = numbered.where("generator IS NOT NULL").groupBy("generator").applyInArrow(of_generator, SCHEMA)
        position = F.struct("arrival", "major", "minor")
        rows = steps.unionByName(InMemoryTimeline.of_table(_table(exact)).frame(spark))
        return rows.groupBy("x_from").agg(F.max(position).alias("p")).select("x_from", "p.*")


def _generator_steps(
    reached: np.ndarray,
    closes: np.ndarray,
    generator: int,
    carried: Sequence[tuple[int, int, int, int]],
    combination: Combination,
) -> np.ndarray:
    before = np.array(carried, dtype=np.int64).reshape(-1, 4)
    mine = combination.stretches.of(generator)
    x_from, positions = steps_in_stretches(
        np.concatenate((before[:, 0], reached)), np.concatenate((before[:, 1:], closes)), *mine
    )
    return np.column_stack((x_from, positions))


def _table(rows: np.ndarray) -> pa.Table:
    return pa.Table.from_arrays([pa.array(np.ascontiguousarray(rows[:, i])) for i in range(4)], schema=_STEPS)


def _ranges(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Consecutive numbers as half-open ranges."""
    for _, run in itertools.groupby(enumerate(numbers), lambda item: item[1] - item[0]):
        together = [number for _, number in run]
        yield together[0], together[-1] + 1


def steps_in_stretches(
    reached: np.ndarray, closes: np.ndarray, low: np.ndarray, high: np.ndarray, until: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Timeline rows of one generator: `x_from`, and positions of shape (n, 3).

    `reached` and `closes`: thresholds and the positions (arrival, major, minor) at which they were reached, any order,
    several for one threshold. `low`, `high` and `until`: its stretches, ascending (`combine.Stretches`).
    """
    if not len(reached) or not len(low):
        return np.empty(0, dtype=np.int64), np.empty((0, 3), dtype=np.int64)
    by_position = np.lexsort((closes[:, 2], closes[:, 1], closes[:, 0]))
    rank = np.empty(len(reached), dtype=np.int64)
    rank[by_position] = np.arange(len(reached))
    order = np.argsort(reached, kind="stable")
    thresholds, at = np.unique(reached[order], return_index=True)
    earliest = np.minimum.accumulate(rank[order][::-1])[::-1][at]
    x_from = np.concatenate(([MIN_TIMESTAMP], thresholds[:-1] + 1))
    begin = np.searchsorted(x_from, low, side="right") - 1
    count = np.searchsorted(x_from, high, side="right") - begin
    stretch = np.repeat(np.arange(len(low)), count)
    step = np.arange(len(stretch)) - np.repeat(np.cumsum(count) - count, count) + begin[stretch]
    positions = closes[by_position[earliest[step]]]
    # A step that begins in the stretch and is reached after it holds no threshold of the stretch.
    arrival, end = positions[:, 0], until[stretch]
    inside = (arrival < end) | ((arrival == end) & ((positions[:, 1] < 0) | (end == NEVER)))
    return np.maximum(x_from[step], low[stretch])[inside], positions[inside]
