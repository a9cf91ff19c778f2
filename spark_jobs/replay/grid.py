"""The grid of window ends. Between two ends no window closes, so a timeline needs no finer thresholds.

Ends and thresholds are epoch milliseconds. The threshold of an end `e` is its last timestamp, `e - 1`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date
from typing import Protocol
from zoneinfo import ZoneInfo

import numpy as np
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_jobs.eventtime.flink.wall_clock import WallClockWindows, fires_at
from spark_jobs.eventtime.windows import AlignedWindows, CalendarDayWindows, RegularWindows

_EPOCH = date(1970, 1, 1)


class EndGrid(Protocol):
    """All instants at which some window can end."""

    def floor(self, time: Column, shift: int = 0) -> Column:
        """The last end at or before `time + shift`, less `shift` (epoch ms, BIGINT)."""
        ...

    def index(self, end: Column) -> Column:
        """The number of an end on the grid (BIGINT)."""
        ...

    def first_index_at_or_after(self, time: int) -> int:
        """The number of the first end at or after `time`."""
        ...

    def ends(self, first: int, count: int) -> np.ndarray:
        """`count` ends from number `first` on, as int64 epoch ms."""
        ...

    def closes(self, first: int, count: int) -> np.ndarray:
        """The watermarks that close the windows with these ends."""
        ...


@dataclass(frozen=True, slots=True)
class RegularGrid:
    """Ends at `phase + k * step`."""

    step: int
    phase: int = 0

    def floor(self, time: Column, shift: int = 0) -> Column:
        ahead = (shift - self.phase) % self.step
        return time - F.pmod(time + F.lit(ahead) if ahead else time, F.lit(self.step))

    def index(self, end: Column) -> Column:
        return divided(end - F.lit(self.phase), self.step)

    def first_index_at_or_after(self, time: int) -> int:
        return -((self.phase - time) // self.step)

    def ends(self, first: int, count: int) -> np.ndarray:
        return self.phase + np.arange(first, first + count, dtype=np.int64) * self.step

    def closes(self, first: int, count: int) -> np.ndarray:
        return self.ends(first, count) - 1


_QUARTER = 900_000
"""Zones differ from UTC by whole quarters of an hour."""


@dataclass(frozen=True, slots=True)
class WallClockGrid:
    """Ends on a regular grid of a wall clock's times; `floor` is of instants, and as fine as any zone needs."""

    shown: RegularGrid
    zone: ZoneInfo

    def floor(self, time: Column, shift: int = 0) -> Column:
        """A threshold at a quarter of an hour, or a millisecond later: a skipped hour closes windows at its change."""
        step = math.gcd(self.shown.step, _QUARTER)
        quarter = RegularGrid(step, self.shown.phase % step).floor(time, shift)
        return F.least(time, quarter + F.lit(1))

    def index(self, end: Column) -> Column:
        return self.shown.index(end)

    def first_index_at_or_after(self, time: int) -> int:
        return self.shown.first_index_at_or_after(time)

    def ends(self, first: int, count: int) -> np.ndarray:
        return self.shown.ends(first, count)

    def closes(self, first: int, count: int) -> np.ndarray:
        return np.array([fires_at(end - 1, self.zone) for end in self.ends(first, count).tolist()], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class CalendarGrid:
    """Ends at local midnights, or an offset from them; window number `i` ends where number `i + 1` starts."""

    windows: CalendarDayWindows

    def floor(self, time: Column, shift: int = 0) -> Column:
        return day_start(self.windows, self._day_index(time + F.lit(shift))) - F.lit(shift)

    def index(self, end: Column) -> Column:
        return self._day_index(end)

    def first_index_at_or_after(self, time: int) -> int:
        index = self.windows.day_index(time)
        return index if self.windows.day_start(index) >= time else index + 1

    def ends(self, first: int, count: int) -> np.ndarray:
        return np.array([self.windows.day_start(i) for i in range(first, first + count)], dtype=np.int64)

    def closes(self, first: int, count: int) -> np.ndarray:
        return self.ends(first, count) - 1

    def _day_index(self, time: Column) -> Column:
        return local_day_index(self.windows, time)


def divided(value: Column, divisor: int) -> Column:
    """Exact integer division; a double would lose milliseconds beyond 2^53."""
    return F.call_function("div", value, F.lit(divisor)) if divisor != 1 else value


def local_day_index(windows: CalendarDayWindows, time: Column) -> Column:
    """The number of the calendar window that holds `time`: whole local days since 1970-01-01, in `days`."""
    local = F.from_utc_timestamp(F.timestamp_millis(time), windows.time_zone.key)
    shifted = F.timestamp_millis(F.unix_millis(local) - F.lit(windows.offset)) if windows.offset else local
    days = F.datediff(F.to_date(shifted), F.lit(_EPOCH)).cast("long")
    index = divided(days - F.pmod(days, F.lit(windows.days)), windows.days)
    if windows.follows_dates:
        return index
    # Clocks that are put back show the times before a start once more behind it.
    is_next, is_before = time >= day_start(windows, index + F.lit(1)), time < day_start(windows, index)
    return index + F.when(is_next, 1).when(is_before, -1).otherwise(0).cast("long")


def day_start(windows: CalendarDayWindows, index: Column) -> Column:
    """Epoch ms of the local time that starts calendar window number `index`."""
    day = F.date_add(F.lit(_EPOCH), (index * F.lit(windows.days)).cast("int")).cast("timestamp")
    start = F.timestamp_millis(F.unix_millis(day) + F.lit(windows.offset)) if windows.offset else day
    return F.unix_millis(F.to_utc_timestamp(start, windows.time_zone.key))


def end_grid(windows: AlignedWindows) -> EndGrid:
    """The grid of the ends of these windows."""
    match windows:
        case RegularWindows():
            return RegularGrid(windows.end_step, windows.end_phase)
        case CalendarDayWindows():
            return CalendarGrid(windows)
        case WallClockWindows(inner, zone):
            return WallClockGrid(RegularGrid(inner.end_step, inner.end_phase), zone)
        case _:
            raise TypeError(f"{type(windows).__name__} has no grid of ends")


def start_of(windows: AlignedWindows, time: Column) -> Column:
    """The last window start at or before `time` (epoch ms). Where slide > size, it may be of no window of `time`."""
    match windows:
        case RegularWindows():
            return RegularGrid(windows.start_step, windows.offset % windows.start_step).floor(time)
        case CalendarDayWindows():
            return day_start(windows, local_day_index(windows, time))
        case WallClockWindows(inner):
            return start_of(inner, time)
        case _:
            raise TypeError(f"{type(windows).__name__} has no grid of starts")
