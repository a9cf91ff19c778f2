"""A Flink job with restarts, one record after the other: state and timers come back, the watermark does not."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.eventtime.durations import MINUTE
from tests.runs.small_runs import T0

BOUND, LATENESS = 10_000, 45_000
MIN = -(2**63)

Window = tuple[str, int, int]


def log_of(seed: int, count: int = 250) -> list[dict]:
    """Records about a second apart, many of them minutes behind, so that a restart lets some of them in."""
    draw = random.Random(seed)
    rows, arrival, offsets = [], T0, [0, 0]
    for number in range(count):
        arrival += draw.choice((1, 700, 1000, 2500))  # no two at once: their order is not in question
        partition = int(draw.random() < 0.15)  # until it has had one, no record is late
        behind = draw.randrange(60_000, 400_000) if draw.random() < 0.25 else draw.randrange(0, 12_000)
        key = draw.choice("abc")
        rows.append(
            {"p": partition, "o": offsets[partition], "a": arrival, "k": key, "t": arrival - behind, "v": number}
        )
        offsets[partition] += 1
    return rows


@dataclass
class RestartedJob:
    """A job of one subtask with a watermark after each record; `gap`: of sessions, in place of sliding windows."""

    restarts: Sequence[int]
    gap: int | None = None
    lateness: int = LATENESS
    state: dict[Window, list[dict]] = field(default_factory=dict)
    timers: set[tuple[int, Window]] = field(default_factory=set)
    rows: list[dict[str, Any]] = field(default_factory=list)
    watermark: int = MIN

    def run(self, records: Sequence[dict]) -> list[dict[str, Any]]:
        """The rows that it emits, with the last offset of each partition in the row's contents."""
        pending, highest = list(self.restarts), dict[int, int]()
        for record in records:
            while pending and pending[0] <= record["a"]:
                pending.pop(0)
                highest, self.watermark = {}, MIN
            for window in self.windows(record):
                self.add(record, window)
            highest[record["p"]] = max(highest.get(record["p"], 0), record["t"])
            if len(highest) == 2:
                self.advance(min(highest.values()) - BOUND - 1, record["a"])
        return self.rows

    def windows(self, record: dict) -> list[Window]:
        time, key = record["t"], record["k"]
        if self.gap is not None:
            return [(key, time, time + self.gap)]
        first = time - time % (MINUTE // 2)
        return [(key, start, start + 2 * MINUTE) for start in range(first - MINUTE * 3 // 2, first + 1, MINUTE // 2)]

    def add(self, record: dict, window: Window) -> None:
        if self.gap is not None:
            window = self.merged(window)
        contents = [*self.state.get(window, []), record]
        if window[2] - 1 + self.lateness <= self.watermark:
            self.state.pop(window, None)
            return
        self.state[window] = contents
        if window[2] - 1 <= self.watermark:
            self.emit(window, record["a"])
        else:
            self.timers.add((window[2] - 1, window))
        self.timers.add((window[2] - 1 + self.lateness, window))

    def merged(self, window: Window) -> Window:
        """The session with all that it touches; what they had, and their timers, are then its own."""
        touched = [w for w in self.state if w[0] == window[0] and w[1] <= window[2] and window[1] <= w[2]]
        whole = (window[0], min(w[1] for w in [*touched, window]), max(w[2] for w in [*touched, window]))
        if whole not in self.state:
            contents = [record for one in touched for record in self.state.pop(one)]
            self.timers = {(at, w) for at, w in self.timers if w not in touched}
            if contents:
                self.state[whole] = contents
        return whole

    def advance(self, watermark: int, at: int) -> None:
        if watermark <= self.watermark:
            return
        self.watermark = watermark
        for time, window in sorted(timer for timer in self.timers if timer[0] <= watermark):
            self.timers.discard((time, window))
            if time == window[2] - 1 and window in self.state:
                self.emit(window, at)
            if time == window[2] - 1 + self.lateness:
                self.state.pop(window, None)

    def emit(self, window: Window, at: int) -> None:
        contents = self.state[window]
        last = {p: max(r["o"] for r in contents if r["p"] == p) for p in {r["p"] for r in contents}}
        self.rows.append(
            {
                "k": window[0],
                "s": window[1],
                "e": window[2],
                "n": len(contents),
                "total": sum(r["v"] for r in contents),
                "at": at,
                "last": sorted(last.items()),
                "number": len(self.rows),
            }
        )
