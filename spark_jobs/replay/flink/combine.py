"""The sources' rules over what happens between two changes of status, and record by record where one changes.

While no partition and no subtask changes its status, the watermark is a minimum of maxima, and the inversion knows
where each threshold is reached (`spark_jobs.replay.flink.inversion`). What changes a status is known before where it
is a silence (`spark_jobs.replay.flink.thinning`). So `spark_jobs.eventtime.flink.source.Source` gets

- between: each generator's maximum at the end of the stretch. All its state is then exact, and the stretch is noted;
- in the cells of arrival in which a status changes: every record that raises its generator's maximum.

An idle stream becomes active, and a subtask is aligned, at a value that the watermark reaches (rules 12 to 14). Where
one waits for it, stretches end before the first cell in which it may be reached. If the records of that cell are not at
hand, the result names the cell in `wanted`, and is right only when it is made again with them (`combined`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spark_jobs.eventtime.flink.generators import Event
from spark_jobs.eventtime.flink.signals import Signal, WatermarkEmitted
from spark_jobs.eventtime.flink.source import Source
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER
from spark_jobs.replay.flink.idleness import IdleSpans
from spark_jobs.replay.flink.thinning import Activity, Cells, Silences, Tops, silences, timer_after


class Raise(NamedTuple):
    """A record that can raise its generator's maximum: position, partition, and the time that is followed (epoch ms).

    `major` is -1 for what a generator emits at the tick at `arrival`, and not for a record.
    """

    arrival: int
    major: int
    minor: int
    partition: int
    time: int


@dataclass(frozen=True, slots=True)
class Stretches:
    """Values x, `low <= x <= high`, that the watermark reached while these generators counted: int64, one row each.

    There `C(x)` is the maximum of `first_g(x)` over the generators with a row that holds x. The watermark reached them
    up to the tick `until`; `NEVER`: up to the end.
    """

    generator: np.ndarray
    low: np.ndarray
    high: np.ndarray
    until: np.ndarray

    def of(self, generator: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`low`, `high` and `until` of one generator."""
        mine = self.generator == generator
        return self.low[mine], self.high[mine], self.until[mine]


@dataclass
class Combination:
    """What a source made of its generators.

    Attributes:
        rows: Timeline rows (`x_from`, and a position) where statuses change; exact for every value.
        stretches: The values between.
        watermark: The last watermark.
        snapshot: The source's state at the end.
        flushes: Whether the end of input gets through (rule 15).
        idle: The summary of `IdleSpans`.
        wanted: The cells whose records are missing; if there are any, nothing else here counts.
    """

    rows: list[tuple[int, int, int, int]]
    stretches: Stretches
    watermark: int
    snapshot: dict[str, Any]
    flushes: bool
    idle: dict[str, Any]
    wanted: set[int] = field(default_factory=set)


def _after(watermark: int) -> int:
    """The first value that a watermark has not passed."""
    return MIN_TIMESTAMP if watermark == MIN_TIMESTAMP else watermark + 1


class Combiner:
    """Combines the generators of one history.

    Args:
        strategy: The job's.
        activities: What is known of each generator, in the order of `strategy.generators`.
        cells: The cells of `raises`.
        state: The source's snapshot to continue from.
        found: When each generator's partition is idle, if that is not to be told from its activity.
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        activities: Sequence[Activity],
        cells: Cells,
        state: Mapping[str, Any] | None,
        processing_time_end: int,
        found: Sequence[Silences] | None = None,
    ) -> None:
        self.strategy = strategy
        self.cells = cells
        self._state = Source(strategy).snapshot() if state is None else state
        self.is_fresh = state is None
        self.until = processing_time_end
        self.activities = activities
        self.tops = Tops(activities, cells)
        self.timers = [partial for subtask in self._state["subtasks"] for partial in subtask["partials"]]
        self.next_tick = self._state["next_tick"]
        self._silences = found or [
            silences(activity, own, cells.last_tick, timer, self.next_tick)
            for activity, own, timer in zip(activities, strategy.of_generators, self.timers, strict=True)
        ]
        maximum = strategy.running_maximum
        self.follows_clock = strategy.follows_the_clock
        self.delay = strategy.generator.tolerance if maximum is None else maximum.delay
        self.carried = [None if maximum is None else timer["generator"].get("maximum") for timer in self.timers]
        first = self.tops.first_cell
        self.first_cell = cells.of_one(self.next_tick - strategy.interval)
        if first is not None:
            self.first_cell = min(first, self.first_cell)

    def changes(self) -> np.ndarray:
        """Arrivals (epoch ms) in whose cells a status changes: by a silence, by one that ends, or by rule 31."""
        found = [np.empty(0, dtype=np.int64)]
        for silence in self._silences:
            found += [silence.idle_from - 1, silence.awake[silence.awake < NEVER]]
        first = self.cells.begin(self.first_cell)
        if any(timer["idle"] for timer in self.timers):
            found.append(np.array([first]))
        for deadline in self.new_source().first_watermark_deadlines():
            start, interval = self.strategy.timer_start, self.strategy.interval
            tick = max(start + ((deadline - start) // interval + 1) * interval, self.next_tick)
            if tick <= self.cells.last_tick and not self._raises_before(tick):
                found.append(np.array([tick - 1]))
        arrivals = np.unique(np.concatenate(found))
        return arrivals[arrivals >= first]

    def _raises_before(self, tick: int) -> bool:
        """Whether every subtask surely raises its first watermark before this tick."""
        if not all(self.strategy.subtasks) or not self.timers:
            return False
        if self.follows_clock:
            return True
        for generator, timer in enumerate(self.timers):
            cell = self.tops.moves_first_in(generator, MIN_TIMESTAMP + max(0, self.delay))
            if timer["watermark"] == MIN_TIMESTAMP and (
                cell is None or cell >= self.cells.last or self.cells.begin(cell + 1) > tick
            ):
                return False
        return True

    def new_source(self) -> Source:
        source = Source(self.strategy, [silence.spans for silence in self._silences])
        source.restore(dict(self._state))
        return source

    def run(self, raises: Mapping[int, Sequence[Raise]]) -> Combination:
        """Combine. `raises`: those of each cell that is looked at record by record, in position order."""
        return _Run(self, raises).combined()


def combined(
    cells: Cells,
    combiner_of: Callable[[Cells], Combiner],
    raises_in: Callable[[set[int]], Mapping[int, Sequence[Raise]]],
    most_rows: int,
) -> tuple[Combination, int]:
    """What the source makes of all generators, and how many of the grid's cells were looked at record by record.

    Args:
        cells: Those to begin with. Joined ones are parted where a status changes, or may change.
        combiner_of: What is known by given cells.
        raises_in: The records of these of the grid's cells that can raise a maximum, by cell, in position order.
        most_rows: About how many rows of partitions and cells one parting adds.
    """
    combiner = combiner_of(cells)
    exact = set(cells.grid.of(combiner.changes()).tolist())
    finer = cells.with_single(exact)
    if finer is not cells:
        cells, combiner = finer, combiner_of(finer)
    raises = dict(raises_in(exact))
    while True:
        numbers = sorted(exact)
        in_cells = cells.of_numbers(np.array(numbers, dtype=np.int64)).tolist()
        found = {cell: raises.get(number, ()) for cell, number in zip(in_cells, numbers, strict=True)}
        combination = combiner.run(found)
        wanted = sorted(combination.wanted)
        if not wanted:
            return combination, len(exact)
        if joined := cells.joined(wanted):
            cells = cells.parted(joined, max(2, most_rows // (len(joined) * max(1, len(combiner.activities)))))
            combiner = combiner_of(cells)
            continue
        new = set(cells.numbers(wanted))
        raises |= raises_in(new)
        exact |= new


class _Run:
    """One way through all cells."""

    def __init__(self, over: Combiner, raises: Mapping[int, Sequence[Raise]]) -> None:
        self.over = over
        self.source = over.new_source()
        self.raises = raises
        self.exact = sorted(raises)
        self.rows: list[tuple[int, int, int, int]] = []
        self.stretches: list[tuple[int, int, int, int]] = []
        self.idle = IdleSpans()
        self.wanted: set[int] = set()
        self.fed: dict[int, int] = {}
        self.generators = over.strategy.generators
        self.next_x = _after(self.source.watermark)
        if not over.is_fresh:
            self.rows.append((MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP, MIN_TIMESTAMP))

    def combined(self) -> Combination:
        cells, source = self.over.cells, self.source
        cell, at = self.over.first_cell, 0
        while cell <= cells.last:
            while at < len(self.exact) and self.exact[at] < cell:
                at += 1
            changes_in = self.exact[at] if at < len(self.exact) else cells.last + 1
            if source.waits_for_a_value:
                quiet = self._quiet_cells(cell, changes_in - cell)
                if quiet:
                    self._stretch(cell, cell + quiet)
                    cell += quiet
                    continue
                if changes_in > cell:  # as if nothing happened before the cell's end, to see what else is wanted
                    self.wanted.add(cell)
                    self._feed(cell + 1)
                    self.next_x = _after(source.watermark)
                    cell += 1
                    continue
            if changes_in > cell:
                self._stretch(cell, changes_in)
                cell = changes_in
                continue
            self._exactly(cell)
            cell += 1
        stretches = np.array(self.stretches, dtype=np.int64).reshape(-1, 4)
        last = source.watermark
        self.rows.append((min(self.next_x, MAX_TIMESTAMP), NEVER, NEVER, NEVER))
        snapshot = self._snapshot()
        flushes = any(isinstance(s, WatermarkEmitted) and s.watermark == MAX_TIMESTAMP for s in source.end_of_input())
        return Combination(
            self.rows,
            Stretches(*(stretches[:, i] for i in range(4))),
            last,
            snapshot,
            flushes,
            self.idle.summary(self.over.until),
            self.wanted,
        )

    def _reached(self, generator: int, cell: int) -> int:
        """The watermark that a generator has at the beginning of a cell; the cell after the last one: at the end."""
        over = self.over
        if over.follows_clock:
            return over.cells.begin(min(cell, over.cells.last)) - over.delay
        tops = [top for top in (over.tops.before(generator, cell), over.carried[generator]) if top is not None]
        return max(MIN_TIMESTAMP, max(tops) - over.delay) if tops else MIN_TIMESTAMP

    def _quiet_cells(self, cell: int, most: int) -> int:
        """How many cells, up to `most`, surely go by without the status change that is waited for."""

        def changes(count: int) -> bool:
            reached = [self._reached(generator, cell + count) for generator in range(len(self.generators))]
            return self.source.may_change_status(reached)

        if not most or changes(1):
            return 0
        if not changes(most):
            return most
        quiet, some = 1, most
        while some - quiet > 1:
            middle = (quiet + some) // 2
            quiet, some = (quiet, middle) if changes(middle) else (middle, some)
        return quiet

    def _stretch(self, cell: int, end: int) -> None:
        """From the beginning of `cell` to that of `end`: no status changes."""
        before, low, floors = self.source.statuses, self.next_x, self.source.floors
        if cell < end == self.over.cells.last + 1:
            self._feed(end - 1)
        self._feed(end)
        if self.source.statuses != before:
            raise AssertionError(f"a status changed between the cells {cell} and {end}")
        high = self.source.watermark
        until = self.over.cells.begin(end) if end <= self.over.cells.last else NEVER
        self.next_x = _after(high)
        for generator, floor in enumerate(floors):
            if floor is not None and high >= low and high > floor:
                begin = max(low, floor + 1) if floor > MIN_TIMESTAMP else low
                self.stretches.append((generator, begin, high, until))

    def _feed(self, end: int) -> None:
        """The generators' maxima at the beginning of cell `end`, and the tick there; `last + 1`: the end."""
        over, source = self.over, self.source
        if not over.follows_clock:
            for generator, partial in enumerate(source.partials):
                top = over.tops.before(generator, end)
                if top is not None and not partial.idle and top > self.fed.get(generator, MIN_TIMESTAMP - 1):
                    self.fed[generator] = top
                    source.on_event(self.generators[generator][0], Event(top, top, True))
        if end <= over.cells.last:
            tick = over.cells.begin(end)
            source.skip_to(tick)
            for _ in source.ticks(tick):
                pass

    def _exactly(self, cell: int) -> None:
        """The records and ticks of one cell, and the tick at its end."""
        cells, source = self.over.cells, self.source
        for raised in self.raises[cell]:
            at_tick = raised.major < 0
            self._ticks(raised.arrival - 1 if at_tick else raised.arrival)
            event = Event(raised.time, raised.arrival, not at_tick)
            self._note(source.on_event(raised.partition, event), raised.arrival, raised.major, raised.minor)
        if cell < cells.last:
            self._ticks(cells.begin(cell + 1))
        for generator in range(len(self.generators)):
            top = self.over.tops.before(generator, cell + 1)
            if top is not None:
                self.fed[generator] = top

    def _ticks(self, until: int) -> None:
        for tick in self.source.ticks(until):
            self._note(tick.signals, tick.time, -1, -1)

    def _note(self, signals: Sequence[Signal], arrival: int, major: int, minor: int) -> None:
        self.idle.note(signals, arrival)
        for signal in signals:
            if isinstance(signal, WatermarkEmitted):
                self.rows.append((self.next_x, arrival, major, minor))
                self.next_x = signal.watermark + 1

    def _snapshot(self) -> dict[str, Any]:
        over = self.over
        snapshot = self.source.snapshot()
        saved = (partial for subtask in snapshot["subtasks"] for partial in subtask["partials"])
        owns = over.strategy.of_generators
        for partial, activity, own, timer in zip(saved, over.activities, owns, over.timers, strict=True):
            active, countdown = timer_after(activity, own, over.cells.last_tick, timer, over.next_tick)
            partial["active_since_probe"], partial["countdown_from"] = active, countdown
        return snapshot
