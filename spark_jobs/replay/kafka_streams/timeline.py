"""The timeline of Kafka Streams: each task has its own stream time, so a window closes in each partition by itself.

    C_p(x) = first position in partition p whose record has ts >= x + 1 + grace

It is made as Flink's bounded timeline is, but the partitions' steps are looked up one by one; there is no minimum over
them. Taken together, as other engines are, the slowest partition counts: what is still open anywhere is open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.replay.columns import PARTITION, PositionColumns, long_arrays
from spark_jobs.replay.grid import EndGrid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline, inverted
from spark_jobs.replay.inversion import closes_reached, last_of
from spark_jobs.replay.rule_book import TimelineRequest
from spark_jobs.replay.spec import ReplaySpec
from spark_jobs.replay.timeline import CloseArrays, Thresholds, Timeline

_PARTS = ("arrival", "major", "minor")


@dataclass
class TaskCloseArrays(CloseArrays):
    """Close positions of consecutive grid ends, for each partition its own.

    `positions` are those of the slowest partition. `by_task`: int64, shape (partitions, ends, 3).
    """

    reads: ClassVar[tuple[str, ...]] = (PARTITION,)
    partitions: Sequence[int] = ()
    by_task: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 3), dtype=np.int64))

    def at_index(self, index: Column, frame: DataFrame) -> PositionColumns:
        """The close position of the end number `first + index` in the record's own partition (`rw_partition`)."""
        if self._arrays is None:
            flat = self.by_task.reshape(-1, 3)
            self._arrays = long_arrays(frame, {name: flat[:, i] for i, name in enumerate(_PARTS)})
        count = self.by_task.shape[1]
        pairs = [F.lit(v) for n, partition in enumerate(self.partitions) for v in (partition, n * count)]
        place = F.create_map(*pairs)[F.col(PARTITION)] + index
        inside = F.when((index >= 0) & (index < F.lit(count)), place).cast("int")
        return PositionColumns(*(F.get(self._arrays[name], inside) for name in _PARTS))

    @cached_property
    def least_delay(self) -> int | None:
        """The least processing time (ms) from a window end to its close in any partition; None: no useful bound."""
        delays = (CloseArrays(self.grid, self.first, positions).least_delay for positions in self.by_task)
        known = [delay for delay in delays if delay is not None]
        return min(known) if len(known) == len(self.by_task) and known else None


@dataclass(frozen=True)
class StreamsTimeline(Timeline):
    """A timeline with the steps of each partition's own stream time."""

    by_partition: Mapping[int, InMemoryTimeline] = field(default_factory=dict[int, InMemoryTimeline])

    def close_arrays(self, grid: EndGrid, first: int, count: int, shift: int = 0) -> CloseArrays:
        """C(end - 1 + shift) of `count` grid ends from number `first` on, for each partition."""
        x = grid.ends(first, count) - 1 + shift
        partitions = sorted(self.by_partition)
        by_task = np.stack([self.by_partition[p].at(x) for p in partitions]) if partitions else np.empty((0, count, 3))
        slowest = super().close_arrays(grid, first, count, shift).positions
        return TaskCloseArrays(grid, first, slowest, partitions=partitions, by_task=by_task.astype(np.int64))


def streams_timeline(spec: ReplaySpec, request: TimelineRequest, thresholds: Thresholds) -> StreamsTimeline:
    """The timeline of the records, as `invert` makes it, and the steps of each partition.

    Its rows fit the driver's memory: there are at most as many as window ends and partitions.
    """
    table = closes_reached(
        request.records,
        spec.strategy,
        thresholds,
        processing_time_end=request.processing_time_end,
        state=request.state,
    ).toArrow()
    last = last_of(table)
    registered = spec.strategy.partitions
    reached = {partition: values["reached"] for partition, values in last.items()}
    steps = {p: inverted(table, [[p]], reached[p] + 1) for p in registered if p in reached}
    slowest = min(reached[p] for p in registered) + 1 if steps.keys() == set(registered) else MIN_TIMESTAMP
    return StreamsTimeline(
        inverted(table, [[p] for p in registered], slowest),
        thresholds,
        flushes=False,
        state={"kind": "inversion", "partitions": {str(p): values for p, values in last.items()}},
        # A later run may go on from here where no partition has passed what it looks up.
        watermark_below=max(reached.values(), default=MIN_TIMESTAMP),
        note="stream time of each partition",
        by_partition=steps,
    )
