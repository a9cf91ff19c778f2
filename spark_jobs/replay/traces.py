"""What each generator emits, where it looks at every record: one task a generator, in offset order over Arrow batches.

`average_of_last`, `interleaved`, `advance_after_wait` and custom generators cannot be told from aggregates. But each
sees its own records alone. So each runs in a source of its own, side by side, with the sequential core's own rules.
What comes out are the watermarks that it raises, and when its partition becomes idle or active.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.generators import Event, WatermarkGenerator, WatermarkOutput
from spark_jobs.eventtime.signals import PartitionStatusChanged, Signal, WatermarkEmitted
from spark_jobs.eventtime.source import Source
from spark_jobs.eventtime.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.suppliers import Custom
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import EVENT_TIME, MARKER, NEVER, PARTITION, STREAM, record_position

_BATCH = 65_536
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
    return together.sortWithinPartitions("generator", "arrival", "major", "minor").mapInArrow(run, TRACE)


def _or_null(records: DataFrame, name: str, kind: str) -> Column:
    return F.col(name) if name in records.columns else F.lit(None).cast(kind)


def _run(
    batches: Iterable[pa.RecordBatch], *, strategy: WatermarkStrategy, until: int, state: str | None
) -> Iterator[pa.RecordBatch]:
    saved = None if state is None else json.loads(state)
    rows: list[tuple[Any, ...]] = []
    running: _Generator | None = None
    for batch in batches:
        columns = (column.to_pylist() for column in batch.columns)
        for generator, arrival, major, minor, timestamp, marker, stream in zip(*columns, strict=True):
            if running is None or running.index != generator:
                running = _Generator(generator, strategy, saved, rows)
            if arrival == NEVER:
                running.end(until)
            else:
                running.process(Event(timestamp, arrival, bool(marker), stream), major, minor)
        if len(rows) >= _BATCH:
            yield _batch(rows)
            rows.clear()
    yield _batch(rows)


def _batch(rows: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_ARROW)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )


class _Generator:
    """One generator in a source of its own, with one partition."""

    def __init__(
        self, index: int, strategy: WatermarkStrategy, state: Mapping[str, Any] | None, rows: list[tuple[Any, ...]]
    ) -> None:
        self.index = index
        self._rows = rows
        self._last: tuple[int, int, int] | None = None
        own = strategy.of_generators[index]
        self._source = Source(replace(own, partitions=(0,), subtasks=((0,),), scope=WatermarkScope.PARTITION))
        if state is not None:
            saved = [partial for subtask in state["subtasks"] for partial in subtask["partials"]][index]
            watermark, idle = saved["watermark"], saved["idle"]
            self._source.restore(
                {
                    "subtasks": [{"combined": watermark, "idle": idle, "partials": [saved]}],
                    "valve": {
                        "channels": [{"watermark": watermark, "active": not idle, "aligned": not idle}],
                        "last_watermark": watermark,
                        "idle": idle,
                    },
                    "next_tick": state["next_tick"],
                    "records_since_tick": True,
                }
            )

    def process(self, event: Event, major: int, minor: int) -> None:
        """A record, and the ticks before it."""
        self._ticks(event.arrival)
        self._note(self._source.on_event(0, event), event.arrival, major, minor)
        self._last = (event.arrival, major, minor)

    def end(self, until: int) -> None:
        """The end of processing time (epoch ms)."""
        self._ticks(until)
        partial = self._source.snapshot()["subtasks"][0]["partials"][0]
        state = json.dumps({"partial": partial, "last": self._last})
        self._rows.append((self.index, NEVER, NEVER, NEVER, None, None, state))

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
