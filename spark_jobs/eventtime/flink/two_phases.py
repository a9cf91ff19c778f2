"""The first of two phases: what a source subtask of Flink SQL holds back before the windows.

Written after `LocalSlicingWindowAggOperator` and its buffer. Each subtask aggregates its own records by key and slice.
It hands them on when its own watermark reaches the next slice end, if the buffer has a slice that ends by then, before
it forwards that watermark. A checkpoint hands them on too. Only behind it is a record found late: one that is behind
its own subtask's watermark waits, and may come too late though it came in time.

The window operator of a table function gathers records in the same way, with one phase too. It counts nothing that it
takes out of its buffer only after the close: where the grid of `next_flush` misses slice ends, records are lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.durations import HOUR, format_duration
from spark_jobs.eventtime.flink.wall_clock import (
    WallClockWindows,
    changes_clocks,
    changes_of,
    fires_at,
    offset_of,
    wall_clock,
)
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP
from spark_jobs.eventtime.windows import CumulativeWindows, RegularWindows, SlidingWindows, window_start


@dataclass(frozen=True, slots=True)
class Slices:
    """The pieces of time of which windows are made: each ends at `offset + k * step` (ms) of the `zone`'s wall clock.

    `flush_offset` is that of the grid at which buffers are looked at: Flink 1.20 forgets the windows' offset there.
    """

    step: int
    offset: int
    zone: ZoneInfo | None = None
    flush_offset: int = 0

    @classmethod
    def of(cls, windows: RegularWindows | WallClockWindows, *, flushes_by_offset: bool = True) -> Slices:
        """The slices of these windows. `flushes_by_offset`: Flink's behaviour since 2.0."""
        zone, regular = (windows.zone, windows.windows) if isinstance(windows, WallClockWindows) else (None, windows)
        step = regular.size
        if isinstance(regular, SlidingWindows):
            step = math.gcd(regular.size, regular.slide)
        elif isinstance(regular, CumulativeWindows):
            step = regular.step
        return cls(step, regular.offset, zone, regular.offset if flushes_by_offset else 0)

    @property
    def why_lost(self) -> str:
        """Why Flink itself loses records: buffers are not looked at when a slice ends; empty: it loses none."""
        if self.zone is None:
            misses = (self.offset - self.flush_offset) % self.step
            return "Flink before 2.0 forgets the windows' offset where it empties its buffers" if misses else ""
        if changes_clocks(self.zone):
            is_whole = all(offset % HOUR == 0 for offset in changes_of(self.zone))
            return "" if is_whole else f"Flink takes a change of {self.zone.key}'s clocks for one of an hour"
        if offset_of(self.zone) % self.step:
            return f"Flink empties its buffers at full {format_duration(self.step)} of UTC, not of {self.zone.key}"
        return ""

    def end(self, timestamp: int) -> int:
        """The end of the slice that an event time is in, in the wall clock's time."""
        shown = timestamp if self.zone is None else wall_clock(timestamp, self.zone)
        return window_start(shown, self.offset, self.step) + self.step

    def reached_at(self, end: int) -> int:
        """The watermark (epoch ms) that reaches a slice end."""
        return end - 1 if self.zone is None else fires_at(end - 1, self.zone)

    def next_flush(self, watermark: int) -> int:
        """The watermark (epoch ms) at which the buffer is looked at again (`getNextTriggerWatermark`).

        In a zone that does not change its clocks the grid is that of instants, not of the wall clock: with half hours
        it lies between the slices' ends.
        """
        if watermark == MAX_TIMESTAMP:
            return watermark
        if self.zone is not None and changes_clocks(self.zone):
            start = window_start(wall_clock(watermark, self.zone), self.flush_offset, self.step)
            due = fires_at(start + self.step - 1, self.zone)
        else:
            due = window_start(watermark, self.flush_offset, self.step) + self.step - 1
        return due if due > watermark else due + self.step
