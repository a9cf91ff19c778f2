"""Windows and the assigners that give a timestamp its windows (golden rules 16 and 24).

A window is half-open, `[start, end)`: the end timestamp is exclusive, `end - 1` is the last timestamp
that belongs to it. All times are epoch milliseconds.

There are two families. `AlignedWindows` lie at the same times for every key; they answer how long they are and where
they start and end. Sessions follow the records of their key and merge. Spark's half of the assignment is in
`spark_jobs.replay.assign`.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import ClassVar, Protocol
from zoneinfo import ZoneInfo

from spark_jobs.eventtime.durations import DAY, MINUTE
from spark_jobs.eventtime.ranges import TimeRange
from spark_jobs.eventtime.spark.intervals import MICROS_PER_MS, CalendarInterval
from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP

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

    def late_by(self, timestamp: int) -> int:
        """The time (epoch ms) by which an element of this time, which entered no window, is late or not."""
        return timestamp

    def intersects(self, other: Window) -> bool:
        """Whether the two overlap or touch: exactly a gap apart is one session (golden rule 24)."""
        return self.start <= other.end and self.end >= other.start

    def cover(self, other: Window) -> Window:
        """The smallest window that contains both."""
        return Window(min(self.start, other.start), max(self.end, other.end))


class WindowAssigner(Protocol):
    """Gives a timestamp its windows."""

    is_merging: ClassVar[bool]
    """Whether windows that overlap or touch become one."""

    def assign(self, timestamp: int) -> Iterator[Window]:
        """The windows of a record with this event time. There may be none (slide > size)."""
        ...


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


class EventTimeWindows(ABC):
    """What all windows of a definition can say; the answers here are those of sessions, which lie where records are."""

    __slots__ = ()

    is_merging: ClassVar[bool] = True

    @property
    def end_phase(self) -> int:
        """Windows end at `end_phase + k * end_step` (ms), where they lie on such a grid."""
        return 0

    @property
    def fixed_length(self) -> int | None:
        """The length of every window (ms); None where they differ."""
        return None

    @property
    @abstractmethod
    def usual_step(self) -> int:
        """About how far apart two window ends lie (ms)."""

    def covering(self, times: TimeRange) -> TimeRange:
        """A range that holds every window of these event times, on the windows' own grid where it can."""
        return times

    def in_own_time(self, times: TimeRange) -> TimeRange:
        """These instants in the time in which the windows' bounds are said, which may be a wall clock's."""
        return times

    def closed_until(self, watermark: int) -> int:
        """The last end that a watermark below this one (epoch ms) closes, in the windows' own time."""
        return watermark


class AlignedWindows(EventTimeWindows):
    """Windows that lie at the same times for every key and do not depend on the records."""

    __slots__ = ()

    is_merging: ClassVar[bool] = False

    assigns_one: ClassVar[bool] = False
    """Whether each record is in exactly one window."""

    @property
    def leaves_gaps(self) -> bool:
        """Whether some event times are in no window."""
        return False

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most milliseconds that one window covers."""

    @property
    @abstractmethod
    def end_step(self) -> int:
        """Any two window ends lie a multiple of this apart (ms)."""

    @abstractmethod
    def assign(self, timestamp: int) -> Iterator[Window]:
        """The windows of a record with this event time. There may be none (slide > size)."""

    def beginning_at(self, start: int) -> Iterator[Window]:
        """The windows that hold this time of their own."""
        return self.assign(start)

    @abstractmethod
    def first_start_at_or_after(self, time: int) -> int:
        """The first instant at or after `time` at which a window can start (epoch ms)."""

    def covering(self, times: TimeRange) -> TimeRange:
        first, last = list(self.assign(times.start)), list(self.assign(times.end - 1))
        start = min((window.start for window in first), default=times.start - self.longest)
        end = max((window.end for window in last), default=times.end + self.longest)
        return TimeRange(start, end)


class RegularWindows(AlignedWindows):
    """Aligned windows whose starts and ends lie at fixed distances, as instants."""

    __slots__ = ()

    size: int
    """The length of the longest window (ms)."""

    offset: int

    @property
    def start_step(self) -> int:
        """Windows start at `offset + k * start_step` (ms)."""
        return self.size

    @property
    def end_step(self) -> int:
        return self.start_step

    @property
    def fixed_length(self) -> int | None:
        return self.size

    @property
    def end_phase(self) -> int:
        return (self.offset + self.size) % self.end_step

    @property
    def usual_step(self) -> int:
        return self.end_step

    @property
    def longest(self) -> int:
        return self.size

    def first_start_at_or_after(self, time: int) -> int:
        return time + (self.offset - time) % self.start_step


@dataclass(frozen=True, slots=True)
class TumblingWindows(RegularWindows):
    """One window a record; `offset` shifts the grid."""

    size: int
    offset: int = 0
    assigns_one = True

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.size)
        yield Window(start, start + self.size)


@dataclass(frozen=True, slots=True)
class SlidingWindows(RegularWindows):
    """Every start on the slide grid with `ts - size < start <= ts`; none where slide > size leaves a gap."""

    size: int
    slide: int
    offset: int = 0

    @property
    def start_step(self) -> int:
        return self.slide

    @property
    def leaves_gaps(self) -> bool:
        return self.slide > self.size

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.slide)
        while start > timestamp - self.size:
            yield Window(start, start + self.size)
            start -= self.slide


@dataclass(frozen=True, slots=True)
class CumulativeWindows(RegularWindows):
    """Windows that share a start and end at every `step` after it, up to `size`; `step` divides `size`."""

    size: int
    step: int
    offset: int = 0

    @property
    def end_step(self) -> int:
        return self.step

    @property
    def fixed_length(self) -> None:
        return None

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        start = window_start(timestamp, self.offset, self.size)
        first_end = start + ((timestamp - start) // self.step + 1) * self.step
        for end in range(first_end, start + self.size + 1, self.step):
            yield Window(start, end)


@functools.cache
def _dates_mislead(zone: ZoneInfo) -> bool:
    """Whether clocks change over midnight, as from 00:01 back to 23:01, in the years 1900 to 2099."""
    midnights = (datetime(1900, 1, 1, tzinfo=zone) + timedelta(days=day) for day in range(200 * 365))
    return any(_changes_over(midnight) for midnight in midnights)


def _changes_over(midnight: datetime) -> bool:
    """Whether the clock shows an earlier date behind this midnight, or its date before it; within three hours."""

    def local(minutes: int) -> datetime:
        return (start + timedelta(minutes=minutes)).astimezone(midnight.tzinfo)

    start = midnight.astimezone(UTC)
    if local(-180).utcoffset() == local(180).utcoffset():
        return False
    return any((local(minutes).date() >= midnight.date()) != (minutes >= 0) for minutes in range(-180, 180))


@dataclass(frozen=True, slots=True)
class CalendarDayWindows(AlignedWindows):
    """Windows of whole local days in a time zone; a day of a clock change has 23 or 25 hours.

    A day starts when local clocks show midnight plus `offset` (ms; below zero: before midnight), as Flink shifts
    windows in local time. Where a clock change skips that time, the day starts later by what is skipped (02:30 is
    03:30 then); where clocks show it twice, at the first one. Windows of `days` > 1 are counted from 1970-01-01,
    local date.
    """

    time_zone: ZoneInfo
    days: int = 1
    offset: int = 0
    assigns_one = True

    @property
    def usual_step(self) -> int:
        return DAY

    @property
    def longest(self) -> int:
        return (self.days + 1) * DAY

    @property
    def end_step(self) -> int:
        """Local midnights lie on quarters of an hour of UTC."""
        return 900_000

    def assign(self, timestamp: int) -> Iterator[Window]:
        _require_timestamp(timestamp)
        index = self.day_index(timestamp)
        yield Window(self.day_start(index), self.day_start(index + 1))

    def first_start_at_or_after(self, time: int) -> int:
        window = next(self.assign(time))
        return window.start if window.start == time else window.end

    def day_index(self, timestamp: int) -> int:
        """The number of the window that holds the timestamp."""
        utc = datetime.fromtimestamp(timestamp // 1000, UTC).replace(microsecond=timestamp % 1000 * 1000)
        shifted = utc.astimezone(self.time_zone).replace(tzinfo=None) - timedelta(milliseconds=self.offset)
        index = (shifted.date() - _EPOCH).days // self.days
        # Clocks that are put back can show the times before a start once more behind it, also before midnight.
        if timestamp >= self.day_start(index + 1):
            return index + 1
        return index - 1 if timestamp < self.day_start(index) else index

    @property
    def follows_dates(self) -> bool:
        """Whether the local date alone gives the window: clocks never change over the start of a day."""
        return not self.offset and not _dates_mislead(self.time_zone)

    def day_start(self, index: int) -> int:
        """Epoch milliseconds of the local time at which window number `index` starts."""
        day = _EPOCH + timedelta(days=index * self.days)
        start = datetime(day.year, day.month, day.day) + timedelta(milliseconds=self.offset)
        moment = start.replace(tzinfo=self.time_zone)
        return int(moment.replace(microsecond=0).timestamp()) * 1000 + moment.microsecond // 1000


@dataclass(frozen=True, slots=True)
class SessionWindows(EventTimeWindows):
    """`[ts, ts + gap)`, merged with what it overlaps or touches. A missing timestamp is not refused (rule 29)."""

    gap: int

    @property
    def usual_step(self) -> int:
        return max(self.gap, MINUTE)

    @property
    def longest_gap(self) -> int:
        """No gap is longer (ms)."""
        return self.gap

    def assign(self, timestamp: int) -> Iterator[Window]:
        yield Window(timestamp, timestamp + self.gap)


@dataclass(frozen=True, slots=True)
class DynamicSessionWindows(EventTimeWindows):
    """Sessions whose gap differs by record: `[ts, ts + gap of the record)`, merged as `SessionWindows` are.

    A timestamp alone does not give the window, so this is no `WindowAssigner`. `gap_expression` is the SQL expression
    with which the engine computes each record's gap (ms).
    """

    gap_expression: str

    @property
    def usual_step(self) -> int:
        return MINUTE

    @property
    def longest_gap(self) -> None:
        """Gaps by expression have no bound."""
        return None


@dataclass(frozen=True, slots=True)
class CalendarSessionWindows(EventTimeWindows):
    """Sessions whose gap is an interval of a time zone's calendar: `[ts, ts + 1 day)` (Spark rule 30)."""

    gap: CalendarInterval
    time_zone: ZoneInfo

    @property
    def usual_step(self) -> int:
        return max(self.gap.fixed_ms, MINUTE)

    @property
    def longest_gap(self) -> int:
        """No gap is longer (ms); a change of the clock moves its end by a day at most."""
        return self.gap.fixed_ms + DAY

    def assign(self, timestamp: int) -> Iterator[Window]:
        micros = self.gap.added_to(timestamp * MICROS_PER_MS, self.time_zone)
        yield Window(timestamp, micros // MICROS_PER_MS)


AnySessionWindows = SessionWindows | DynamicSessionWindows | CalendarSessionWindows
AnyWindows = AlignedWindows | AnySessionWindows
