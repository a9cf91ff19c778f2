"""The windows of Kafka Streams, in its own words (rules 4, 9, 12).

A hopping or tumbling window is `[start, end)`. The end of a sliding window or a session is inclusive: it is the last
millisecond that belongs to it. All times are epoch milliseconds, and no window starts before 0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class StreamsWindow:
    """The times of one window; whether `end` belongs to it depends on its kind."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class HoppingWindows:
    """`TimeWindows`: windows of `size` that start at the multiples of `advance`; tumbling where both are equal.

    Raises ValueError for what Kafka Streams refuses: an advance that is not positive or larger than the size.
    """

    size: int
    advance: int

    def __post_init__(self) -> None:
        if not 0 < self.advance <= self.size:
            raise ValueError(f"the advance must be above 0 and at most the size {self.size}, not {self.advance}")

    def of(self, timestamp: int) -> Iterator[StreamsWindow]:
        """The windows that hold `timestamp`, ascending (`TimeWindows.windowsFor`)."""
        first = max(0, timestamp - self.size + self.advance) // self.advance * self.advance
        for start in range(first, timestamp + 1, self.advance):
            yield StreamsWindow(start, start + self.size)

    @property
    def least_retention(self) -> int:
        """What a store must keep beside the grace."""
        return self.size


@dataclass(frozen=True, slots=True)
class BetweenEvents:
    """`SlidingWindows`: all records of a key that are at most `time_difference` apart, both ends inclusive."""

    time_difference: int

    def __post_init__(self) -> None:
        # The library takes 0, and fails at the first record: a window's end must be above its start.
        if self.time_difference <= 0:
            raise ValueError(f"the time difference must be above 0, not {self.time_difference}")

    @property
    def least_retention(self) -> int:
        """What a store must keep beside the grace: a record looks two differences back."""
        return 2 * self.time_difference


@dataclass(frozen=True, slots=True)
class Sessions:
    """`SessionWindows`: records of a key at most `gap` apart; a session is `[first, last]` with both ends inclusive."""

    gap: int

    def __post_init__(self) -> None:
        if self.gap <= 0:
            raise ValueError(f"the gap must be above 0, not {self.gap}")

    @property
    def least_retention(self) -> int:
        """What a store must keep beside the grace."""
        return self.gap


StreamsWindows = HoppingWindows | BetweenEvents | Sessions
