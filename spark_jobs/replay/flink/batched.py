"""What one generator emits, over arrays of its records: the same rows as record by record, without a loop.

Between two records lie the ticks that are due. The first one emits what the generator holds; later ones emit more only
if it moves by itself (`advance_after_wait`), until the partition becomes idle. So each record and the ticks before it
are four moments in a row: the first tick, the last one that moves it, the tick that finds it idle, the record. The
watermark is the running maximum over these moments.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from spark_jobs.eventtime.flink import generators as g
from spark_jobs.eventtime.flink.strategy import WatermarkStrategy
from spark_jobs.eventtime.flink.suppliers import AdvanceAfterWait, AverageOfLast, Custom, Interleaved
from spark_jobs.eventtime.timestamps import MAX_TIMESTAMP, MIN_TIMESTAMP
from spark_jobs.replay.columns import NEVER

_EXACT = 2**62
"""Sums below it fit a 64-bit integer."""
_REAL = MIN_TIMESTAMP + 2**61
"""Event times from here on leave room for differences."""


_COMPARED = 200
"""Records over which the two faces of a user's class are compared."""


class Records(NamedTuple):
    """Records of one generator in position order; times in epoch ms. `stream`: texts, where the generator has them."""

    timestamp: np.ndarray
    arrival: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    stream: np.ndarray

    def part(self, start: int, end: int) -> Records:
        return Records(*(column[start:end] for column in self))


class Held(NamedTuple):
    """What a generator holds after each of some records: the watermark, whether there is one, whether it emits it."""

    value: np.ndarray
    is_there: np.ndarray
    emits: np.ndarray
    at_record: np.ndarray | None = None
    """What it emits with the record, where that is not `value`."""


class Moves(NamedTuple):
    """How a generator moves at ticks: from its `first` one after a record on, the k-th emits `origin + k * step`."""

    first: int = MAX_TIMESTAMP
    origin: int = MIN_TIMESTAMP
    step: int = 0


class Holder(ABC):
    """A generator over arrays. `generator` is the one record by record; its state is that of both."""

    generator: Any

    @abstractmethod
    def held(self) -> int | None:
        """What a tick emits now; None: nothing."""

    @abstractmethod
    def after(self, records: Records, ticks: np.ndarray) -> Held:
        """Take records; `ticks` ran before each of them, since the one before."""

    def moves(self) -> Moves:
        """How the ticks before the next record move it."""
        return Moves()

    def ticked(self, ticks: int) -> None:
        """So many ticks run, with no record after them yet. Most generators stand still."""
        return


@dataclass
class _Average(Holder):
    generator: g.AverageOfLast

    def held(self) -> int | None:
        recent = self.generator.snapshot()["recent"]
        return sum(recent) // len(recent) - self.generator.lag if recent else None

    def after(self, records: Records, ticks: np.ndarray) -> Held:
        """A mean of the last n is a difference of two running sums."""
        last, counts = self.generator.last, records.timestamp != MIN_TIMESTAMP
        before = np.array(self.generator.snapshot()["recent"], dtype=np.int64)
        times = np.concatenate((before, records.timestamp[counts]))
        if not len(times):
            return _nothing(len(counts))
        base = int(times[0])
        spread = max(abs(int(times.max()) - base), abs(int(times.min()) - base))
        apart = times.astype(object) - base if spread * len(times) >= _EXACT else times - base
        sums = np.concatenate((np.zeros(1, dtype=apart.dtype), np.cumsum(apart)))
        ends = len(before) + np.cumsum(counts)
        begins = np.maximum(ends - last, 0)
        number = np.maximum(ends - begins, 1)
        value = ((sums[ends] - sums[begins]) // number + base).astype(np.int64) - self.generator.lag
        self.generator.restore({"recent": times[-last:].tolist()})
        is_there = ends > 0
        return Held(value, is_there, counts & is_there & self.generator.emits_on_event)


@dataclass
class _Streams(Holder):
    generator: g.InterleavedStreams

    def held(self) -> int | None:
        found: list[int] = []
        self.generator.on_periodic_emit(0, cast("Any", _Into(found)))
        return found[0] if found else None

    def after(self, records: Records, ticks: np.ndarray) -> Held:
        """The least of the streams' running maxima; a stream that was not seen yet counts only where it is listed."""
        maxima, counts = self.generator.maxima, records.timestamp != MIN_TIMESTAMP
        names, at, code = np.unique(records.stream[counts].astype(str), return_index=True, return_inverse=True)
        codes = np.full(len(counts), -1)
        codes[counts] = code
        number = {str(name): index for index, name in enumerate(names)}
        least = np.full(len(counts), MAX_TIMESTAMP)
        missing = np.zeros(len(counts), dtype=bool)
        first_seen = [str(names[index]) for index in np.argsort(at)]
        for stream in self.generator.streams or tuple(dict.fromkeys([*maxima, *first_seen])):
            own = codes == number.get(stream, -2)
            top = np.maximum.accumulate(np.where(own, records.timestamp, MIN_TIMESTAMP))
            seen = np.maximum.accumulate(own) | (stream in maxima)
            least = np.minimum(least, np.where(seen, np.maximum(top, maxima.get(stream, MIN_TIMESTAMP)), least))
            missing |= ~seen
        is_there = least < MAX_TIMESTAMP
        if self.generator.streams:
            is_there &= ~missing
        for stream in first_seen:
            top = int(records.timestamp[codes == number[stream]].max())
            maxima[stream] = max(maxima.get(stream, MIN_TIMESTAMP), top)
        delay = self.generator.bound + 1
        value = np.maximum(least, MIN_TIMESTAMP + delay) - delay
        return Held(value, is_there, counts & is_there & self.generator.emits_on_event)


@dataclass
class _Advancing(Holder):
    generator: g.AdvanceAfterWait

    def held(self) -> int:
        return self.generator.maximum - self.generator.bound - 1

    def moves(self) -> Moves:
        own = self.generator
        if not own.interval:
            return Moves()
        first = max(1, (own.wait - (own.logical - own.base)) // own.interval + 1)
        return Moves(first, own.logical - own.bound - 1, own.interval)

    def ticked(self, ticks: int) -> None:
        own = self.generator
        own.logical += ticks * own.interval
        if ticks and own.logical - own.base > own.wait:
            own.maximum = own.logical

    def after(self, records: Records, ticks: np.ndarray) -> Held:
        """`M[i] = max(M[i - 1] + moved[i], ts[i])`: a running maximum of what is left without the moves before."""
        own, count = self.generator, len(records.timestamp)
        maximum = np.empty(count, dtype=np.int64)
        done = 0
        while done < count and (done == 0 or own.maximum < _REAL):
            self.ticked(int(ticks[done]))
            own.on_event(g.Event(int(records.timestamp[done]), 0), cast("Any", _Into([])))
            maximum[done] = own.maximum
            done += 1
        if done < count:
            gone = ticks[done:] * own.interval
            moved = np.cumsum(np.where(gone > own.wait, gone, 0))
            times = np.maximum(records.timestamp[done:], own.maximum)
            maximum[done:] = moved + np.maximum(np.maximum.accumulate(times - moved), own.maximum)
            own.maximum = own.base = own.logical = int(maximum[-1])
        everywhere = np.ones(count, dtype=bool)
        return Held(maximum - own.bound - 1, everywhere, everywhere & own.emits_on_event)


@dataclass
class _Own(Holder):
    """A user's class with `on_batch`. Its two faces are compared over the first records of each task."""

    generator: g.CustomGenerator
    _is_compared: bool = False

    def held(self) -> int | None:
        found: list[int] = []
        self.generator.on_periodic_emit(0, cast("Any", _Into(found)))
        return max(found, default=None)

    def after(self, records: Records, ticks: np.ndarray) -> Held:
        if not self._is_compared:
            self._compare(records.part(0, _COMPARED))
            self._is_compared = True
        at_record, at_tick = self._on_batch(self.generator, records)
        return Held(at_tick, at_tick > MIN_TIMESTAMP, at_record > MIN_TIMESTAMP, at_record)

    def _on_batch(self, generator: g.CustomGenerator, records: Records) -> tuple[np.ndarray, np.ndarray]:
        none = np.full(len(records.timestamp), MIN_TIMESTAMP)
        at_record, at_tick = generator.on_batch(records.timestamp, records.arrival)
        return none if at_record is None else at_record, none if at_tick is None else at_tick

    def _compare(self, records: Records) -> None:
        """Raises ValueError where `on_batch` is not what the other two methods are."""
        one, other = copy.deepcopy(self.generator), copy.deepcopy(self.generator)
        at_record, at_tick = self._on_batch(other, records)
        for number, (time, arrival) in enumerate(
            zip(records.timestamp.tolist(), records.arrival.tolist(), strict=True)
        ):
            found: tuple[list[int], list[int]] = [], []
            one.on_event(g.Event(time, arrival), cast("Any", _Into(found[0])))
            one.on_periodic_emit(arrival, cast("Any", _Into(found[1])))
            expected = tuple(max(emitted, default=MIN_TIMESTAMP) for emitted in found)
            if (at_record[number], at_tick[number]) != expected:
                raise ValueError(
                    f"on_batch gives the watermarks {at_record[number]} and {at_tick[number]} for the record with "
                    f"event time {time} and arrival {arrival}, and on_event and on_periodic_emit {expected[0]} and "
                    f"{expected[1]}"
                )
        if one.snapshot() != other.snapshot():
            raise ValueError(f"on_batch leaves the attributes {other.snapshot()}, and on_event {one.snapshot()}")


class _Into:
    """An output that keeps what is emitted in a list."""

    def __init__(self, found: list[int]) -> None:
        self._found = found

    def emit_watermark(self, watermark: int) -> None:
        self._found.append(watermark)


def _nothing(count: int) -> Held:
    never = np.zeros(count, dtype=bool)
    return Held(np.full(count, MIN_TIMESTAMP), never, never)


def holder_of(strategy: WatermarkStrategy) -> Holder | None:
    """The generator of a strategy over arrays; None where it has to see its records one by one."""
    generator: Any = strategy.create_generator()
    match strategy.generator:
        case AverageOfLast():
            return _Average(generator)
        case Interleaved():
            return _Streams(generator)
        case AdvanceAfterWait():
            return _Advancing(generator)
        case Custom() if generator.on_batch is not None:
            return _Own(generator)
        case _:
            return None


class Rows(NamedTuple):
    """Rows of a trace. `major` is -1 at a tick. `idle`: -1 where the watermark was raised, else the new status."""

    arrival: np.ndarray
    major: np.ndarray
    minor: np.ndarray
    watermark: np.ndarray
    idle: np.ndarray


class BatchedGenerator:
    """One generator in a source of its own, with one partition; `partial`: its part of a source's snapshot."""

    def __init__(
        self, holder: Holder, strategy: WatermarkStrategy, next_tick: int, partial: Mapping[str, Any] | None
    ) -> None:
        self._holder, self._strategy, self._next_tick = holder, strategy, next_tick
        self._watermark, self._idle = MIN_TIMESTAMP, False
        self._active, self._countdown = False, None
        if partial is not None:
            holder.generator.restore(partial["generator"])
            self._watermark, self._idle = partial["watermark"], partial["idle"]
            self._active, self._countdown = partial["active_since_probe"], partial["countdown_from"]
        self._last_arrival: int | None = None

    def process(self, records: Records) -> Rows:
        """Records, and the ticks before each of them."""
        gaps = self._gaps(records.arrival)
        held, moves = self._holder.held(), self._holder.moves()
        after = self._holder.after(records, gaps.ticks)
        there = np.concatenate(([held is not None], after.is_there[:-1]))
        value = np.concatenate(([MIN_TIMESTAMP if held is None else held], after.value[:-1]))
        rows = self._rows(gaps, value, there, moves, after, records)
        self._last_arrival = int(records.arrival[-1])
        return rows

    def end(self, until: int) -> Rows:
        """The ticks up to the end of processing time (epoch ms)."""
        gaps = self._gaps(np.array([until]))
        held, moves = self._holder.held(), self._holder.moves()
        value = np.array([MIN_TIMESTAMP if held is None else held])
        rows = self._rows(gaps, value, np.array([held is not None]), moves, None, None)
        self._holder.ticked(int(gaps.ticks[0]))
        self._end_timer(int(gaps.first[0]), int(gaps.due[0]))
        return rows

    @property
    def partial(self) -> dict[str, Any]:
        """Its part of a source's snapshot."""
        return {
            "watermark": self._watermark,
            "idle": self._idle,
            "active_since_probe": self._active,
            "countdown_from": self._countdown,
            "generator": self._holder.generator.snapshot(),
        }

    def _gaps(self, arrival: np.ndarray) -> _Gaps:
        """The ticks before each arrival, since the one before (rules 7 and 10)."""
        interval, idleness, count = self._strategy.interval, self._strategy.idleness, len(arrival)
        if not interval:
            none = np.zeros(count, dtype=np.int64)
            return _Gaps(none, none, none, np.full(count, NEVER), arrival)
        first = np.empty(count, dtype=np.int64)
        first[1:] = self._tick_after(arrival[:-1])
        since = self._last_arrival
        first[0] = self._next_tick if since is None else self._tick_after(np.array([since]))[0]
        due = np.maximum((arrival - first) // interval + 1, 0)
        if idleness is None:
            return _Gaps(first, due, due, np.full(count, NEVER), arrival)
        countdown = first + interval
        if since is None and not self._active:
            countdown[0] = first[0] if self._countdown is None else self._countdown
        idle_from = np.maximum(self._tick_after(countdown + idleness), first)
        return _Gaps(first, due, np.minimum(due, (idle_from - first) // interval), idle_from, arrival)

    def _tick_after(self, time: np.ndarray) -> np.ndarray:
        start, interval = self._strategy.timer_start, self._strategy.interval
        return np.maximum(start + (np.maximum(time - start, 0) // interval + 1) * interval, self._next_tick)

    def _rows(
        self,
        gaps: _Gaps,
        value: np.ndarray,
        there: np.ndarray,
        moves: Moves,
        after: Held | None,
        records: Records | None,
    ) -> Rows:
        """The rows of all gaps and of the records behind them; `value`: what the generator holds before each gap."""
        count = len(value)
        first, origin = np.full(count, self._first_move(moves)), value.copy()
        first[0], origin[0] = moves.first, moves.origin
        ticks = there & (gaps.ticks > 0)
        moved = there & (gaps.ticks >= np.maximum(first, 2))
        by_first = np.where(first == 1, origin + moves.step, value)
        moments = np.full((count, 4), MIN_TIMESTAMP)
        moments[:, 0][ticks] = by_first[ticks]
        moments[:, 1][moved] = (origin + gaps.ticks * moves.step)[moved]
        if after is not None:
            at_record = after.value if after.at_record is None else after.at_record
            moments[:, 3][after.emits] = at_record[after.emits]
        running = np.maximum.accumulate(np.maximum(moments.ravel(), self._watermark))
        raised = (np.concatenate(([self._watermark], running[:-1])) < running).reshape(count, 4)
        reached = running.reshape(count, 4)
        signs = np.zeros((count, 4), dtype=np.int64)
        signs[:, 0] = ticks
        signs[:, 2] = np.where(gaps.idle_from <= gaps.end, 2, 0)
        if after is not None:
            signs[:, 3] = after.emits
        turned, idle = _turns(signs.ravel(), self._idle)
        turned, idle = turned.reshape(count, 4), idle.reshape(count, 4)
        self._watermark, self._idle = int(running[-1]), bool(idle[-1, -1])
        parts = [self._moving_rows(gaps, first, origin, moves.step, moved)]
        for moment, at in ((0, gaps.first), (2, gaps.idle_from)):
            parts += [
                _at_ticks(at[chosen], reached[:, moment][chosen], status[chosen])
                for chosen, status in _chosen(raised[:, moment], turned[:, moment], idle[:, moment])
            ]
        if records is not None:
            for chosen, status in _chosen(raised[:, 3], turned[:, 3], idle[:, 3]):
                own = (records.arrival[chosen], records.major[chosen], records.minor[chosen])
                parts.append(Rows(*own, reached[:, 3][chosen], status[chosen]))
        return Rows(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _first_move(self, moves: Moves) -> int:
        """The tick that first moves the generator after a record."""
        wait = getattr(self._holder.generator, "wait", None)
        return MAX_TIMESTAMP if wait is None or not moves.step else wait // moves.step + 1

    def _moving_rows(self, gaps: _Gaps, first: np.ndarray, origin: np.ndarray, step: int, moved: np.ndarray) -> Rows:
        """The ticks but the first one at which a generator has moved by itself: each raises its watermark."""
        begin = np.maximum(first, 2)[moved]
        counts = gaps.ticks[moved] - begin + 1
        number = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(begin, counts)
        at = np.repeat(gaps.first[moved], counts) + (number - 1) * self._strategy.interval
        watermark = np.repeat(origin[moved], counts) + number * step
        return _at_ticks(at, watermark, np.full(len(at), -1))

    def _end_timer(self, first: int, due: int) -> None:
        """The timer after so many ticks from `first` on, with no record behind them."""
        if self._strategy.idleness is None:
            return
        if self._last_arrival is not None:
            self._active, self._countdown = True, None
        if self._active and due:
            self._active, self._countdown = False, first + self._strategy.interval if due > 1 else None
        elif due and self._countdown is None:
            self._countdown = first


class _Gaps(NamedTuple):
    """The ticks before each record: the first one (epoch ms), how many are due, how many run before `idle_from`."""

    first: np.ndarray
    due: np.ndarray
    ticks: np.ndarray
    idle_from: np.ndarray
    end: np.ndarray


def _turns(signs: np.ndarray, idle: bool) -> tuple[np.ndarray, np.ndarray]:
    """Whether the status changes at each moment, and the status after it. Signs: 1 active, 2 idle, 0 as before."""
    number = np.maximum.accumulate(np.where(signs > 0, np.arange(len(signs)), -1))
    after = np.where(number < 0, idle, signs[np.maximum(number, 0)] == 2)
    return np.concatenate(([idle], after[:-1])) != after, after


def _chosen(raised: np.ndarray, turned: np.ndarray, idle: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows of raised watermarks, and rows of changed statuses."""
    return [(raised, np.full(len(idle), -1)), (turned, idle.astype(np.int64))]


def _at_ticks(at: np.ndarray, watermark: np.ndarray, idle: np.ndarray) -> Rows:
    none = np.full(len(at), -1)
    return Rows(at, none, none, watermark, idle)
