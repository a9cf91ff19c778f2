"""Watermark generators: the watermarks that one generator emits for the records it sees.

A generator is called with every record (`on_event`) and at every tick of the periodic timer (`on_periodic_emit`). It
emits through an `output`; the source (`spark_jobs.eventtime.flink.source`) combines, delays or drops what it emits.
Timestamps are epoch milliseconds; a record without a timestamp has `MIN_TIMESTAMP`, as in Flink.

`emits_on_event` is the job's emission mode: generators emit on each record, or else at ticks. The parameters that a
definition gives are in `spark_jobs.eventtime.flink.suppliers`.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from spark_jobs.eventtime.timestamps import MIN_TIMESTAMP


class WatermarkOutput(Protocol):
    """Where a generator emits to."""

    def emit_watermark(self, watermark: int) -> None:
        """Emit: no record with a timestamp at or below `watermark` is expected any more."""
        ...


@dataclass(frozen=True, slots=True)
class Event:
    """The part of a record that a generator may see: times in epoch ms, the marker flag, the logical stream."""

    timestamp: int
    arrival: int
    marker: bool = False
    stream: str | None = None


class WatermarkGenerator(Protocol):
    """One generator, for one partition (or one source subtask)."""

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        """A record was processed."""
        ...

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        """The periodic timer ticks at `now` (processing time, epoch ms)."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """The generator's state as values that JSON can hold."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a snapshot."""
        ...


class _Snapshot:
    """A generator whose state is the attributes named in `_state`."""

    _state: tuple[str, ...] = ()

    def snapshot(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._state}

    def restore(self, state: Mapping[str, Any]) -> None:
        for name in self._state:
            setattr(self, name, state[name])


class NoWatermarks(_Snapshot):
    """Never emits."""

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        pass

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        pass


@dataclass
class DelayedMaximum(_Snapshot):
    """`max ts - delay`: the family of Flink's built-in generators (rule 1).

    `delay` is 1 for ascending timestamps, `bound + 1` for bounded out-of-orderness, `lag` for the legacy
    convention without the 1 ms.
    """

    delay: int
    emits_on_event: bool
    maximum: int | None = None
    _state = ("maximum",)

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        floor = MIN_TIMESTAMP + self.delay
        self.maximum = max(floor if self.maximum is None else self.maximum, event.timestamp)
        if self.emits_on_event:
            output.emit_watermark(self.maximum - self.delay)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        floor = MIN_TIMESTAMP + self.delay
        output.emit_watermark((floor if self.maximum is None else self.maximum) - self.delay)


@dataclass
class PunctuatedMarkers(_Snapshot):
    """`ts - lag` on marker records, whatever the emission mode."""

    lag: int

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        if event.marker:
            output.emit_watermark(max(MIN_TIMESTAMP, event.timestamp - self.lag))

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        pass


@dataclass
class AdvanceAfterWait(_Snapshot):
    """Bounded out-of-orderness whose maximum advances by itself after a quiet `wait` (rule 8).

    Each tick adds `interval` to a logical time that starts at the maximum with every record; once it is
    more than `wait` past that start, the maximum follows it.
    """

    bound: int
    wait: int
    interval: int
    emits_on_event: bool
    maximum: int = field(init=False)
    base: int = field(init=False)
    logical: int = field(init=False)
    _state = ("maximum", "base", "logical")

    def __post_init__(self) -> None:
        self.maximum = self.base = self.logical = MIN_TIMESTAMP + self.bound + 1

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        self.maximum = self.base = self.logical = max(self.maximum, event.timestamp)
        if self.emits_on_event:
            output.emit_watermark(self.maximum - self.bound - 1)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        self.logical += self.interval
        if self.logical - self.base > self.wait:
            self.maximum = self.logical
        output.emit_watermark(self.maximum - self.bound - 1)


@dataclass
class AverageOfLast(_Snapshot):
    """`floor(mean of the last N timestamps) - lag`; at first over fewer. Records without a timestamp do not count."""

    last: int
    lag: int
    emits_on_event: bool
    _recent: deque[int] = field(default_factory=deque)
    _total: int = 0

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        if event.timestamp == MIN_TIMESTAMP:
            return
        self._recent.append(event.timestamp)
        self._total += event.timestamp
        if len(self._recent) > self.last:
            self._total -= self._recent.popleft()
        if self.emits_on_event:
            self.on_periodic_emit(event.arrival, output)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        if self._recent:
            output.emit_watermark(self._total // len(self._recent) - self.lag)

    def snapshot(self) -> dict[str, Any]:
        return {"recent": list(self._recent)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._recent = deque(state["recent"])
        self._total = sum(self._recent)


@dataclass
class TimeLag(_Snapshot):
    """`processing time - lag`: the record's arrival per event, the tick's time when periodic."""

    lag: int
    emits_on_event: bool

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        if self.emits_on_event:
            output.emit_watermark(event.arrival - self.lag)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        if not self.emits_on_event:
            output.emit_watermark(now - self.lag)


@dataclass
class InterleavedStreams(_Snapshot):
    """`min over the logical streams of their max ts - bound - 1`.

    With `streams` listed, there is no watermark until all have been seen; otherwise the streams seen so far count. A
    stream that appears late can hold the watermark back but not lower it.
    """

    bound: int
    emits_on_event: bool
    streams: tuple[str, ...] = ()
    maxima: dict[str, int] = field(default_factory=dict)
    _state = ("maxima",)

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        if event.timestamp == MIN_TIMESTAMP:
            return
        stream = str(event.stream)
        self.maxima[stream] = max(self.maxima.get(stream, MIN_TIMESTAMP), event.timestamp)
        if self.emits_on_event:
            self.on_periodic_emit(event.arrival, output)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        counted = self.streams or tuple(self.maxima)
        if counted and all(stream in self.maxima for stream in counted):
            lowest = min(self.maxima[stream] for stream in counted)
            output.emit_watermark(max(MIN_TIMESTAMP, lowest - self.bound - 1))


class CustomGenerator:
    """A user's class, `module:Class`, with `on_event(timestamp, arrival, output)` and `on_periodic_emit(now, output)`.

    Its state is its attributes, which JSON must be able to hold.

    The class may also have `on_batch(timestamps, arrivals)`, over arrays of int64 (epoch ms; no timestamp:
    `MIN_TIMESTAMP`). It leaves the attributes that as many calls of `on_event` leave, and returns two arrays: after
    each record, the largest watermark that `on_event` emits, and the one that `on_periodic_emit` would emit;
    `MIN_TIMESTAMP` where there is none, None for an array of these. Then `on_periodic_emit` changes nothing, and does
    not look at `now`.
    """

    def __init__(self, reference: str, parameters: Mapping[str, Any]) -> None:
        module, _, name = reference.partition(":")
        self._delegate: Any = getattr(importlib.import_module(module), name)(**parameters)

    @property
    def on_batch(self) -> Any:
        """The class's second face; None where it has none."""
        return getattr(self._delegate, "on_batch", None)

    def on_event(self, event: Event, output: WatermarkOutput) -> None:
        self._delegate.on_event(event.timestamp, event.arrival, output)

    def on_periodic_emit(self, now: int, output: WatermarkOutput) -> None:
        self._delegate.on_periodic_emit(now, output)

    def snapshot(self) -> dict[str, Any]:
        return dict(self._delegate.__dict__)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._delegate.__dict__.update(state)
