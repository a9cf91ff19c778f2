"""When which partition was idle, as a simulated watermark found it: kept in few numbers, however long the history."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.eventtime.signals import PartitionStatusChanged, Signal

MAX_SPANS = 100


@dataclass
class IdleSpans:
    """How often a partition left the minimum, and the longest of these times: partition, from, to (epoch ms).

    An idle time begins at the tick that finds it, and ends with the record that brings the partition back, or with the
    history. `since` holds those that still last.
    """

    count: int = 0
    since: dict[int, int] = field(default_factory=dict)
    _longest: list[tuple[int, int, int, int]] = field(default_factory=list)

    def note(self, signals: Iterable[Signal], now: int) -> None:
        """What the source said at `now`."""
        for signal in signals:
            if not isinstance(signal, PartitionStatusChanged):
                continue
            if signal.idle:
                self.since.setdefault(signal.partition, now)
            elif signal.partition in self.since:
                self._add(signal.partition, self.since.pop(signal.partition), now)

    def ended(self, now: int) -> dict[str, Any]:
        """All of them at the end of the history, JSON-able: `count`, and `longest` as [partition, from, to]."""
        for partition, since in self.since.items():
            self._add(partition, since, now)
        self.since.clear()
        return {"count": self.count, "longest": [list(span[1:]) for span in sorted(self._longest, reverse=True)]}

    def _add(self, partition: int, start: int, end: int) -> None:
        self.count += 1
        heapq.heappush(self._longest, (end - start, partition, start, end))
        if len(self._longest) > MAX_SPANS:
            heapq.heappop(self._longest)


def joined(parts: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """The idle times of consecutive stretches of one history, as `IdleSpans.ended` gives each."""
    told = [part for part in parts if part is not None]
    if not told:
        return None
    spans = sorted((span for part in told for span in part["longest"]), key=lambda s: (s[1] - s[2], s))
    return {"count": sum(part["count"] for part in told), "longest": spans[:MAX_SPANS]}
