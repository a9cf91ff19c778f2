"""Which tests run when, and in which order.

`REWINDOW_TESTS` says it. `short` (`make test`): all quick tests; of those that take seconds the ones that the last
day's change touches, then those whose turn it is, up to `SHORT_MINUTES` in all. `whole` (`make test-whole`): all tests
but the long ones. `turn` (`make test-turn`, in CI after `make test`): of those that `short` leaves out, the long ones
too, what the change touches, then those whose turn it is, as far as the minutes in `REWINDOW_TESTS_MINUTES` last.
`long` (`make test-long`): all tests, and in full what else is sampled. Without it pytest runs what it is given.

`durations.json` beside this file has the seconds of one test of each file, by tier. `make durations` renews it.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "durations.json"
MEASURED = ROOT / "build" / "durations.json"
"""What the last run took, in the form of `KEPT`, with what it did not run as it was."""
PACKAGE = "spark_jobs"
PARALLEL = 2
"""Processes that share the tests."""
SHORT_MINUTES = 20.0
"""What `make test` takes, by the kept durations: twice as long on a slow machine."""
QUICK_SECONDS = 3.0
"""Tests of a file that take less on average run each time."""
GOLDEN_RATIO = 0.6180339887498949
"""Multiples of it, modulo 1, lie as far from each other as numbers can: after a few turns every test had its own."""


class Tests(StrEnum):
    """The value of `REWINDOW_TESTS`."""

    SHORT = "short"
    WHOLE = "whole"
    LONG = "long"
    TURN = "turn"

    @classmethod
    def chosen(cls) -> Tests | None:
        value = os.environ.get("REWINDOW_TESTS")
        return cls(value) if value else None


class Seconds(NamedTuple):
    """What one test of a file takes, on average."""

    short: float = 5.0
    long: float = 20.0

    def of(self, *, is_long: bool) -> float:
        return self.long if is_long else self.short


UNKNOWN = Seconds()
"""Of a file that has not been measured."""


class Item(NamedTuple):
    """A collected test: its file, its name within it, and whether it has the mark `long`."""

    file: str
    name: str
    is_long: bool


def kept_durations(path: Path | None = None) -> dict[str, Seconds]:
    path = path or KEPT
    return {file: Seconds(*seconds) for file, seconds in json.loads(path.read_text()).items()} if path.exists() else {}


def longest_first(tests: Iterable[Item], comes_last: Callable[[str], bool]) -> Callable[[str], tuple[bool, float]]:
    """A sort key of the files of `tests`: the longest first, so that processes end at about the same time."""
    durations, total = kept_durations(), dict[str, float]()
    for test in tests:
        seconds = durations.get(test.file, UNKNOWN).of(is_long=test.is_long)
        total[test.file] = total.get(test.file, 0.0) + seconds
    return lambda file: (comes_last(file), -total[file])


def whose_turn(tests: Sequence[Item], changed: Sequence[str], minutes: float, turn: int) -> frozenset[Item]:
    """Those of the tests that run at a turn: what the paths `changed` touch, then the others, until time is up.

    The tests lie on a ring. Each turn begins elsewhere on it, so that after some turns every test has run.
    """
    durations = kept_durations()
    touched = [test for test in tests if any(touches(path, test.file) for path in changed)]
    others = [test for test in tests if test not in set(touched)]
    left, chosen = minutes * 60 * PARALLEL, set[Item]()
    for test in [*_from_turn(touched, turn), *_from_turn(others, turn)]:
        left -= durations.get(test.file, UNKNOWN).of(is_long=test.is_long)
        if left < 0:
            break
        chosen.add(test)
    return frozenset(chosen)


def in_short(tests: Sequence[Item], changed: Sequence[str], turn: int) -> frozenset[Item]:
    """The tests of `make test`: all quick ones, and of the others what runs at this turn in the time that is left."""
    durations = kept_durations()
    own = [(test, durations.get(test.file, UNKNOWN).short) for test in tests if not test.is_long]
    quick = [(test, seconds) for test, seconds in own if seconds < QUICK_SECONDS]
    left = SHORT_MINUTES - sum(seconds for _, seconds in quick) / 60 / PARALLEL
    others = [test for test, seconds in own if seconds >= QUICK_SECONDS]
    return frozenset(test for test, _ in quick) | whose_turn(others, changed, left, turn)


def _from_turn(ring: Sequence[Item], turn: int) -> Sequence[Item]:
    start = int(turn * GOLDEN_RATIO % 1 * len(ring))
    return [*ring[start:], *ring[:start]]


def touches(path: str, file: str) -> bool:
    """Whether a changed path is the test file, or code of the room of the package that the file is about."""
    parts = Path(path).parts
    return path == file or (len(parts) > 2 and parts[0] == PACKAGE and parts[1] == Path(file).parts[1])


@cache
def turn() -> int:
    """The number of commits: it moves on with each change, and is the same for all who test one state."""
    return int(_git("rev-list", "--count", "HEAD") or 0)


def changed_paths() -> list[str]:
    """The paths that differ from `REWINDOW_TESTS_BASE`; without it, from the state a day before the last commit.

    What is not committed yet counts too.
    """
    base = os.environ.get("REWINDOW_TESTS_BASE") or _a_day_before() or "HEAD"
    return [*_git("diff", "--name-only", base).splitlines(), *_git("ls-files", "-o", "--exclude-standard").splitlines()]


def _a_day_before() -> str:
    last = int(_git("log", "-1", "--format=%ct") or 0)
    return _git("rev-list", "-1", f"--before={last - 24 * 3600}", "HEAD")


def _git(*arguments: str) -> str:
    """What git says; nothing where the tests lie in no repository."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()


class Stopwatch:
    """Adds up what the tests of each file take."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, bool], dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._began = time.monotonic()

    def minutes(self) -> float:
        """Since the tests began."""
        return (time.monotonic() - self._began) / 60

    def add(self, test: Item, seconds: float) -> None:
        self._seconds[test.file, test.is_long][test.name] += seconds

    def keep(self) -> None:
        """Write `MEASURED`: a tier that did not run keeps its seconds, and a file that is gone goes."""
        files = {file for file, _ in self._seconds}
        keep_durations(
            {file: Seconds(self._mean(file, is_long=False), self._mean(file, is_long=True)) for file in files}
        )

    def _mean(self, file: str, *, is_long: bool) -> float:
        taken = self._seconds.get((file, is_long), {})
        return sum(taken.values()) / len(taken) if taken else 0.0


def keep_durations(measured: Mapping[str, Seconds]) -> None:
    before = kept_durations()
    merged = {
        file: [
            round(new or old, 2) for new, old in zip(measured.get(file, (0, 0)), before.get(file, (0, 0)), strict=True)
        ]
        for file in sorted({*before, *measured})
        if (ROOT / file).exists()
    }
    MEASURED.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(file)}: {seconds}" for file, seconds in merged.items())
    MEASURED.write_text(f"{{\n{lines}\n}}\n")
