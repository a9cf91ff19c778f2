"""The source of a live job: from records and ticks to the watermarks that the window operator gets.

Written after Flink's `SourceOperator`, `WatermarkOutputMultiplexer`, `WatermarksWithIdleness` and
`WatermarkToDataOutput`, with one class for each of their duties.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from spark_jobs.eventtime.flink.generators import Event, WatermarkGenerator
from spark_jobs.eventtime.flink.signals import (
    PartitionStatusChanged,
    Signal,
    StreamSignal,
    StreamStatusChanged,
    WatermarkEmitted,
)
from spark_jobs.eventtime.flink.strategy import WatermarkScope, WatermarkStrategy
from spark_jobs.eventtime.flink.valve import StatusWatermarkValve
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP


class _IdlenessTimer:
    """Flink's `IdlenessTimer`: inactivity is noticed at ticks only, by probing (rules 9 and 10).

    The probe after the last record still sees activity. The next one starts the countdown. The partition is idle at the
    first probe strictly more than the timeout (ms) later.
    """

    def __init__(self, timeout: int) -> None:
        self.timeout = timeout
        self.active_since_probe = False
        self.countdown_from: int | None = None

    def is_idle(self, now: int) -> bool:
        if self.active_since_probe:
            self.active_since_probe = False
            self.countdown_from = None
            return False
        if self.countdown_from is None:
            self.countdown_from = now
            return False
        return now - self.countdown_from > self.timeout

    def due_after(self, now: int) -> int:
        """From when on a probe can find something that the one at `now` did not, if no record comes (epoch ms)."""
        if self.countdown_from is None:
            return now + 1
        idle_from = self.countdown_from + self.timeout + 1
        return idle_from if idle_from > now else MAX_TIMESTAMP


class IdleTimes:
    """The idle times of a partition where they are known before its records: an `_IdlenessTimer` that waits for none.

    `spans` are the probes that find it idle: first and last one, in order (epoch ms, both included).
    """

    def __init__(self, spans: Sequence[tuple[int, int]]) -> None:
        self.active_since_probe = False
        self.countdown_from: int | None = None
        self._spans = spans
        self._starts = [start for start, _ in spans]
        self._started = 0

    def is_idle(self, now: int) -> bool:
        self._started = bisect_right(self._starts, now)
        return self._started > 0 and now <= self._spans[self._started - 1][1]

    def due_after(self, now: int) -> int:
        """From when on a probe can find something that the one at `now` did not (epoch ms)."""
        if self.is_idle(now):
            return self._spans[self._started - 1][1] + 1
        return self._starts[self._started] if self._started < len(self._starts) else MAX_TIMESTAMP


class _PartialWatermark:
    """One generator with its last watermark: an input of the minimum.

    On a record, each emission updates the minimum at once (`on_raised`; Flink's `ImmediateOutput`). At a tick, the
    minimum is taken after every generator has run (`DeferredOutput`). A probe before the time `due` (epoch ms) changes
    nothing: it is left out.
    """

    def __init__(
        self,
        label: int,
        generator: WatermarkGenerator,
        timer: _IdlenessTimer | IdleTimes | None,
        has_status: bool = True,
        is_known: bool = True,
        moves_without_records: bool = False,
    ) -> None:
        self.label = label
        self.has_status = has_status
        self.is_known = is_known
        self.generator = generator
        self.timer = timer
        self.due = MIN_TIMESTAMP
        self._moves_without_records = moves_without_records
        self.watermark = MIN_TIMESTAMP
        self.idle = False
        self._on_raised: Callable[[int], None] | None = None

    def emit_watermark(self, watermark: int) -> None:
        """An emission makes the partition active again (rule 11); a lower watermark changes nothing (rule 4)."""
        self.idle = False
        raised = watermark > self.watermark
        self.watermark = max(self.watermark, watermark)
        if raised and self._on_raised is not None:
            self._on_raised(watermark)

    def on_event(self, event: Event, on_raised: Callable[[int], None]) -> None:
        self._on_raised = on_raised
        self.generator.on_event(event, self)
        self._on_raised = None
        if self.timer is not None:
            self.timer.active_since_probe = True

    def probe(self, now: int) -> None:
        if self.timer is not None and self.timer.is_idle(now):
            self.idle = True
        else:
            self.generator.on_periodic_emit(now, self)
        if self._moves_without_records:
            self.due = now + 1
        else:
            self.due = MAX_TIMESTAMP if self.timer is None else self.timer.due_after(now)

    def snapshot(self) -> dict[str, Any]:
        return {
            "watermark": self.watermark,
            "idle": self.idle,
            "active_since_probe": self.timer.active_since_probe if self.timer else False,
            "countdown_from": self.timer.countdown_from if self.timer else None,
            "generator": self.generator.snapshot(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.watermark = state["watermark"]
        self.idle = state["idle"]
        self.generator.restore(state["generator"])
        if self.timer is not None:
            self.timer.active_since_probe = state["active_since_probe"]
            self.timer.countdown_from = state["countdown_from"]


class _Subtask:
    """One source subtask: the minimum over its active partitions, and its stream status.

    A tick before the time `due` (epoch ms) changes nothing.

    `idle_before_first_watermark_after` (epoch ms): the stream becomes idle at the first tick after this time unless a
    watermark has been raised (rule 31). None: never.
    """

    def __init__(
        self,
        partials: list[_PartialWatermark],
        all_idle_emits_maximum: bool,
        idle_before_first_watermark_after: int | None,
    ) -> None:
        self.partials = partials
        self._all_idle_emits_maximum = all_idle_emits_maximum
        self._idle_before_first_watermark_after = idle_before_first_watermark_after
        self.combined = MIN_TIMESTAMP
        self.idle = False
        self.due = MIN_TIMESTAMP

    @property
    def idle_after(self) -> int | None:
        """A tick after this time (epoch ms) finds the stream idle unless a watermark is raised before (rule 31)."""
        if self.idle or self.combined > MIN_TIMESTAMP:
            return None
        return self._idle_before_first_watermark_after

    def probe(self, now: int) -> tuple[list[_PartialWatermark], list[StreamSignal]]:
        """A tick at `now`: probe the partitions, combine their watermarks, then look whether the main output is idle.

        Returns the partitions whose status has changed, and what the subtask sends, in order.

        Rule 31: the main output, which no record uses, and the partitions' combined output make the stream idle
        together. The combined output counts as idle until it has raised its first watermark; the main output's
        countdown starts at the first tick.
        """
        turned: list[_PartialWatermark] = []
        due = MAX_TIMESTAMP
        for partial in self.partials:
            if not partial.is_known:
                continue
            if partial.due <= now:
                was_idle = partial.idle
                partial.probe(now)
                if partial.idle != was_idle:
                    turned.append(partial)
            if partial.due < due:
                due = partial.due
        signals = self.update()
        deadline = self.idle_after
        if deadline is not None and now > deadline:
            self.idle = True
            signals.append(StreamStatusChanged(idle=True))
        elif deadline is not None:
            due = min(due, deadline + 1)
        self.due = due
        return turned, signals

    def update(self) -> list[StreamSignal]:
        """Combine the partitions' watermarks. Returns what the subtask sends, in order."""
        known = [p for p in self.partials if p.is_known]
        active = [p.watermark for p in known if not p.idle]
        if active:
            candidate = min(active)
        elif self._all_idle_emits_maximum:
            candidate = max((p.watermark for p in known), default=MIN_TIMESTAMP)
        else:
            candidate = MIN_TIMESTAMP
        out: list[StreamSignal] = []
        if candidate > self.combined:
            self.combined = candidate
            # An idle stream becomes active only here, with a watermark above all before (rule 14).
            if self.idle:
                self.idle = False
                out.append(StreamStatusChanged(idle=False))
            out.append(WatermarkEmitted(candidate))
        if not active and known and not self.idle:
            self.idle = True
            out.append(StreamStatusChanged(idle=True))
        return out


def _timer(timeout: int | None) -> _IdlenessTimer | None:
    return None if timeout is None else _IdlenessTimer(timeout)


def _first_idle_after(strategy: WatermarkStrategy) -> int | None:
    """The main output counts down from the first tick. A generator per subtask is in the main output itself."""
    if strategy.idleness is None or not strategy.interval or strategy.scope is WatermarkScope.SUBTASK:
        return None
    return strategy.timer_start + strategy.interval + strategy.idleness


class Tick(NamedTuple):
    """A tick of the timer at `time` (epoch ms), and the signals that it caused."""

    time: int
    signals: list[Signal]


class Source:
    """The source's side of a live job, driven by records in position order and by its own timer.

    For each record call `ticks(arrival)`, as a tick due at an arrival comes before the record (rule 7); hand the record
    to the window operator; then call `on_event`, as a record comes before the watermark that it causes (rule 2).

    `idle_times`, in the order of `WatermarkStrategy.generators`: when each generator's partition is idle, where that is
    known before. Then records and ticks between which nothing else happens may be left out (`skip_to`).
    """

    def __init__(
        self, strategy: WatermarkStrategy, idle_times: Sequence[Sequence[tuple[int, int]]] | None = None
    ) -> None:
        self.strategy = strategy
        self._subtasks: list[_Subtask] = []
        self._by_partition: dict[int, tuple[int, _PartialWatermark]] = {}
        known, discovered = iter(idle_times or ()), dict(strategy.discovered)
        self._undiscovered: list[tuple[int, _Subtask, _PartialWatermark]] = []
        for index, (partitions, own) in enumerate(zip(strategy.subtasks, strategy.of_subtasks, strict=True)):
            groups = [partitions] if own.scope is WatermarkScope.SUBTASK else [(p,) for p in partitions]
            partials = [
                _PartialWatermark(
                    group[0] if group else -1,
                    own.create_generator(),
                    _timer(own.idleness) if idle_times is None else IdleTimes(next(known)),
                    # Only a partition with a generator of its own has a status of its own (rule 31).
                    own.scope is WatermarkScope.PARTITION,
                    own.scope is not WatermarkScope.PARTITION or group[0] not in discovered,
                    own.moves_without_records,
                )
                for group in groups
            ]
            for group, partial in zip(groups, partials, strict=True):
                self._by_partition |= dict.fromkeys(group, (index, partial))
            subtask = _Subtask(partials, strategy.all_idle_emits_maximum, _first_idle_after(own))
            self._undiscovered += [(discovered[p.label], subtask, p) for p in partials if not p.is_known]
            self._subtasks.append(subtask)
        self._undiscovered.sort(key=lambda one: one[0])
        self._valve = StatusWatermarkValve(len(self._subtasks))
        self._next_tick = strategy.timer_start + strategy.interval if strategy.interval else MAX_TIMESTAMP

    @property
    def watermark(self) -> int:
        """The window operator's watermark."""
        return self._valve.last_watermark

    @property
    def partition_watermarks(self) -> list[int]:
        """The last watermark of each generator, in the order of the first partition it reads."""
        partials = sorted((p for s in self._subtasks for p in s.partials), key=lambda p: p.label)
        return [p.watermark for p in partials]

    @property
    def partials(self) -> list[_PartialWatermark]:
        """The inputs of the subtasks' minima, in the order of `WatermarkStrategy.generators`."""
        return [partial for subtask in self._subtasks for partial in subtask.partials]

    @property
    def floors(self) -> list[int | None]:
        """The watermark above which each generator holds the output back, in the same order; None: it does not.

        A generator counts while its partition is active and its subtask's channel of the valve is aligned.
        """
        found: list[int | None] = []
        for subtask, channel in zip(self._subtasks, self._valve.channels, strict=True):
            counts = channel.active and channel.aligned and not self._valve.idle
            floor = max(subtask.combined, self._valve.last_watermark)
            found += [floor if counts and not partial.idle else None for partial in subtask.partials]
        return found

    @property
    def statuses(self) -> tuple[bool, ...]:
        """What is idle, active and aligned. While it stays the same, the output is a minimum of maxima."""
        return (
            *(partial.idle for partial in self.partials),
            *(subtask.idle for subtask in self._subtasks),
            *(status for channel in self._valve.channels for status in (channel.active, channel.aligned)),
            self._valve.idle,
        )

    @property
    def waits_for_a_value(self) -> bool:
        """Whether some status changes with a watermark that is high enough (rules 12 to 14)."""
        return any(self._waiting())

    def _waiting(self) -> list[bool]:
        """Whether each subtask is idle with an active partition, or active and not aligned."""
        return [
            any(not partial.idle for partial in subtask.partials) if subtask.idle else not channel.aligned
            for subtask, channel in zip(self._subtasks, self._valve.channels, strict=True)
        ]

    def may_change_status(self, reached: Sequence[int]) -> bool:
        """Whether some subtask may become active or aligned on the way to these watermarks of its generators.

        False is certain: the others' watermarks, which rise meanwhile too, are taken as they are now.
        """
        by_generator = iter(reached)
        changes = False
        for subtask, waits in zip(self._subtasks, self._waiting(), strict=True):
            raised = [max(partial.watermark, next(by_generator)) for partial in subtask.partials]
            active = [w for w, partial in zip(raised, subtask.partials, strict=True) if not partial.idle]
            if not waits or not active:
                continue
            lowest = min(active)
            if subtask.idle:
                changes |= lowest > subtask.combined
            else:
                changes |= max(subtask.combined, lowest) >= self._valve.last_watermark
        return changes

    def skip_to(self, tick: int) -> None:
        """Leave out the ticks before `tick` (epoch ms)."""
        self._next_tick = max(self._next_tick, tick)

    @property
    def next_tick(self) -> int:
        """The next tick to come (epoch ms)."""
        return self._next_tick

    def first_watermark_deadlines(self) -> list[int]:
        """A tick after such a time (epoch ms) finds some stream idle unless it has raised a watermark (rule 31)."""
        return sorted({d for s in self._subtasks if (d := s.idle_after) is not None})

    def ticks(self, until: int) -> Iterator[Tick]:
        """Run the timer up to and including `until` (epoch ms); yields the ticks that caused a signal."""
        start, interval = self.strategy.timer_start, self.strategy.interval
        while self._next_tick <= until:
            now = self._next_tick
            signals = self._tick(now)
            discovered = (discovered_at for discovered_at, _, _ in self._undiscovered[:1])
            due = min([until + 1, *(subtask.due for subtask in self._subtasks), *discovered])
            first_due = start - (start - due) // interval * interval  # the first tick that is not before it
            self._next_tick = max(now + interval, first_due)
            if signals:
                yield Tick(now, signals)

    def _discover(self, now: int) -> None:
        """From its discovery on a partition is in the minimum: before the tick and the records of that ms."""
        while self._undiscovered and self._undiscovered[0][0] <= now:
            _, subtask, partial = self._undiscovered.pop(0)
            partial.is_known = True
            partial.due = subtask.due = MIN_TIMESTAMP

    def _tick(self, now: int) -> list[Signal]:
        self._discover(now)
        signals: list[Signal] = []
        for index, subtask in enumerate(self._subtasks):
            if subtask.due <= now:
                turned, sent = subtask.probe(now)
                for partial in turned:
                    signals += self._partition_status(partial)
                signals += self._through_valve(index, sent)
        return signals

    def on_event(self, partition: int, event: Event) -> list[Signal]:
        """The signals that a record causes after it has been handed to the window operator."""
        self._discover(event.arrival)
        index, partial = self._by_partition[partition]
        subtask = self._subtasks[index]
        partial.due = subtask.due = MIN_TIMESTAMP
        was_idle = partial.idle
        signals: list[Signal] = []

        def update(watermark: int) -> None:
            nonlocal was_idle
            if was_idle:
                signals.extend(self._partition_status(partial))
                was_idle = False
            if watermark > subtask.combined:
                signals.extend(self._through_valve(index, subtask.update()))

        partial.on_event(event, update)
        if was_idle and not partial.idle:
            signals += self._partition_status(partial)
        return signals

    def _partition_status(self, partial: _PartialWatermark) -> list[Signal]:
        return [PartitionStatusChanged(partial.label, partial.idle)] if partial.has_status else []

    def end_of_input(self) -> list[Signal]:
        """The bounded input ends: every subtask sends MAX_WATERMARK. The valve drops that of an idle one (rule 15)."""
        return list(self._valve.end_of_input())

    def _through_valve(self, index: int, signals: list[StreamSignal]) -> list[Signal]:
        out: list[Signal] = []
        for signal in signals:
            out += self._valve.input_signal(index, signal)
        return out

    def snapshot(self) -> dict[str, Any]:
        """Everything that later watermarks depend on, as values that JSON can hold."""
        return {
            "subtasks": [
                {"combined": s.combined, "idle": s.idle, "partials": [p.snapshot() for p in s.partials]}
                for s in self._subtasks
            ],
            "valve": self._valve.snapshot(),
            "next_tick": self._next_tick,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a snapshot of a source with the same strategy."""
        for subtask, saved in zip(self._subtasks, state["subtasks"], strict=True):
            subtask.combined = saved["combined"]
            subtask.idle = saved["idle"]
            subtask.due = MIN_TIMESTAMP
            for partial, own in zip(subtask.partials, saved["partials"], strict=True):
                partial.restore(own)
                partial.due = MIN_TIMESTAMP
        self._valve.restore(state["valve"])
        self._next_tick = state["next_tick"]
