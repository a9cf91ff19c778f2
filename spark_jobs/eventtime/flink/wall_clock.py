"""Windows in a time zone's wall clock, as Flink SQL lays them over `TIMESTAMP_LTZ` (`TimeWindowUtil`).

A window's `start` and `end` are what the zone's clocks show, as if that were UTC: an hour that clocks show twice is one
window with the records of both, one that they skip has none. When such a window closes is an instant: see `fires_at`.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Self
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.durations import DAY, HOUR, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import AlignedWindows, RegularWindows, SessionWindows, Window

_EPOCH = datetime(1970, 1, 1)
_NEAR = 3 * HOUR
"""No clock is changed by more."""
_FAR = 60_000_000_000_000
"""No clock tells times so far from 1970 (ms)."""
_LATER = 2400
"""A year of which no table knows anything: only a zone's standing rule does."""


def wall_clock(instant: int, zone: ZoneInfo) -> int:
    """What the zone's clocks show at an instant (epoch ms), in ms as if it were UTC (`toUtcTimestampMills`)."""
    offset = datetime.fromtimestamp(instant // 1000, UTC).astimezone(zone).utcoffset() or timedelta(0)
    return instant + offset // timedelta(milliseconds=1)


def _instant(shown: int, zone: ZoneInfo) -> int:
    """The instant (epoch ms) of a wall clock's time; of two the first, of a skipped one as much behind the change."""
    moment = (_EPOCH + timedelta(milliseconds=shown)).replace(tzinfo=zone)
    return shown - (moment.utcoffset() or timedelta(0)) // timedelta(milliseconds=1)


@functools.cache
def _standing_offsets(zone: ZoneInfo) -> frozenset[int]:
    """The offsets from UTC (ms) that the zone's standing rule gives."""
    months = (datetime(_LATER, month, 1, tzinfo=zone) for month in range(1, 13))
    return frozenset((month.utcoffset() or timedelta(0)) // timedelta(milliseconds=1) for month in months)


def changes_clocks(zone: ZoneInfo) -> bool:
    """Whether the zone still changes its clocks each year, by its standing rule (Java's `useDaylightTime`)."""
    return len(_standing_offsets(zone)) > 1


def changes_of(zone: ZoneInfo) -> tuple[int, ...]:
    """By how much the zone changes its clocks (ms)."""
    least, *others = sorted(_standing_offsets(zone))
    return tuple(offset - least for offset in others)


@functools.cache
def offsets_of(zone: ZoneInfo) -> frozenset[int]:
    """The offsets from UTC (ms) that the zone has had since 1970."""
    months = (datetime(year, month, 1, tzinfo=zone) for year in range(1970, 2038) for month in range(1, 13))
    return frozenset((month.utcoffset() or timedelta(0)) // timedelta(milliseconds=1) for month in months)


def offset_of(zone: ZoneInfo) -> int:
    """The smallest offset from UTC (ms) of the zone's standing rule."""
    return min(_standing_offsets(zone))


def fires_at(last: int, zone: ZoneInfo) -> int:
    """The watermark (epoch ms) at which a window fires whose last wall clock's time is `last`.

    As `toEpochMillsForTimer` has it, for zones whose clocks change by an hour: a skipped time is that of the change,
    one that comes twice is the second.
    """
    if last == MAX_TIMESTAMP:
        return last
    first = _instant(last, zone)
    if not changes_clocks(zone):
        return first
    next_hour = _instant(last + HOUR, zone)
    if first == next_hour:
        return first - first % HOUR
    return first + HOUR if next_hour - first > HOUR else first


@functools.cache
def disorder(zone: ZoneInfo) -> int:
    """A window closes at most this much (ms) before one that ends earlier; 0 where clocks change by an hour alone."""
    most, step = 0, 15 * MINUTE
    for around in _around_changes(zone):
        latest = 0
        for fires in (fires_at(time, zone) for at in range(around.start, around.end, step) for time in (at - 1, at)):
            latest = max(latest, fires)
            most = max(most, latest - fires)
    return most + step if most else 0


def _around_changes(zone: ZoneInfo) -> Iterator[TimeRange]:
    """What the zone's clocks show in the hours around each change since 1970."""
    days = range(0, 68 * 366 * DAY, DAY)
    ahead = [_ahead(day, zone) for day in days]
    for day, before, after in zip(days, ahead, ahead[1:], strict=False):
        if before != after:
            minute = bisect_left(range(DAY // MINUTE), True, key=lambda at: _ahead(day + at * MINUTE, zone) != before)
            shown = (day + minute * MINUTE + before, day + minute * MINUTE + after)
            yield TimeRange(min(shown) - _NEAR, max(shown) + _NEAR)


def _ahead(instant: int, zone: ZoneInfo) -> int:
    return wall_clock(instant, zone) - instant


def _shown_within(times: TimeRange, zone: ZoneInfo) -> TimeRange:
    """What clocks show within these instants; one that is put back within has shown later times before the end."""
    last = times.end - 1
    low = times.start + min(_ahead(times.start, zone), _ahead(times.start + _NEAR, zone))
    return TimeRange(low, last + max(_ahead(last, zone), _ahead(last - _NEAR, zone)) + 1)


def _closed_until(watermark: int, zone: ZoneInfo) -> int:
    if not -_FAR < watermark < _FAR:
        return watermark
    reached = watermark - disorder(zone)
    shown = wall_clock(reached, zone) - HOUR
    return shown + bisect_left(range(HOUR), reached, key=lambda ms: fires_at(shown + ms, zone))


@dataclass(frozen=True, slots=True, order=True)
class WallClockWindow(Window):
    """A window whose bounds are a wall clock's times; it closes at the instant that belongs to its last one."""

    zone: ZoneInfo = field(compare=False)

    @property
    def max_timestamp(self) -> int:
        """The watermark at which the window fires (epoch ms)."""
        return fires_at(self.end - 1, self.zone)

    def late_by(self, timestamp: int) -> int:
        """Flink SQL drops each element that enters no window: it has no late side output."""
        return MIN_TIMESTAMP

    def cover(self, other: Window) -> Self:
        """The smallest window that contains both."""
        return type(self)(min(self.start, other.start), max(self.end, other.end), self.zone)


@dataclass(frozen=True, slots=True)
class WallClockWindows(AlignedWindows):
    """Aligned windows in a wall clock's time. `windows` lay them over the times that the zone's clocks show."""

    windows: RegularWindows
    zone: ZoneInfo

    def assign(self, timestamp: int) -> Iterator[WallClockWindow]:
        """The windows of a record with this event time (epoch ms)."""
        for window in self.windows.assign(wall_clock(timestamp, self.zone)):
            yield WallClockWindow(window.start, window.end, self.zone)

    @property
    def leaves_gaps(self) -> bool:
        return self.windows.leaves_gaps

    @property
    def longest(self) -> int:
        return self.windows.longest

    @property
    def end_step(self) -> int:
        return self.windows.end_step

    @property
    def end_phase(self) -> int:
        return self.windows.end_phase

    @property
    def fixed_length(self) -> int | None:
        return self.windows.fixed_length

    @property
    def usual_step(self) -> int:
        return self.windows.usual_step

    def covering(self, times: TimeRange) -> TimeRange:
        return self.windows.covering(self.in_own_time(times))

    def in_own_time(self, times: TimeRange) -> TimeRange:
        return _shown_within(times, self.zone)

    def closed_until(self, watermark: int) -> int:
        return _closed_until(watermark, self.zone)

    def beginning_at(self, start: int) -> Iterator[Window]:
        return self.windows.assign(start)

    def first_start_at_or_after(self, time: int) -> int:
        """The first time of the wall clock at or after `time` at which a window can start."""
        return self.windows.first_start_at_or_after(time)


@dataclass(frozen=True, slots=True)
class WallClockSessions(SessionWindows):
    """Sessions in a wall clock's time: `[shown, shown + gap)`, merged with what it overlaps or touches."""

    zone: ZoneInfo

    def assign(self, timestamp: int) -> Iterator[WallClockWindow]:
        """The window of a record with this event time (epoch ms)."""
        shown = wall_clock(timestamp, self.zone)
        yield WallClockWindow(shown, shown + self.gap, self.zone)

    def covering(self, times: TimeRange) -> TimeRange:
        return self.in_own_time(times)

    def in_own_time(self, times: TimeRange) -> TimeRange:
        return _shown_within(times, self.zone)

    def closed_until(self, watermark: int) -> int:
        return _closed_until(watermark, self.zone)
