"""Watermark generators for the `custom` cases, named there as `tests.golden.custom_generators:ClassName`.

The protocol: keyword parameters; `on_event` after each record, `on_periodic_emit` at each tick of the timer (if
there is one) unless the partition is idle; both may emit any number of watermarks, and a lower one than before
changes nothing. Their attributes are plain JSON values, so that a run can be cut anywhere and carried on.
Times are epoch milliseconds.
"""

from __future__ import annotations

from typing import Protocol


class WatermarkOutput(Protocol):
    def emit_watermark(self, watermark: int) -> None: ...


class HandWrittenBound:
    """Bounded out-of-orderness once more: highest timestamp - bound - 1, said `on` each `event` or each `tick`."""

    def __init__(self, bound_ms: int, on: str) -> None:
        self.bound_ms = bound_ms
        self.on = on
        self.highest: int | None = None

    def on_event(self, timestamp: int, arrival: int, output: WatermarkOutput) -> None:
        self.highest = timestamp if self.highest is None else max(self.highest, timestamp)
        if self.on == "event":
            output.emit_watermark(self.highest - self.bound_ms - 1)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        if self.on == "tick" and self.highest is not None:
            output.emit_watermark(self.highest - self.bound_ms - 1)


class LowestOfLast:
    """The lowest of the last `count` timestamps - 1, after each record: it goes back when an old record comes."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.recent: list[int] = []

    def on_event(self, timestamp: int, arrival: int, output: WatermarkOutput) -> None:
        self.recent = [*self.recent, timestamp][-self.count :]
        output.emit_watermark(min(self.recent) - 1)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        pass


class EveryNth:
    """On every n-th record two watermarks: highest timestamp - 2 * lag, then highest timestamp - lag."""

    def __init__(self, n: int, lag_ms: int) -> None:
        self.n = n
        self.lag_ms = lag_ms
        self.seen = 0
        self.highest: int | None = None

    def on_event(self, timestamp: int, arrival: int, output: WatermarkOutput) -> None:
        self.seen += 1
        self.highest = timestamp if self.highest is None else max(self.highest, timestamp)
        if self.seen % self.n == 0:
            output.emit_watermark(self.highest - 2 * self.lag_ms)
            output.emit_watermark(self.highest - self.lag_ms)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        pass


class DriftingClock:
    """Speaks at records and at ticks: records set an event-time clock, ticks let it run by the time since arrival.

    At a tick: highest timestamp - lag + (now - arrival of the record that set it). On a record with a new highest
    timestamp: that timestamp - lag.
    """

    def __init__(self, lag_ms: int = 0) -> None:
        self.lag_ms = lag_ms
        self.highest: int | None = None
        self.set_at = 0

    def on_event(self, timestamp: int, arrival: int, output: WatermarkOutput) -> None:
        if self.highest is None or timestamp > self.highest:
            self.highest = timestamp
            self.set_at = arrival
            output.emit_watermark(timestamp - self.lag_ms)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        if self.highest is not None:
            output.emit_watermark(self.highest - self.lag_ms + now - self.set_at)
