"""Two phases of Flink SQL, set by set: at which position a subtask hands each record on.

The rule is in `spark_jobs.eventtime.flink.two_phases`. By inversion, with C_s(x) the position at which the own
watermark of subtask s reaches x, and slices that end on the grid at which buffers are looked at:

    behind     C_s(e - 1) < r           the slice of the record at r ended before, by its own subtask's watermark
    handed on  the first C_s(b) >= r    over all slice ends b: the next one that the subtask reaches
    on time    handed on <= C(x)        a subtask hands on before it forwards the watermark

    in time    r <= H_s(C(x))           H_s(c): the last position at or before c at which s hands on

So the windows need one look-up a record, in arrays by subtask and window end, and no join. A record that is not behind
is handed on when its subtask reaches its slice's end, or sooner: while every subtask is active that is before C(x).
With an idle timeout it may not be; then a subtask hands on only at positions that some record needs.
A comparison needs the position itself, as its band shifts the closes: `Buffers.handed_on` joins it to its few records.

Where the grid of `Slices.next_flush` misses the slices' ends, a buffer is emptied only at those of its positions at
which a record that it holds has a slice that has closed: `Buffers.emptied` finds them from the earliest slice of the
records between two. The window operator has such a buffer behind those of its subtasks, or in one phase alone; of a
record that it takes out behind a close no window knows. So a record is in time if

    r <= H_s(H(C(x)))     H(c): the last position at or before c at which the window operator empties its buffer
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.eventtime.durations import DAY
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.two_phases import Slices
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows
from spark_jobs.replay.assign import latest_end, shown_time
from spark_jobs.replay.columns import (
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
from spark_jobs.replay.timeline import CloseArrays, PartitionCloseArrays, Thresholds

_BEHIND, _NEXT, _SUBTASK = "rw_behind", "rw_next", "rw_subtask"
_PARTS = ("arrival", "major", "minor")
_NONE = np.empty((0, 3), dtype=np.int64)


def of_subtasks(steps: Mapping[int, InMemoryTimeline], *, flushes: bool) -> Mapping[int, InMemoryTimeline]:
    """The steps of each subtask. At one tick they come in the order of their numbers, before all records.

    So does the end of input where it `flushes`: the subtasks end one after the other.
    """
    return {number: _in_order(own, number - len(steps), flushes) for number, own in steps.items()}


def _shared(positions: np.ndarray, flushes: bool) -> np.ndarray:
    """Which positions several subtasks may have: ticks, and the end of input."""
    return (positions[:, 1] < 0) | ((positions[:, 0] == NEVER) & flushes)


def _in_order(steps: InMemoryTimeline, order: int, flushes: bool) -> InMemoryTimeline:
    positions = steps.positions.copy()
    positions[_shared(positions, flushes), 2] = order
    return InMemoryTimeline(steps.x_from, positions)


def together(whole: InMemoryTimeline, steps: Mapping[int, InMemoryTimeline], *, flushes: bool) -> InMemoryTimeline:
    """The whole's steps; of those at a tick or at the end, behind the last subtask that reaches the value there."""
    x_from = np.unique(np.concatenate([whole.x_from, *(own.x_from for own in steps.values())]))
    positions = whole.at(x_from).copy()
    shared = _shared(positions, flushes)
    latest = np.where(shared, -1, positions[:, 2])
    for number, own in sorted(steps.items()):
        same = shared & (own.at(x_from)[:, :2] == positions[:, :2]).all(axis=1)
        latest[same] = number - len(steps)
    positions[:, 2] = latest
    return InMemoryTimeline(x_from, positions)


def _numbered(positions: np.ndarray, end: tuple[int, int, int]) -> InMemoryTimeline:
    """The positions in order; the last one is the `end` of input."""
    distinct = np.unique(positions[positions[:, 0] < NEVER], axis=0)
    kept = np.concatenate([distinct, np.array([end], dtype=np.int64)])
    return InMemoryTimeline(np.arange(len(kept), dtype=np.int64), kept)


@dataclass
class HeldCloses(CloseArrays):
    """Close positions, and of each partition the last one before them at which its subtask hands on."""

    handed_on: PartitionCloseArrays = field(kw_only=True)


@dataclass(frozen=True)
class Buffers:
    """The buffers of all subtasks, and that of the window operator where it loses records.

    `slices`: those of both. `two_phases`: whether subtasks hold records back. `loses`: whether Flink loses records.
    `counts_instants`: whether the windows' times are instants though the slices are of a wall clock.
    """

    slices: Slices
    strategy: WatermarkStrategy
    two_phases: bool = True
    loses: bool = False
    counts_instants: bool = False

    @property
    def last(self) -> int:
        """The number of the window operator's buffer, behind those of the subtasks."""
        return len(self.strategy.subtasks)

    @property
    def grid(self) -> RegularGrid | WallClockGrid:
        """The slices' ends."""
        regular = RegularGrid(self.slices.step, self.slices.offset % self.slices.step)
        return regular if self.slices.zone is None else WallClockGrid(regular, self.slices.zone)

    def finer(self, thresholds: Thresholds) -> Thresholds:
        """Thresholds with the grid at which buffers are looked at, where it is another one than the slices'."""
        if not self.loses:
            return thresholds
        step, phase = self.slices.step, self.slices.flush_offset % self.slices.step
        apart = abs(self.slices.offset - phase) % step
        looked_at = RegularGrid(step, phase)
        return Thresholds(
            lambda value, shift: F.greatest(thresholds.floor(value, shift), looked_at.floor(value, shift + 1)),
            thresholds.step // 2,
            min(apart, step - apart) if thresholds.apart else 0,
        )

    @property
    def may_be_idle(self) -> bool:
        """Whether some subtask may leave the minimum."""
        return any(one.idleness is not None and one.interval for one in self.strategy.of_subtasks)

    def closes(self, closes: CloseArrays, steps: InMemoryTimeline, interval: int | None) -> HeldCloses:
        """The closes, and up to which position a record of each subtask is handed on before them.

        At each `interval` (ms, None: not known) a checkpoint hands on: what came so long before a close is in time.
        """
        until = closes.positions
        taken = steps.flushes[self.last].last_until(until) if self.loses else until
        subtasks = sorted(number for number in steps.flushes if number < self.last)
        last = np.stack([steps.flushes[number].last_until(taken) for number in subtasks] or [taken])
        if interval is not None:
            sure = np.full_like(until, NEVER)
            sure[:, 0] = until[:, 0] - interval - 1
            last = np.where((sure[:, :1] >= last[:, :, :1]), sure, last)
        own = PartitionCloseArrays(closes.grid, closes.first, until, rows=self._rows, by_partition=last)
        return HeldCloses(closes.grid, closes.first, until, handed_on=own)

    @property
    def _rows(self) -> dict[int, int]:
        """The number of each partition's subtask; in one phase all are in one."""
        subtasks = enumerate(self.strategy.subtasks)
        return {partition: number if self.two_phases else 0 for number, own in subtasks for partition in own}

    def handed_on(self, records: DataFrame, steps: InMemoryTimeline, span: TimeRange) -> DataFrame:
        """The records with the position at which each comes to the windows; null where nothing holds it back.

        `span` holds their times, which are as the windows count them.
        """
        if not steps.flushes:
            return records
        records = records.withColumn(_SUBTASK, self._subtask())
        behind = F.lit(True)
        if not self.may_be_idle and not self.loses:
            behind = self._is_behind(self._own_closes(steps.by_subtask, span), records)
        records = records.withColumn(_BEHIND, behind)
        if self.loses:
            return self._taken_behind_closes(records, steps, span).drop(_BEHIND, _SUBTASK)
        placed = self._later(records, record_position(records), steps.flushes)
        parts = {name: F.when(F.col(_BEHIND), F.col(name)) for name in position_names(HANDED)}
        return placed.withColumns(parts).drop(_BEHIND, _SUBTASK)

    def _taken_behind_closes(self, records: DataFrame, steps: InMemoryTimeline, span: TimeRange) -> DataFrame:
        """The records with the position at which the window operator counts them, where that is behind their slice."""
        placed = self._to_windows(records, steps.flushes).withColumn(_SUBTASK, F.lit(0))
        later = self._later(placed, PositionColumns.named(HANDED), {0: steps.flushes[self.last]})
        closes = self._own_closes({0: steps}, span, together=True)
        is_lost = ~PositionColumns.named(HANDED).not_after(closes.at_index(self._index(closes), later))
        return later.withColumns({name: F.when(is_lost, F.col(name)) for name in position_names(HANDED)})

    def _to_windows(self, records: DataFrame, flushes: Mapping[int, InMemoryTimeline]) -> DataFrame:
        """The records, all `rw_behind`, with the position at which each comes to the window operator."""
        own = record_position(records)
        if not self.two_phases:
            return records.withColumns(dict(zip(position_names(HANDED), own.parts, strict=True)))
        return self._later(records, own, {number: flushes[number] for number in range(self.last)})

    def flushes(
        self,
        records: DataFrame,
        steps: Mapping[int, InMemoryTimeline],
        span: TimeRange,
        ends: Mapping[int, tuple[int, int, int]],
    ) -> Mapping[int, InMemoryTimeline]:
        """Where each subtask hands on what is due: where its watermark reaches another slice end.

        With an idle timeout only where some of all these records needs it. `ends`: where each hands on the rest.
        """
        records = records.withColumn(_SUBTASK, self._subtask())
        if self.loses:
            return self._emptied(records, record_position(records), steps, self._own_closes(steps, span), ends)
        due = {number: _numbered(self._reaching(own), ends[number]) for number, own in steps.items()}
        if not self.may_be_idle:
            return due
        closes = self._own_closes(steps, span)
        own = record_position(records)
        placed = self._with_next(records.withColumn(_BEHIND, self._is_behind(closes, records)), own, due)
        reached = closes.at_index(self._index(closes), placed)
        needed = [
            F.when(F.col(_BEHIND), later).otherwise(own).alias(name)
            for later, own, name in zip(self._next(own, due).parts, reached.parts, _PARTS, strict=True)
        ]
        rows = placed.select(F.col(_SUBTASK).alias("subtask"), *needed).distinct().toArrow()
        numbers = rows.column("subtask").to_numpy()
        positions = np.stack([rows.column(part).to_numpy() for part in _PARTS], axis=1)
        return {number: _numbered(positions[numbers == number], ends[number]) for number in steps}

    def taken(
        self, records: DataFrame, steps: InMemoryTimeline, span: TimeRange, windows: AlignedWindows
    ) -> InMemoryTimeline:
        """Where the window operator empties its buffer, of records that are not late when they come to it.

        `steps`: those of its watermark, and where each subtask hands on.
        """
        records = records.withColumns({_SUBTASK: self._subtask(), _BEHIND: F.lit(True)})
        placed = self._to_windows(records, steps.flushes).withColumn(_SUBTASK, F.lit(0))
        came, closes = PositionColumns.named(HANDED), self._own_closes({0: steps}, span, together=True)
        last_end = None if self.counts_instants else latest_end(windows)
        in_time = placed.where(came.not_after(closes.at_index(self._index(closes, last_end), placed)))
        _, major, minor = map(int, steps.positions[-1])
        return self._emptied(in_time, came, {0: steps}, closes, {0: (NEVER, major, minor)})[0]

    def _emptied(
        self,
        records: DataFrame,
        came: PositionColumns,
        steps: Mapping[int, InMemoryTimeline],
        closes: PartitionCloseArrays,
        ends: Mapping[int, tuple[int, int, int]],
    ) -> Mapping[int, InMemoryTimeline]:
        """Where each buffer is emptied: where it is looked at, and holds a slice that has closed by then."""
        looked = {number: _numbered(self._reaching(own), ends[number]) for number, own in steps.items()}
        known = records.where(F.col(EVENT_TIME).isNotNull()).withColumn(_BEHIND, F.lit(True))
        placed = self._with_next(known, came, looked)
        at, ended = self._next(came, looked), closes.at_index(self._index(closes), placed)
        of_looks = placed.select(
            F.col(_SUBTASK).alias("subtask"), at.as_struct().alias("at"), ended.as_struct().alias("ended")
        )
        found: dict[int, dict[tuple[int, ...], tuple[int, ...]]] = {number: {} for number in steps}
        for number, look, earliest in of_looks.groupBy("subtask", "at").agg(F.min("ended")).collect():
            found[number][tuple(look)] = tuple(earliest)
        return {number: _numbered(_due(own.positions, found[number]), ends[number]) for number, own in looked.items()}

    def _reaching(self, steps: InMemoryTimeline) -> np.ndarray:
        """The positions at which a buffer is looked at; a wall clock's steps, and a grid of another phase, lie between.

        At each position the watermark is below the next step's; the first watermark of all looks, too.
        """
        if self.slices.zone is None and not self.loses:
            return steps.positions
        looks, due = list[int](), 0
        for place, above in enumerate(steps.x_from[1:].tolist()):
            if due < above and above > 1:
                looks.append(place)
                due = self.slices.next_flush(above - 1)
        return steps.positions[looks]

    def _subtask(self) -> Column:
        """The number of the subtask that reads a record's partition."""
        return F.create_map(*(F.lit(v) for pair in self._rows.items() for v in pair))[F.col(PARTITION)]

    def _index(self, closes: CloseArrays, end: Column | None = None) -> Column:
        """The number of the record's slice end, or of another `end`, in `closes`."""
        grid = RegularGrid(self.slices.step, self.slices.offset % self.slices.step)
        time = F.col(EVENT_TIME)
        if self.counts_instants and self.slices.zone is not None:
            time = shown_time(time, self.slices.zone)
        end = grid.floor(time) + F.lit(self.slices.step) if end is None else end
        return (grid.index(end) - F.lit(closes.first)).cast("int")

    def _own_closes(
        self, steps: Mapping[int, InMemoryTimeline], span: TimeRange, *, together: bool = False
    ) -> PartitionCloseArrays:
        """When the watermark of each subtask reaches the slices' ends; `together`: of all one."""
        grid, step = self.grid, self.slices.step
        first = grid.first_index_at_or_after(span.start - (DAY if self.counts_instants else 0))
        count = grid.first_index_at_or_after(span.end + 2 * step) - first + 1
        x = grid.closes(first, count)
        by_partition = np.stack([own.at(x) for _, own in sorted(steps.items())])
        rows = dict.fromkeys(self._rows, 0) if together else self._rows
        return PartitionCloseArrays(grid, first, _NONE, rows=rows, by_partition=by_partition)

    def _is_behind(self, closes: PartitionCloseArrays, records: DataFrame) -> Column:
        """Whether a record's slice ended before it, by its own subtask's watermark."""
        looked_up = ~record_position(records).not_after(closes.at_index(self._index(closes), records))
        return F.coalesce(looked_up, F.lit(False))

    def _later(self, records: DataFrame, came: PositionColumns, flushes: Mapping[int, InMemoryTimeline]) -> DataFrame:
        """The records with the position (`HANDED`) at or after that where they came at which they are handed on."""
        placed = self._with_next(records, came, flushes)
        parts = dict(zip(position_names(HANDED), self._next(came, flushes).parts, strict=True))
        return placed.withColumns(parts).drop(*position_names(_NEXT))

    def _with_next(
        self, records: DataFrame, came: PositionColumns, flushes: Mapping[int, InMemoryTimeline]
    ) -> DataFrame:
        """Add, where `rw_behind` is true and there is one `rw_next_*`: the position to hand on between two."""
        ranges = [_between(number, own.positions) for number, own in flushes.items()]
        table = {name: np.concatenate([own[name] for own in ranges]) for name in ranges[0]}
        start, end, groups = (table.pop(name) for name in ("start", "end", "group"))
        after = PositionColumns.named("rw_after").before(came)
        fits = after & came.not_after(PositionColumns.named(_NEXT))
        placed = joined_to_ranges(
            records, F.when(F.col(_BEHIND), came.arrival), start, end, table,
            group=F.col(_SUBTASK), groups=groups, fits=fits, how="left",
        )  # fmt: skip
        return placed.drop(*position_names("rw_after"))

    def _next(self, came: PositionColumns, flushes: Mapping[int, InMemoryTimeline]) -> PositionColumns:
        """The first position at or after `came` at which a record's subtask hands on, by `_with_next`.

        A record in no range comes before the first position of all, else it waits for the end of input.
        """
        outside = []
        for part in range(len(_PARTS)):
            found = F.lit(NEVER)
            for number, steps in flushes.items():
                first = PositionColumns(*(F.lit(int(value)).cast("bigint") for value in steps.positions[0]))
                last = F.lit(int(steps.positions[-1, part])).cast("bigint")
                of_subtask = F.when(came.not_after(first), first.parts[part]).otherwise(last)
                found = F.when(F.col(_SUBTASK) == F.lit(number), of_subtask).otherwise(found)
            outside.append(found)
        inside = PositionColumns.named(_NEXT).parts
        return PositionColumns(*(F.coalesce(a, b) for a, b in zip(inside, outside, strict=True)))


def handed_on_by(records: DataFrame, interval: int | None) -> DataFrame:
    """The records of `Buffers.handed_on`, where a checkpoint hands on all that has waited for the `interval` (ms)."""
    if interval is None or position_names(HANDED)[0] not in records.columns:
        return records
    later, first = PositionColumns.named(HANDED), F.lit(MIN_TIMESTAMP)
    sure = PositionColumns(record_position(records).arrival + F.lit(interval + 1), first, first)
    parts = zip(position_names(HANDED), later.parts, sure.parts, strict=True)
    return records.withColumns({name: F.when(sure.before(later), b).otherwise(a) for name, a, b in parts})


def _due(looked: np.ndarray, earliest: Mapping[tuple[int, ...], tuple[int, ...]]) -> np.ndarray:
    """Of the positions at which a buffer is looked at, those at which it is emptied.

    `earliest`: of the records that came since the look before, when the earliest slice closed.
    """
    due, held = list[tuple[int, ...]](), (NEVER,)
    for look in map(tuple, looked.tolist()):
        held = min(held, earliest.get(look, held))
        if held <= look:
            due.append(look)
            held = (NEVER,)
    return np.array(due, dtype=np.int64).reshape(-1, 3)


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
