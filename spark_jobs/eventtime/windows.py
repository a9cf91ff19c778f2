"""Windows and the assigners that give a timestamp its windows (golden rules 16 and 24).

A window is half-open, `[start, end)`: the end timestamp is exclusive, `end - 1` is the last timestamp
that belongs to it. All times are epoch milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP

DAY_MS = 86_400_000
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """`[start, end)` in epoch milliseconds."""

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last timestamp that belongs to the window: `end - 1`."""
        return self.end - 1

    def intersects(self, other: Window) -> bool:
        """Whether the two overlap or touch: exactly a gap apart is one session (golden rule 24)."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: Window) -> Window:
        """The smallest window that contains both."""
        return Window(min(self.start, other.start), max(self.end, other.end))


class WindowAssigner(Protocol):
    """Gives a timestamp its windows."""

    is_merging: bool

    def assign(self, timestamp: int) -> Iterator[Window]:
        """The windows of a record with this event time; none is possible (slide > size)."""


class MissingTimestampError(Exception):
    """A record without a timestamp reached an assigner that needs one (golden rule 29)."""

    java_class = "java.lang.RuntimeException"

    def __init__(self) -> None:
        super().__init__(
            "Record has Long.MIN_VALUE timestamp (= no timestamp marker). "
            "Did you forget to call 'DataStream.assignTimestampsAndWatermarks(...)'?"
        )


def window_start(timestamp: int, offset: int, size: int) -> int:
    """The start of the grid cell of `timestamp`: `ts - floorMod(ts - offset, size)`, below zero too."""
    return timestamp - (timestamp - offset) % size


def _require_timestamp(timestamp: int) -> None:
    if timestamp == MIN_TIMESTAMP:
        raise MissingTimestampError


@dataclass(frozen=True, slots=True)
class TumblingWindows:
    """One window a record; `offset` shifts the grid."""

    size: int
    offset: int = 0
    is_merging = False

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.size)
        yield Window(start, start + self.size)


@dataclass(frozen=True, slots=True)
class SlidingWindows:
    """Every start on the slide grid with `ts - size < start <= ts`; none where slide > size leaves a gap."""

    size: int
    slide: int
    offset: int = 0
    is_merging = False

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.slide)
        while start > timestamp - self.size:
            yield Window(start, start + self.size)
            start -= self.slide


@dataclass(frozen=True, slots=True)
class CumulativeWindows:
    """All ends on the step grid behind `ts`, within the maximum window of length `size`."""

    size: int
    step: int
    offset: int = 0
    is_merging = False

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.size)
        first_end = start + ((timestamp - start) // self.step + 1) * self.step
        for end in range(first_end, start + self.size + 1, self.step):
            yield Window(start, end)


@dataclass(frozen=True, slots=True)
class CalendarDayWindows:
    """Windows of whole local days in a time zone; a day of a clock change has 23 or 25 hours.

    Local midnight that a clock change skips is the first instant after it; windows of `days` > 1 are
    counted from 1970-01-01, local date.
    """

    time_zone: ZoneInfo
    days: int = 1
    is_merging = False

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        local = datetime.fromtimestamp(timestamp // 1000, UTC).astimezone(self.time_zone).date()
        index = (local - _EPOCH).days // self.days
        yield Window(self.day_start(index), self.day_start(index + 1))

    def day_start(self, index: int) -> int:
        """Epoch milliseconds of the local midnight at which window number `index` starts."""
        day = _EPOCH + timedelta(days=index * self.days)
        midnight = datetime(day.year, day.month, day.day, tzinfo=self.time_zone)
        return int(midnight.timestamp()) * 1000


@dataclass(frozen=True, slots=True)
class SessionWindows:
    """`[ts, ts + gap)`, merged with what it overlaps or touches. A missing timestamp is not refused (rule 29)."""

    gap: int
    is_merging = True

    def assign(self, timestamp: int) -> Iterator[Window]:
        yield Window(timestamp, timestamp + self.gap)
