"""The signals that a source sends to the window operator: watermarks and changes of status."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WatermarkEmitted:
    """A watermark (epoch ms), larger than all before it."""

    watermark: int


@dataclass(frozen=True, slots=True)
class StreamStatusChanged:
    """The whole stream becomes idle or active."""

    idle: bool


@dataclass(frozen=True, slots=True)
class PartitionStatusChanged:
    """One partition becomes idle, and no longer holds the watermark back, or becomes active again."""

    partition: int
    idle: bool


StreamSignal = WatermarkEmitted | StreamStatusChanged
"""What travels through the stream: from a subtask to the valve, and from the valve to the window operator."""

Signal = StreamSignal | PartitionStatusChanged
"""All that a source reports; the status of a partition stays before the windows."""
