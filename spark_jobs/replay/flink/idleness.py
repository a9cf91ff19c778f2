"""When partitions were idle, from a simulated watermark: a short summary, however long the history."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.eventtime.flink.signals import PartitionStatusChanged, Signal

MAX_SPANS = 100


@dataclass
class IdleSpans:
    """How often a partition was idle, and the longest of these times: partition, from, to (epoch ms).

    An idle time begins at the tick that notices it. It ends with the record that makes the partition active again, or
    with the history. `since` holds those that have not ended.
    """

    count: int = 0
    since: dict[int, int] = field(default_factory=dict)
    _longest: list[tuple[int, int, int, int]] = field(default_factory=list)

    def note(self, signals: Iterable[Signal], now: int) -> None:
        """Add the source's signals at `now` (epoch ms)."""
        for signal in signals:
            if not isinstance(signal, PartitionStatusChanged):
                continue
            if signal.idle:
                self.since.setdefault(signal.partition, now)
            elif signal.partition in self.since:
                self._add(signal.partition, self.since.pop(signal.partition), now)

    def summary(self, end: int) -> dict[str, Any]:
        """The idle times of a history that ends at `end`, for JSON: `count`, and `longest` as [partition, from, to]."""
        for partition, since in self.since.items():
            self._add(partition, since, end)
        self.since.clear()
        return {"count": self.count, "longest": [list(span[1:]) for span in sorted(self._longest, reverse=True)]}

    def _add(self, partition: int, start: int, end: int) -> None:
        self.count += 1
        heapq.heappush(self._longest, (end - start, partition, start, end))
        if len(self._longest) > MAX_SPANS:
            heapq.heappop(self._longest)


def merged_summaries(parts: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The summary of one history from those of its consecutive parts (see `IdleSpans.summary`)."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    spans = sorted((span for part in known for span in part["longest"]), key=lambda s: (s[1] - s[2], s))
    return {"count": sum(part["count"] for part in known), "longest": spans[:MAX_SPANS]}
