"""The timeline of generators that look at every record, from what each one has emitted.

From there on it is made as that of a maximum: what a generator has raised takes the place of its records.

What each one emits is found by one task a generator, in offset order over Arrow batches.

`average_of_last`, `interleaved`, `advance_after_wait` and custom generators cannot be told from aggregates. But each
sees its own records alone. So each runs in a source of its own, side by side, with the sequential core's own rules.
What comes out are the watermarks that it raises, and when its partition becomes idle or active.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.generators import Event, WatermarkGenerator, WatermarkOutput
from spark_jobs.eventtime.flink.signals import PartitionStatusChanged, Signal, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import Custom
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import EVENT_TIME, MARKER, NEVER, PARTITION, STREAM, record_position
from spark_jobs.replay.flink.batched import BatchedGenerator, Records, Rows, holder_of
from spark_jobs.replay.flink.combine import Combination, Raise, Stretches
from spark_jobs.replay.flink.idleness import IdleSpans
from spark_jobs.replay.flink.thinned import CELL, MAX_CELLS, MAX_RAISES, ThinnedHistory, TooManyChangesError
from spark_jobs.replay.flink.thinning import Activity, Cells, JoinedCells, Silences
from spark_jobs.replay.timeline import Thresholds

TRACE = "generator INT, arrival BIGINT, major BIGINT, minor BIGINT, watermark BIGINT, idle BOOLEAN, state STRING"
_ARROW = pa.schema(
    [
        ("generator", pa.int32()),
        *((name, pa.int64()) for name in ("arrival", "major", "minor", "watermark")),
        ("idle", pa.bool_()),
        ("state", pa.string()),
    ]
)


class Replayed:
    """A generator that emits what another one has emitted: a record's at once, what came at a tick at the next tick."""

    def __init__(self) -> None:
        self._at_tick: int | None = None

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        if event.marker:
            output.emit_watermark(event.timestamp)
        else:
            self._at_tick = event.timestamp

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        if self._at_tick is not None:
            output.emit_watermark(self._at_tick)
            self._at_tick = None

    def snapshot(self) -> dict[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


@dataclass(frozen=True, slots=True)
class ReplayedTrace(Custom):
    """The supplier of `Replayed`."""

    moves_without_records = False

    def create_generator(self, *, per_event: bool, interval: int) -> WatermarkGenerator:
        return Replayed()


def traced_strategy(strategy: WatermarkStrategy) -> WatermarkStrategy:
    """The job over traces: each generator with one partition, whose number is `generator_number`."""
    if strategy.inputs:
        return WatermarkStrategy.of_union([traced_strategy(one) for one in strategy.inputs])
    generator = ReplayedTrace("")
    if strategy.scope is WatermarkScope.PARTITION:
        return replace(strategy, generator=generator)
    numbers = tuple(generator_number(strategy, index) for index in range(len(strategy.generators)))
    return replace(strategy, generator=generator, partitions=numbers, subtasks=tuple((number,) for number in numbers))


def generator_number(strategy: WatermarkStrategy, index: int) -> int:
    """The partition that stands for a generator: its first one; below zero where it has none."""
    group = strategy.generators[index]
    return group[0] if group else -1 - index


def traces(
    records: DataFrame, strategy: WatermarkStrategy, processing_time_end: int, state: Mapping[str, Any] | None
) -> DataFrame:
    """Rows of `TRACE`: where each generator raised its watermark, or its partition became idle or active.

    `major` is -1 at a tick. The last row of each generator has its `partial` (of a source's snapshot) and the
    position of its `last` record as JSON, and `NEVER` as its own position.
    """
    generators = strategy.generators
    position = record_position(records)
    generator_of = {p: index for index, group in enumerate(generators) for p in group}
    pairs = [F.lit(value) for item in generator_of.items() for value in item]
    generator = (F.create_map(*pairs)[F.col(PARTITION)] if pairs else F.lit(None)).cast("int")
    rows = records.select(
        generator.alias("generator"),
        *(part.alias(name) for name, part in zip(("arrival", "major", "minor"), position.parts, strict=True)),
        F.coalesce(F.col(EVENT_TIME), F.lit(MIN_TIMESTAMP)).alias("ts"),
        _or_null(records, MARKER, "boolean").alias("marker"),
        _or_null(records, STREAM, "string").alias("stream"),
    ).where("generator IS NOT NULL")
    ends = records.sparkSession.createDataFrame(
        [(index, NEVER, NEVER, NEVER, NEVER, None, None) for index in range(len(generators))], rows.schema
    )
    run = partial(
        _run, strategy=strategy, until=processing_time_end, state=json.dumps(state) if state is not None else None
    )
    together = rows.unionByName(ends).repartition(max(1, len(generators)), "generator")
    # Spark sorts by the first column alone where it can: so it is one that differs.
    return together.sortWithinPartitions("arrival", "major", "minor").mapInArrow(run, TRACE)


def _or_null(records: DataFrame, name: str, kind: str) -> Column:
    return F.col(name) if name in records.columns else F.lit(None).cast(kind)


def _run(
    batches: Iterable[pa.RecordBatch], *, strategy: WatermarkStrategy, until: int, state: str | None
) -> Iterator[pa.RecordBatch]:
    saved = None if state is None else json.loads(state)
    running: dict[int, _Traced] = {}
    for batch in batches:
        numbers = batch.column("generator").to_numpy()
        for index in np.unique(numbers).tolist():
            traced = running.get(index) or running.setdefault(index, _traced(index, strategy, saved))
            part = batch.filter(pa.array(numbers == index))
            at_end = part.column("arrival")[-1].as_py() == NEVER
            if records := part.num_rows - at_end:
                yield traced.process(part.slice(0, records))
            if at_end:
                yield traced.end(until)


def _traced(index: int, strategy: WatermarkStrategy, state: Mapping[str, Any] | None) -> _Traced:
    own = strategy.of_generators[index]
    partial = state and [partial for subtask in state["subtasks"] for partial in subtask["partials"]][index]
    holder = holder_of(own)
    if holder is None:
        return _OneByOne(index, own, partial, state)
    first = own.timer_start + own.interval if own.interval else MAX_TIMESTAMP
    next_tick = first if state is None else state["next_tick"]
    return _InBatches(index, BatchedGenerator(holder, own, next_tick, partial))


class _Traced(Protocol):
    """One generator of the job; `index`: its number."""

    index: int

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Records, and the ticks before them."""
        ...

    def end(self, until: int) -> pa.RecordBatch:
        """The end of processing time (epoch ms)."""
        ...


class _InBatches:
    """A generator over arrays."""

    def __init__(self, index: int, generator: BatchedGenerator) -> None:
        self.index, self._generator = index, generator
        self._last: tuple[int, int, int] | None = None

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrival, major, minor, timestamp = (
            batch.column(name).to_numpy() for name in ("arrival", "major", "minor", "ts")
        )
        stream = batch.column("stream").fill_null("None").to_numpy(zero_copy_only=False)
        self._last = (int(arrival[-1]), int(major[-1]), int(minor[-1]))
        return self._batch(self._generator.process(Records(timestamp, arrival, major, minor, stream)))

    def end(self, until: int) -> pa.RecordBatch:
        rows = pa.Table.from_batches([self._batch(self._generator.end(until))])
        ended = _batch([_ended(self.index, self._generator.partial, self._last)])
        return pa.Table.from_batches([*rows.to_batches(), ended]).combine_chunks().to_batches()[0]

    def _batch(self, rows: Rows) -> pa.RecordBatch:
        count = len(rows.arrival)
        idle = pa.array(rows.idle == 1, mask=rows.idle < 0)
        numbers = [pa.array(column, pa.int64()) for column in rows[:4]]
        index = pa.array(np.full(count, self.index), pa.int32())
        return pa.RecordBatch.from_arrays([index, *numbers, idle, pa.nulls(count, pa.string())], schema=_ARROW)


def _ended(index: int, partial: Mapping[str, Any], last: tuple[int, int, int] | None) -> tuple[Any, ...]:
    return (index, NEVER, NEVER, NEVER, None, None, json.dumps({"partial": partial, "last": last}))


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_ARROW)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


class _OneByOne:
    """One generator in a source of its own, with one partition."""

    def __init__(
        self, index: int, own: WatermarkStrategy, partial: Mapping[str, Any] | None, state: Mapping[str, Any] | None
    ) -> None:
        self.index = index
        self._rows: list[tuple[Any, ...]] = []
        self._last: tuple[int, int, int] | None = None
        self._source = Source(replace(own, partitions=(0,), subtasks=((0,),), scope=WatermarkScope.PARTITION))
        if state is not None and partial is not None:
            watermark, idle = partial["watermark"], partial["idle"]
            self._source.restore(
                {
                    "subtasks": [{"combined": watermark, "idle": idle, "partials": [partial]}],
                    "valve": {
                        "channels": [{"watermark": watermark, "active": not idle, "aligned": not idle}],
                        "last_watermark": watermark,
                        "idle": idle,
                    },
                    "next_tick": state["next_tick"],
                }
            )

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = (column.to_pylist() for column in batch.columns[1:])
        for arrival, major, minor, timestamp, marker, stream in zip(*columns, strict=True):
            self._ticks(arrival)
            event = Event(timestamp, arrival, bool(marker), stream)
            self._note(self._source.on_event(0, event), arrival, major, minor)
            self._last = (arrival, major, minor)
        return self._taken()

    def end(self, until: int) -> pa.RecordBatch:
        self._ticks(until)
        partial = self._source.snapshot()["subtasks"][0]["partials"][0]
        self._rows.append(_ended(self.index, partial, self._last))
        return self._taken()

    def _taken(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, []
        return _batch(rows)

    def _ticks(self, until: int) -> None:
        for tick in self._source.ticks(until):
            self._note(tick.signals, tick.time, -1, -1)

    def _note(self, signals: Iterable[Signal], arrival: int, major: int, minor: int) -> None:
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                self._rows.append((self.index, arrival, major, minor, signal.watermark, None, None))
            elif isinstance(signal, PartitionStatusChanged):
                watermark = self._source.partition_watermarks[0]
                self._rows.append((self.index, arrival, major, minor, watermark, signal.idle, None))


_NEAR = 2**40


def _seen_at() -> Column:
    """The arrival that tells a row's cell: a row of a tick belongs to the cell that the tick ends."""
    return F.when(F.col("major") < 0, F.col("arrival") - 1).otherwise(F.col("arrival"))


class TracedHistory(ThinnedHistory):
    """One history, and what its generators emitted; a timeline for any thresholds."""

    def _followed(self, strategy: WatermarkStrategy) -> WatermarkStrategy:
        return traced_strategy(strategy)

    @cached_property
    def _trace(self) -> DataFrame:
        return self._cache.keep(traces(self.records, self._job, self._until, self._source_state))

    def that_count(self) -> DataFrame:
        """All records: the generators look at every one."""
        return self.records

    @property
    def _has_statuses(self) -> bool:
        return self._job.idleness is not None and self._job.interval > 0

    @cached_property
    def _ended(self) -> list[dict[str, Any]]:
        """The `partial` and the `last` position of each generator at the end."""
        rows = self._trace.where("state IS NOT NULL").select("generator", "state").collect()
        return [json.loads(row["state"]) for row in sorted(rows, key=lambda row: row["generator"])]

    @property
    def _last(self) -> Sequence[int] | None:
        lasts = [tuple(ended["last"]) for ended in self._ended if ended["last"] is not None]
        carried = None if self._state is None else self._state["last"]
        return max(lasts, default=carried)

    @property
    def _note(self) -> str:
        return "each generator over its own records, in offset order"

    @cached_property
    def combination(self) -> Combination:
        combination = super().combination if self._has_statuses else self._without_statuses()
        snapshot = combination.snapshot
        ended = iter(self._ended)
        for subtask in snapshot["subtasks"]:
            subtask["partials"] = [next(ended)["partial"] for _ in subtask["partials"]]
        return combination

    def _without_statuses(self) -> Combination:
        """One stretch: all generators count, always."""
        source = Source(self.strategy)
        if self._source_state is not None:
            source.restore(dict(self._source_state))
        before = source.watermark
        low = MIN_TIMESTAMP if before == MIN_TIMESTAMP else before + 1
        for index, ended in enumerate(self._ended):
            watermark = ended["partial"]["watermark"]
            source.on_event(generator_number(self._job, index), Event(watermark, 0, True))
        high = source.watermark
        count = len(self._ended) if high >= low and high > MIN_TIMESTAMP else 0
        rows: list[tuple[int, int, int, int]] = []
        if self._source_state is not None:
            rows.append((MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP))
        rows.append((min(MIN_TIMESTAMP if high == MIN_TIMESTAMP else high + 1, MAX_TIMESTAMP), NEVER, NEVER, NEVER))
        snapshot = source.snapshot()
        snapshot["next_tick"] = self._tick_after_the_end()
        stretches = Stretches(np.arange(count), *(np.full(count, value) for value in (low, high, NEVER)))
        return Combination(rows, stretches, high, snapshot, True, IdleSpans().summary(self._until))

    def _tick_after_the_end(self) -> int:
        start, interval = self.strategy.timer_start, self.strategy.interval
        if not interval:
            return MAX_TIMESTAMP
        return max(self._next_tick, start + (max(self._until - start, 0) // interval + 1) * interval)

    @cached_property
    def _raised(self) -> DataFrame:
        return self._trace.where("watermark IS NOT NULL").withColumn("seen_at", _seen_at())

    @cached_property
    def _first_seen(self) -> tuple[Cells, pa.Table]:
        low, high = self._raised.agg(F.min("seen_at"), F.max("seen_at")).collect()[0]
        cells: Cells = self._grid
        if low is not None and self._cells_between(low, high, self._grid.width) > MAX_CELLS:
            cells = self._joined(low, high)
        return cells, self._seen_in(cells)

    def _seen_in(self, cells: Cells) -> pa.Table:
        """`generator, first, last, top` of what was raised, by cell."""
        seen_at = F.col("seen_at")
        if isinstance(cells, JoinedCells):
            placed = self._in_joined(self._raised, seen_at, cells)
        else:
            placed = self._raised.withColumn("cell", self._grid_number(seen_at))
        values = [F.min("seen_at").alias("first"), F.max("seen_at").alias("last"), F.max("watermark").alias("top")]
        return placed.groupBy("generator", "cell").agg(*values).drop("cell").toArrow()

    def _activities(self, seen: pa.Table) -> list[Activity]:
        generator = seen.column("generator").to_numpy()
        columns = [seen.column(name).to_numpy() for name in ("first", "last", "top")]
        never = np.full(len(generator), NEVER, dtype=np.int64)
        return [
            Activity.of(*(column[generator == index] for column in (*columns, never)))
            for index in range(len(self.strategy.generators))
        ]

    @cached_property
    def _silences(self) -> list[Silences]:
        """From the trace itself: the tick that noticed it, and what woke the partition."""
        rows = (
            self._trace.where("idle IS NOT NULL")
            .select("generator", "arrival", "major", "minor", "idle")
            .limit(MAX_RAISES + 1)
            .collect()
        )
        if len(rows) > MAX_RAISES:
            raise TooManyChangesError
        found: list[tuple[list[int], list[int], list[int]]] = [([], [], []) for _ in self.strategy.generators]
        for generator, arrival, major, _, idle in sorted(rows):
            begins, backs, awake = found[generator]
            if idle:
                begins.append(arrival)
                continue
            if len(begins) == len(backs):  # idle since an earlier run
                begins.append(MIN_TIMESTAMP + 1)
            seen_at = arrival if major >= 0 else arrival - 1
            backs.append(seen_at)
            awake.append(seen_at)
        silences = []
        for begins, backs, awake in found:
            backs += [NEVER] * (len(begins) - len(backs))
            silences.append(Silences(*(np.array(values, dtype=np.int64) for values in (begins, backs, awake))))
        return silences

    def _raises(self, numbers: set[int]) -> dict[int, list[Raise]]:
        found: dict[int, list[Raise]] = defaultdict(list)
        if not numbers:
            return found
        rows = self._raised.where("idle IS NULL OR NOT idle")
        rows = self._rows_in_cells(rows, numbers, F.col("seen_at")).select(
            "arrival", "major", "minor", "generator", "watermark", CELL
        )
        table = rows.limit(MAX_RAISES + 1).toArrow()
        if table.num_rows > MAX_RAISES:
            raise TooManyChangesError
        columns = [column.to_numpy() for column in table.columns]
        order = np.lexsort((columns[4], columns[2], columns[1], columns[0]))
        partition_of = [generator_number(self._job, index) for index in range(len(self.strategy.generators))]
        for row in zip(*(column[order].tolist() for column in columns), strict=True):
            arrival, major, minor, generator, watermark, number = row
            found[number].append(Raise(arrival, major, minor, partition_of[generator], watermark))
        return found

    def _firsts(self, thresholds: Thresholds) -> DataFrame:
        position = F.struct("arrival", "major", "minor")
        # Next to the least value there is, a floor would overflow; a finer one is always right.
        watermark = F.col("watermark")
        cell = F.when(watermark > F.lit(MIN_TIMESTAMP + _NEAR), thresholds.floor(watermark, 0)).otherwise(watermark)
        raised = self._trace.where("watermark IS NOT NULL AND idle IS NULL")
        firsts = raised.groupBy("generator", cell.alias("reached")).agg(F.min(position).alias("p"))
        return firsts.select(
            self._number().alias("partition"),
            "reached",
            *(F.col(f"p.{part}").alias(f"close_{part}") for part in ("arrival", "major", "minor")),
        )

    def _number(self) -> Column:
        numbers = [generator_number(self._job, index) for index in range(len(self.strategy.generators))]
        pairs = [F.lit(value) for item in enumerate(numbers) for value in item]
        return F.create_map(*pairs)[F.col("generator")] if pairs else F.lit(None).cast("int")
