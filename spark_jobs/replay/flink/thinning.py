"""What a timeline with idleness needs to know of its records: one row a partition and cell of arrival.

A cell is no longer than the shortest silence that can make a partition idle, so within a cell nothing becomes idle.
Between two cells the last record of the one and the first of the other are neighbours in the log: so each silence that
is long enough is found, with both its ends, and none that is not there.

A long history has more cells than fit the driver. There neighbours are joined where nothing changes (`JoinedCells`),
and a partition has one row for each time without a long silence in a cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.replay.columns import NEVER


@dataclass(frozen=True, slots=True)
class ArrivalCells:
    """Cells of arrival, `[start + k * width, start + (k + 1) * width)` in epoch ms, whose borders are ticks.

    One last cell begins at `last_tick`, the last tick that runs, and holds all records that no tick follows. A record
    of cell k is seen by the tick at the cell's end, `begin(k + 1)`, at the latest.
    """

    start: int
    width: int
    last_tick: int

    @classmethod
    def of_strategy(
        cls, strategy: WatermarkStrategy, processing_time_end: int, next_tick: int, ticks: int | None = None
    ) -> ArrivalCells:
        """Cells of so many `ticks`, at most of the widest in which nothing becomes idle; None: the widest.

        More than timeout and interval must pass until something does (rule 10).
        """
        start, interval = strategy.timer_start, strategy.interval
        last_tick = start + max(0, (processing_time_end - start) // interval) * interval
        most = (strategy.idleness or 0) // interval + 1
        width = min(ticks or most, most) * interval
        return cls(start, width, max(last_tick, next_tick - interval, start))

    @property
    def last(self) -> int:
        """The number of the last cell."""
        return -((self.start - self.last_tick) // self.width)

    def begin(self, cell: int) -> int:
        """The tick at which a cell begins (epoch ms)."""
        return min(self.start + cell * self.width, self.last_tick)

    def of(self, arrival: np.ndarray) -> np.ndarray:
        """The cell of each arrival."""
        return np.where(arrival >= self.last_tick, self.last, (arrival - self.start) // self.width)

    def of_one(self, arrival: int) -> int:
        """The cell of an arrival."""
        return self.last if arrival >= self.last_tick else (arrival - self.start) // self.width

    @property
    def grid(self) -> ArrivalCells:
        """Itself: see `JoinedCells`, of which the other methods are too."""
        return self

    def of_numbers(self, numbers: np.ndarray) -> np.ndarray:
        return numbers

    def numbers(self, cells: Iterable[int]) -> list[int]:
        return list(cells)

    def joined(self, cells: Iterable[int]) -> list[int]:
        return []

    def with_single(self, numbers: Iterable[int]) -> ArrivalCells:
        return self

    def parted(self, cells: Iterable[int], parts: int) -> ArrivalCells:
        return self


@dataclass(frozen=True)
class JoinedCells:
    """Cells of a grid, neighbours of them joined: cell k is `[begins[k], begins[k + 1])` of the grid's numbers.

    The grid's last cell is always one of its own. `begins`: int64, ascending.
    """

    grid: ArrivalCells
    begins: np.ndarray

    @classmethod
    def evenly(cls, grid: ArrivalCells, together: int, first_arrival: int) -> JoinedCells:
        """So many of the grid's cells together, from that of `first_arrival` (epoch ms) on."""
        first = grid.of_one(first_arrival)
        return cls(grid, np.append(np.arange(first, grid.last, together, dtype=np.int64), grid.last))

    @property
    def last(self) -> int:
        """The number of the last cell."""
        return len(self.begins) - 1

    @property
    def last_tick(self) -> int:
        """The last tick that runs (epoch ms)."""
        return self.grid.last_tick

    def begin(self, cell: int) -> int:
        """The tick at which a cell begins (epoch ms)."""
        return self.grid.begin(int(self.begins[cell]))

    def of(self, arrival: np.ndarray) -> np.ndarray:
        """The cell of each arrival."""
        return self.of_numbers(self.grid.of(arrival))

    def of_one(self, arrival: int) -> int:
        """The cell of an arrival."""
        return int(self.of_numbers(np.array([self.grid.of_one(arrival)]))[0])

    def of_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """The cell of each of the grid's cells."""
        return np.searchsorted(self.begins, numbers, side="right") - 1

    def numbers(self, cells: Iterable[int]) -> list[int]:
        """The first one of the grid's cells in each cell."""
        return [int(self.begins[cell]) for cell in cells]

    def joined(self, cells: Iterable[int]) -> list[int]:
        """The cells that join several cells of the grid."""
        return [cell for cell in cells if cell < self.last and self.begins[cell + 1] - self.begins[cell] > 1]

    def with_single(self, numbers: Iterable[int]) -> JoinedCells:
        """Cells in which each of these cells of the grid stands alone."""
        own = np.array(sorted(numbers), dtype=np.int64)
        return self._with(np.concatenate((own, own + 1)))

    def parted(self, cells: Iterable[int], parts: int) -> JoinedCells:
        """Splits each of `cells` into `parts` pieces, or as many as it has cells of the grid."""
        edges = [np.linspace(self.begins[cell], self.begins[cell + 1], parts + 1).astype(np.int64) for cell in cells]
        return self._with(np.concatenate(edges))

    def _with(self, begins: np.ndarray) -> JoinedCells:
        together = np.union1d(self.begins, begins)
        return JoinedCells(self.grid, together[(together >= self.begins[0]) & (together <= self.grid.last)])


Cells = ArrivalCells | JoinedCells


@dataclass(frozen=True, slots=True)
class Activity:
    """One generator's records by cell, in the order of arrival: int64, one entry a partition and cell.

    `first` and `last` arrival; `top`: the largest time that the watermark follows, MIN_TIMESTAMP where there is none;
    `marker`: the arrival of the first marker, `NEVER` where there is none, or where markers mean nothing.
    """

    first: np.ndarray
    last: np.ndarray
    top: np.ndarray
    marker: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, last: np.ndarray, top: np.ndarray, marker: np.ndarray) -> Activity:
        """From columns in any order."""
        order = np.argsort(first, kind="stable")
        return cls(first[order], last[order], top[order], marker[order])

    @property
    def last_arrival(self) -> int | None:
        """The arrival of the generator's last record; None without records."""
        return int(self.last.max()) if len(self.last) else None


@dataclass(frozen=True, slots=True)
class Silences:
    """The times in which a generator's partition is idle: the tick that notices it, and the next record's arrival.

    `awake`: the arrivals of the records, or markers, that make it active again (per event at once, else at the next
    tick). `NEVER`: none does.
    """

    idle_from: np.ndarray
    back_at: np.ndarray
    awake: np.ndarray

    @property
    def spans(self) -> list[tuple[int, int]]:
        """For `eventtime.flink.source.IdleTimes`: a tick at the record's own arrival comes before it (rule 7)."""
        return list(zip(self.idle_from.tolist(), self.back_at.tolist(), strict=True))


def silences(
    activity: Activity, strategy: WatermarkStrategy, last_tick: int, timer: Mapping[str, Any], next_tick: int
) -> Silences:
    """When this generator's partition is idle (rule 10).

    The tick after a record sees activity, the next one starts the countdown, and the first tick strictly more than the
    timeout later finds the partition idle. `timer` is the generator's part of a source's snapshot.
    """
    if strategy.idleness is None:
        never = np.empty(0, dtype=np.int64)
        return Silences(never, never, never)
    interval = strategy.interval
    if timer["active_since_probe"]:
        countdown = next_tick + interval
    else:
        countdown = next_tick if timer["countdown_from"] is None else timer["countdown_from"]
    before = np.maximum.accumulate(activity.last)
    countdowns = np.concatenate(([countdown], _tick_after(before, strategy) + interval)).astype(np.int64)
    back_at = np.concatenate((activity.first, [NEVER])).astype(np.int64)
    idle_from = _tick_after(countdowns + strategy.idleness, strategy)
    happens = idle_from <= np.minimum(back_at, last_tick)
    idle_from, back_at = idle_from[happens], back_at[happens]
    markers = np.sort(activity.marker)
    if not len(markers) or markers[0] == NEVER:
        return Silences(idle_from, back_at, back_at)
    awake = markers[np.minimum(np.searchsorted(markers, back_at), len(markers) - 1)]
    awake = np.where(awake >= back_at, awake, NEVER)
    return Silences(idle_from, back_at, np.append(awake, markers[0]) if timer["idle"] else awake)


def _tick_after(time: np.ndarray, strategy: WatermarkStrategy) -> np.ndarray:
    """The first tick strictly after each time."""
    start, interval = strategy.timer_start, strategy.interval
    return start + (np.maximum(time - start, 0) // interval + 1) * interval


def timer_after(
    activity: Activity, strategy: WatermarkStrategy, last_tick: int, timer: Mapping[str, Any], next_tick: int
) -> tuple[bool, int | None]:
    """`active_since_probe` and `countdown_from` of the generator's timer after all its records and ticks."""
    if strategy.idleness is None:
        return False, None
    arrival = activity.last_arrival
    if arrival is not None:
        seen_at = int(_tick_after(np.array([arrival]), strategy)[0])
    elif timer["active_since_probe"]:
        seen_at = next_tick
    else:
        begins = next_tick if timer["countdown_from"] is None else timer["countdown_from"]
        return False, begins if last_tick >= begins else timer["countdown_from"]
    if last_tick < seen_at:
        return True, None
    return False, seen_at + strategy.interval if last_tick > seen_at else None


class Tops:
    """The largest time that each generator's watermark follows, up to each cell."""

    def __init__(self, activities: Sequence[Activity], cells: Cells) -> None:
        self._cells: list[np.ndarray] = []
        self._tops: list[np.ndarray] = []
        for activity in activities:
            cell = cells.of(activity.first)
            ends = np.flatnonzero(np.diff(cell, append=np.iinfo(np.int64).max)) if len(cell) else cell
            self._cells.append(cell[ends])
            self._tops.append(np.maximum.accumulate(activity.top)[ends] if len(cell) else activity.top)

    def before(self, generator: int, cell: int) -> int | None:
        """The largest time of the generator's records in cells before this one; None without such records."""
        at = int(np.searchsorted(self._cells[generator], cell))
        return int(self._tops[generator][at - 1]) if at else None

    def moves_first_in(self, generator: int, least: int) -> int | None:
        """The first cell in which the largest time is above `least`; None: in none."""
        above = np.flatnonzero(self._tops[generator] > least)
        return int(self._cells[generator][above[0]]) if len(above) else None

    @property
    def first_cell(self) -> int | None:
        """The first cell that holds a record."""
        return min((int(cells[0]) for cells in self._cells if len(cells)), default=None)
