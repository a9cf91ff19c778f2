"""Two phases of Flink SQL, set by set: at which position a subtask hands each record on.

The rule is in `spark_jobs.eventtime.flink.two_phases`. By inversion, with C_s(x) the position at which the own
watermark of subtask s reaches x, and slices that end on the grid at which buffers are looked at:

    behind     C_s(e - 1) < r           the slice of the record at r ended before, by its own subtask's watermark
    handed on  the first C_s(b) >= r    over all slice ends b: the next one that the subtask reaches
    on time    handed on <= C(x)        a subtask hands on before it forwards the watermark

A record that is not behind is handed on when its subtask reaches its slice's end, or sooner. While every subtask is
active that is before C(x), so it needs no look-up. With an idle timeout it may not be: then a subtask hands on at each
position that some record needs, and each record goes with the first one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.replay.columns import (
    ARRIVAL,
    EVENT_TIME,
    HANDED,
    NEVER,
    PARTITION,
    PositionColumns,
    position_names,
    record_position,
)
from spark_jobs.replay.grid import RegularGrid, WallClockGrid
from spark_jobs.replay.in_memory_timeline import InMemoryTimeline
from spark_jobs.replay.range_lookup import joined_to_ranges
from spark_jobs.replay.timeline import PartitionCloseArrays

_BEHIND, _NEXT = "rw_behind", "rw_next"
_PARTS = ("arrival", "major", "minor")


def of_subtasks(steps: Mapping[int, InMemoryTimeline]) -> Mapping[int, InMemoryTimeline]:
    """The steps of each subtask; at one tick they come in the order of their numbers, before all records."""
    return {number: _at_own_ticks(own, number - len(steps)) for number, own in steps.items()}


def _at_own_ticks(steps: InMemoryTimeline, order: int) -> InMemoryTimeline:
    positions = steps.positions.copy()
    positions[positions[:, 1] < 0, 2] = order
    return InMemoryTimeline(steps.x_from, positions)


def at_last_ticks(whole: InMemoryTimeline, steps: Mapping[int, InMemoryTimeline]) -> InMemoryTimeline:
    """The whole's steps; of those at a tick, behind the last subtask that reaches the value at this tick."""
    x_from = np.unique(np.concatenate([whole.x_from, *(own.x_from for own in steps.values())]))
    positions = whole.at(x_from).copy()
    ticking = positions[:, 1] < 0
    latest = np.full(len(x_from), -1, dtype=np.int64)
    found = np.zeros(len(x_from), dtype=bool)
    for number, own in sorted(steps.items()):
        same = ticking & (own.at(x_from)[:, :2] == positions[:, :2]).all(axis=1)
        latest[same], found[same] = number - len(steps), True
    positions[found, 2] = latest[found]
    return InMemoryTimeline(x_from, positions)


def _numbered(positions: np.ndarray, *, ends: bool) -> InMemoryTimeline:
    """The positions in order; `NEVER` is the last where the end of input hands on the rest."""
    distinct = np.unique(positions[positions[:, 0] < NEVER], axis=0)
    never = np.full((int(ends), 3), NEVER, dtype=np.int64)
    kept = np.concatenate([distinct, never])
    return InMemoryTimeline(np.arange(len(kept), dtype=np.int64), kept)


@dataclass(frozen=True)
class Buffers:
    """The buffers of all subtasks."""

    slices: Slices
    strategy: WatermarkStrategy

    @property
    def grid(self) -> RegularGrid | WallClockGrid:
        """The slices' ends."""
        regular = RegularGrid(self.slices.step, self.slices.offset % self.slices.step)
        return regular if self.slices.zone is None else WallClockGrid(regular, self.slices.zone)

    @property
    def may_be_idle(self) -> bool:
        """Whether some subtask may leave the minimum."""
        return any(one.idleness is not None and one.interval for one in self.strategy.of_subtasks)

    def handed_on(self, records: DataFrame, steps: InMemoryTimeline, span: TimeRange) -> DataFrame:
        """The records with the position at which each comes to the windows. `span` holds their times, as windows count.

        The event time is as the windows count it, too.
        """
        if not steps.by_subtask:
            return records
        behind = F.lit(True) if self.may_be_idle else self._is_behind(records, steps, span)
        placed = self._with_next(records, behind, steps.flushes)
        own = record_position(records)
        parts = [
            F.when(F.col(_BEHIND), later).otherwise(part)
            for later, part in zip(PositionColumns.named(_NEXT).parts, own.parts, strict=True)
        ]
        return placed.withColumns(dict(zip(position_names(HANDED), parts, strict=True))).drop(
            _BEHIND, *position_names(_NEXT)
        )

    def flushes(
        self, records: DataFrame, steps: Mapping[int, InMemoryTimeline], span: TimeRange, idle: Collection[int]
    ) -> Mapping[int, InMemoryTimeline]:
        """Where each subtask hands on what is due: where its watermark reaches another slice end.

        With an idle timeout only where some of all these records needs it. Those that are `idle` at the end of input
        hand on the rest when all has closed.
        """
        due = {number: _numbered(own.positions, ends=number not in idle) for number, own in steps.items()}
        if not self.may_be_idle:
            return due
        known = InMemoryTimeline(np.empty(0, np.int64), np.empty((0, 3), np.int64), by_subtask=steps)
        closes = self._own_closes(known, span)
        behind = self._is_behind(records, known, span)
        placed = self._with_next(records, behind, due)
        reached = closes.at_index(self._index(closes), placed)
        needed = [
            F.when(F.col(_BEHIND), later).otherwise(own).alias(name)
            for later, own, name in zip(PositionColumns.named(_NEXT).parts, reached.parts, _PARTS, strict=True)
        ]
        rows = placed.select(self._subtask().alias("subtask"), *needed).distinct().toArrow()
        numbers = rows.column("subtask").to_numpy()
        positions = np.stack([rows.column(part).to_numpy() for part in _PARTS], axis=1)
        return {number: _numbered(positions[numbers == number], ends=number not in idle) for number in steps}

    def _subtask(self) -> Column:
        """The number of the subtask that reads a record's partition."""
        pairs = [F.lit(v) for number, own in enumerate(self.strategy.subtasks) for p in own for v in (p, number)]
        return F.create_map(*pairs)[F.col(PARTITION)]

    def _index(self, closes: PartitionCloseArrays) -> Column:
        """The number of the record's slice end in `closes`."""
        grid = RegularGrid(self.slices.step, self.slices.offset % self.slices.step)
        end = grid.floor(F.col(EVENT_TIME)) + F.lit(self.slices.step)
        return (grid.index(end) - F.lit(closes.first)).cast("int")

    def _own_closes(self, steps: InMemoryTimeline, span: TimeRange) -> PartitionCloseArrays:
        grid, step = self.grid, self.slices.step
        first = grid.first_index_at_or_after(span.start)
        count = grid.first_index_at_or_after(span.end + 2 * step) - first + 1
        x = grid.closes(first, count)
        subtask_of = {p: number for number, own in enumerate(self.strategy.subtasks) for p in own}
        by_partition = np.stack([steps.by_subtask[number].at(x) for number in subtask_of.values()])
        latest = by_partition.max(axis=0)
        return PartitionCloseArrays(grid, first, latest, partitions=tuple(subtask_of), by_partition=by_partition)

    def _is_behind(self, records: DataFrame, steps: InMemoryTimeline, span: TimeRange) -> Column:
        """Whether a record's slice ended before it, by its own subtask's watermark."""
        closes = self._own_closes(steps, span)
        looked_up = ~record_position(records).not_after(closes.at_index(self._index(closes), records))
        looked_up = F.coalesce(looked_up, F.lit(False))
        if closes.least_delay is None:
            return looked_up
        soon = F.col(ARRIVAL) - F.lit(closes.least_delay) < F.col(EVENT_TIME)
        return F.call_function("if", soon, F.lit(False), looked_up)

    def _with_next(self, records: DataFrame, behind: Column, flushes: Mapping[int, InMemoryTimeline]) -> DataFrame:
        """Add `rw_behind`, and where it is true `rw_next_*`: the first position at or after the record's to hand on."""
        ranges = [_between(number, own.positions) for number, own in flushes.items()]
        table = {name: np.concatenate([own[name] for own in ranges]) for name in ranges[0]}
        start, end, groups = (table.pop(name) for name in ("start", "end", "group"))
        own = record_position(records)
        after = PositionColumns.named("rw_after").before(own)
        fits = after & own.not_after(PositionColumns.named(_NEXT))
        flagged = records.withColumn(_BEHIND, behind)
        placed = joined_to_ranges(
            flagged, F.when(F.col(_BEHIND), F.col(ARRIVAL)), start, end, table,
            group=self._subtask(), groups=groups, fits=fits, how="left",
        )  # fmt: skip
        firsts = {number: own.positions for number, own in flushes.items()}
        return placed.drop(*position_names("rw_after")).withColumns(
            {
                name: F.coalesce(F.col(name), self._outside(own, firsts, part))
                for part, name in enumerate(position_names(_NEXT))
            }
        )

    def _outside(self, own: PositionColumns, positions: Mapping[int, np.ndarray], part: int) -> Column:
        """Of a record in no range: the first position of all, if it comes before that one, else the end of input.

        Null where the end of input comes too late.
        """
        found = F.lit(None).cast("bigint")
        for number, one in positions.items():
            if not len(one):
                continue
            first = PositionColumns(*(F.lit(int(value)).cast("bigint") for value in one[0]))
            last = F.lit(NEVER if one[-1, 0] == NEVER else None).cast("bigint")
            own_last = F.when(own.not_after(first), first.parts[part]).otherwise(last)
            found = F.when(self._subtask() == F.lit(number), own_last).otherwise(found)
        return found


def _between(group: int, positions: np.ndarray) -> dict[str, np.ndarray]:
    """The ranges between neighbours, as arrivals; up to `NEVER` there is none."""
    real = positions[positions[:, 0] < NEVER]
    after, until = real[:-1], real[1:]
    return {
        "start": after[:, 0],
        "end": until[:, 0] + 1,
        "group": np.full(len(after), group, dtype=np.int64),
        **{f"rw_after_{part}": after[:, i] for i, part in enumerate(_PARTS)},
        **{f"{_NEXT}_{part}": until[:, i] for i, part in enumerate(_PARTS)},
    }
