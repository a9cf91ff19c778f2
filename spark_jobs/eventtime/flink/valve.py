"""The minimum over source subtasks, as Flink's `StatusWatermarkValve` takes it (golden rules 6, 12 to 15)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from spark_jobs.eventtime.flink.signals import StreamSignal, StreamStatusChanged, WatermarkEmitted
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP


@dataclass(slots=True)
class Channel:
    """The state of one input of the valve."""

    watermark: int = MIN_TIMESTAMP
    active: bool = True
    aligned: bool = True


class StatusWatermarkValve:
    """Combines the watermarks and statuses of its input channels, one channel for each source subtask.

    The output is the minimum over the aligned channels. A channel that becomes active again behind the last output is
    not aligned: it is ignored until it has caught up. Each input method returns the signals that come out, in order.
    """

    def __init__(self, channels: int) -> None:
        self.channels = [Channel() for _ in range(channels)]
        self.last_watermark = MIN_TIMESTAMP
        self.idle = False

    def input_signal(self, index: int, signal: StreamSignal) -> list[StreamSignal]:
        """A signal arrives on channel `index`."""
        match signal:
            case WatermarkEmitted(watermark):
                return self._input_watermark(index, watermark)
            case StreamStatusChanged(idle):
                return self._input_status(index, idle)

    def end_of_input(self) -> list[StreamSignal]:
        """All channels send MAX_WATERMARK at the same time (rule 23); that of an idle channel is dropped (rule 15)."""
        if self.idle:
            return []
        for channel in self.channels:
            if channel.active:
                channel.watermark = MAX_TIMESTAMP
                channel.aligned = True
        return self._advance_to_minimum()

    def _input_watermark(self, index: int, watermark: int) -> list[StreamSignal]:
        channel = self.channels[index]
        if self.idle or not channel.active or watermark <= channel.watermark:
            return []
        channel.watermark = watermark
        if not channel.aligned and watermark >= self.last_watermark:
            channel.aligned = True
        return self._advance_to_minimum()

    def _input_status(self, index: int, idle: bool) -> list[StreamSignal]:
        channel = self.channels[index]
        if idle == (not channel.active):
            return []
        out: list[StreamSignal] = []
        if idle:
            channel.active = channel.aligned = False
            is_last_watermark = channel.watermark == self.last_watermark
            if not any(c.active for c in self.channels):
                if is_last_watermark:
                    out += self._advance(max(c.watermark for c in self.channels))
                self.idle = True
                out.append(StreamStatusChanged(idle=True))
            elif is_last_watermark:
                out += self._advance_to_minimum()
        else:
            channel.active = True
            channel.aligned = channel.watermark >= self.last_watermark
            if self.idle:
                self.idle = False
                out.append(StreamStatusChanged(idle=False))
        return out

    def _advance_to_minimum(self) -> list[StreamSignal]:
        aligned = [c.watermark for c in self.channels if c.aligned]
        return self._advance(min(aligned)) if aligned else []

    def _advance(self, watermark: int) -> list[StreamSignal]:
        if watermark <= self.last_watermark:
            return []
        self.last_watermark = watermark
        return [WatermarkEmitted(watermark)]

    def snapshot(self) -> dict[str, Any]:
        """The valve's state as values that JSON can hold."""
        return {
            "channels": [asdict(c) for c in self.channels],
            "last_watermark": self.last_watermark,
            "idle": self.idle,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot of a valve with as many channels."""
        self.channels = [Channel(**c) for c in state["channels"]]
        self.last_watermark = state["last_watermark"]
        self.idle = state["idle"]
