"""The window operator, one record at a time, after Flink's `WindowOperator`.

The Spark engine is tested against it, and runs it for sessions that set operations cannot decide. A window's contents
are the list of its elements, so that a caller can compute any aggregate of any pane.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

from spark_jobs.eventtime.flink.lateness import cleanup_time, is_element_late, is_merge_too_late, is_window_late
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.eventtime.windows import Window, WindowAssigner

E = TypeVar("E")


class MergeTooLateError(Exception):
    """A session merge that Flink refuses by failing the job (golden rule 28)."""

    java_class = "java.lang.UnsupportedOperationException"

    def __init__(self, merged: Window, watermark: int) -> None:
        super().__init__(
            "The end timestamp of an event-time window cannot become earlier than the current watermark "
            f"by merging. Current watermark: {watermark} "
            f"window: TimeWindow{{start={merged.start}, end={merged.end}}}"
        )


@dataclass(frozen=True, slots=True)
class Firing(Generic[E]):
    """One emission of one window: `pane` 0 is the first of exactly this (key, start, end).

    `watermark` is the operator's at that time (`MIN_TIMESTAMP`: none yet). `by_element`: a late element fired the
    window at once (rule 21), not a watermark. `contents` may have grown since; `count` of them came out.
    """

    key: Hashable
    window: Window
    pane: int
    watermark: int
    by_element: bool
    contents: Sequence[E]
    count: int

    @property
    def elements(self) -> tuple[E, ...]:
        """What came out: all contents at that time, in order of arrival."""
        return tuple(self.contents[: self.count])


class Processed(NamedTuple, Generic[E]):
    """What one element caused: firings at once, and whether it goes to the late output."""

    firings: list[Firing[E]]
    is_late: bool


@dataclass(slots=True)
class _KeyState(Generic[E]):
    contents: dict[Window, list[E]] = field(default_factory=dict[Window, list[E]])
    timers: dict[Window, set[int]] = field(default_factory=dict[Window, set[int]])


class WindowOperator(Generic[E]):
    """Windows with allowed lateness over keyed elements.

    Call `process` for each element and `advance_watermark` for each watermark, in the order of the live job. Both raise
    `MissingTimestampError` or `MergeTooLateError` where Flink fails the job.
    """

    def __init__(self, assigner: WindowAssigner, allowed_lateness: int) -> None:
        self._assigner = assigner
        self._lateness = allowed_lateness
        self._keys: dict[Hashable, _KeyState[E]] = {}
        self._queue: list[tuple[int, int, Hashable, Window]] = []
        self._sequence = 0
        self._panes: dict[tuple[Hashable, Window], int] = {}
        self.watermark = MIN_TIMESTAMP

    def process(self, key: Hashable, timestamp: int, element: E) -> Processed[E]:
        """Add one element to its windows; a window that has fired already fires again at once (rule 21)."""
        state = self._keys.setdefault(key, _KeyState())
        firings: list[Firing[E]] = []
        entered, late_by = False, timestamp
        for assigned in self._assigner.assign(timestamp):
            late_by = assigned.late_by(timestamp)
            window = self._merge(state, key, assigned) if self._assigner.is_merging else assigned
            if is_window_late(window, self._lateness, self.watermark):
                continue
            entered = True
            state.contents.setdefault(window, []).append(element)
            if window.max_timestamp <= self.watermark:
                firings.append(self._fire(key, window, state.contents[window], by_element=True))
            else:
                self._register_timer(state, key, window, window.max_timestamp)
            self._register_cleanup(state, key, window)
        late = not entered and is_element_late(late_by, self._lateness, self.watermark)
        return Processed(firings, late)

    def _merge(self, state: _KeyState[E], key: Hashable, added: Window) -> Window:
        """Merge a new session with those it overlaps or touches (rules 24 to 27)."""
        absorbed = [w for w in state.contents if w.intersects(added)]
        merged = added
        for window in absorbed:
            merged = merged.cover(window)
        if not absorbed or absorbed == [merged]:
            return merged
        if is_merge_too_late(merged, self._lateness, self.watermark):
            raise MergeTooLateError(merged, self.watermark)
        contents = state.contents.pop(absorbed[0])
        for window in absorbed:
            contents += state.contents.pop(window, ())
            state.timers.pop(window, None)
            # The merged session takes this one's place until its cleanup, so exactly this window cannot come again.
            self._panes.pop((key, window), None)
        state.contents[merged] = contents
        if merged.max_timestamp > self.watermark:
            self._register_timer(state, key, merged, merged.max_timestamp)
        return merged

    def advance_watermark(self, watermark: int) -> Iterator[Firing[E]]:
        """A watermark arrives: due timers fire in the order of their time (rule 17)."""
        self.watermark = watermark
        while self._queue and self._queue[0][0] <= watermark:
            time, _, key, window = heapq.heappop(self._queue)
            state = self._keys[key]
            due = state.timers.get(window, set())
            if time not in due:
                continue
            due.discard(time)
            contents = state.contents[window]
            if time == window.max_timestamp:
                yield self._fire(key, window, contents, by_element=False)
            if time == cleanup_time(window, self._lateness):
                del state.contents[window]
                del state.timers[window]
                self._panes.pop((key, window), None)

    def _fire(self, key: Hashable, window: Window, contents: list[E], *, by_element: bool) -> Firing[E]:
        pane = self._panes.get((key, window), -1) + 1
        self._panes[key, window] = pane
        return Firing(key, window, pane, self.watermark, by_element, contents, len(contents))

    def _register_cleanup(self, state: _KeyState[E], key: Hashable, window: Window) -> None:
        time = cleanup_time(window, self._lateness)
        if time != MAX_TIMESTAMP:
            self._register_timer(state, key, window, time)

    def _register_timer(self, state: _KeyState[E], key: Hashable, window: Window, time: int) -> None:
        due = state.timers.setdefault(window, set())
        if time not in due:
            due.add(time)
            self._sequence += 1
            heapq.heappush(self._queue, (time, self._sequence, key, window))
