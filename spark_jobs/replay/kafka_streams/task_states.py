"""From where a task can be run again, so that a later run need not read its partition from the start.

Of a window that can still change, all records are read again; of sliding windows those of its neighbours too. So a task
begins before the first of them, with the times that it had there (`TaskPoint`), and without any window. Windows that
hold earlier records come out wrong, and are left out: they had ended so long before that the store has deleted them.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from spark_jobs.eventtime.kafka_streams.store import StoreTimes
from spark_jobs.eventtime.kafka_streams.task import TaskTimes, Topology
from spark_jobs.eventtime.kafka_streams.windows import BetweenEvents

_MOST_POINTS = 128
_MOST_STEPS = 512
_MOST_BETWEEN = 1024
"""The most records between two points."""


class TaskPoint(NamedTuple):
    """A task before the record with this `offset`, or a later one.

    `life_from`: the offset of the first record that it has read since it began or was restarted. `restarted`: the
    numbers of the restarts that lie before.
    """

    offset: int
    life_from: int
    times: TaskTimes
    restarted: tuple[int, ...]


class Reach(NamedTuple):
    """No window that ends at `end` (epoch ms) or later holds a record before `offset`."""

    end: int
    offset: int


@dataclass(frozen=True, slots=True)
class TaskState:
    """What a task has come to at the end of its log.

    `undecided_from`: windows that end before it (epoch ms) cannot change any more, and have come out if they ever will.
    `points` and `reach` ascend; the last point is the end of the log. `is_past_restarts`: none lies behind the log.
    """

    undecided_from: int
    points: tuple[TaskPoint, ...]
    reach: tuple[Reach, ...]
    is_past_restarts: bool

    def point(self, end: int, topology: Topology) -> TaskPoint:
        """From where the task comes to all windows that end at `end` (epoch ms) or later."""
        # A sliding window is made behind the record before, which is found in a window that ends there.
        windows = topology.windows
        around = 3 * windows.time_difference if isinstance(windows, BetweenEvents) else 0
        at = bisect_right(self.reach, end - around, key=lambda reach: reach.end) - 1
        offset = self.reach[max(0, at)].offset if self.reach else self.points[-1].offset
        return self.points[bisect_right(self.points, offset, key=lambda point: point.offset) - 1]

    def to_json(self) -> dict[str, Any]:
        """Values that JSON can hold; `from_json` reads them."""
        points = [
            [p.offset, p.life_from, [*p.times[:1], *p.times.store, *p.times[2:]], p.restarted] for p in self.points
        ]
        return {
            "undecided_from": self.undecided_from,
            "points": points,
            "reach": self.reach,
            "past": self.is_past_restarts,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> TaskState:
        points = (
            TaskPoint(offset, life, TaskTimes(times[0], StoreTimes(*times[1:3]), *times[3:]), tuple(restarted))
            for offset, life, times, restarted in document["points"]
        )
        reach = tuple(Reach(*one) for one in document["reach"])
        return cls(document["undecided_from"], tuple(points), reach, document["past"])


@dataclass(slots=True)
class StateKeeper:
    """Gathers the state of one task while it runs."""

    topology: Topology
    _points: list[TaskPoint] = field(default_factory=list[TaskPoint])
    _every: int = 1
    _read: int = 0
    _least: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def _cell(self) -> int:
        return self.topology.store_retention.segment

    def is_due(self) -> bool:
        """Whether a point is to be added before the record that is read now."""
        self._read += 1
        return (self._read - 1) % self._every == 0

    def add(self, point: TaskPoint) -> None:
        """A record is about to be read. The further a point lies back, the fewer of its neighbours are kept."""
        self._points.append(point)
        if len(self._points) > _MOST_POINTS:
            half = len(self._points) // 2
            self._points = self._points[:half:2] + self._points[half:]
            self._every = min(self._every * 2, _MOST_BETWEEN)

    def holds(self, end: int, offset: int) -> None:
        """A window that ends at `end` holds the record with this offset, and none before it."""
        cell = end // self._cell
        self._least[cell] = min(offset, self._least.get(cell, offset))

    def state(self, undecided_from: int, last: TaskPoint, *, is_past_restarts: bool) -> TaskState:
        """The state at the end of the log; `last`: the point behind it."""
        reach: list[Reach] = []
        for cell in sorted(self._least, reverse=True):
            first = min(self._least[cell], reach[-1].offset) if reach else self._least[cell]
            if reach and (first == reach[-1].offset or len(reach) == _MOST_STEPS):
                reach[-1] = Reach(cell * self._cell, first)
            else:
                reach.append(Reach(cell * self._cell, first))
        return TaskState(undecided_from, (*self._points, last), tuple(reversed(reach)), is_past_restarts)
