"""Which tests run when, and in which order.

`REWINDOW_TESTS` says it. `short` (`make test`): all tests but the long ones. `long` (`make test-long`): all tests, and
in full what else is sampled. `changed` (after `make test`, in CI): of the long tests those that a change can break, as
far as the minutes in `REWINDOW_TESTS_MINUTES` last. Without it pytest runs what it is given.

`durations.json` beside this file has the seconds that each file took in each tier. `make durations` renews it.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import NamedTuple

import grimp

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "tests" / "durations.json"
MEASURED = ROOT / "build" / "durations.json"
"""What the last run took, in the form of `KEPT`, with what it did not run as it was."""
UNKNOWN = 20.0
"""Seconds of a file that has not been measured."""
PACKAGE = "spark_jobs"
STARTED = {"orchestration": ("submit", "report", "web"), "web": ("orchestration",), "demo": ("cli",)}
"""Rooms whose code the tests of a room start in another process: no import says so."""
PARALLEL = 2
"""Processes that share the tests."""


class Tests(StrEnum):
    """The value of `REWINDOW_TESTS`."""

    SHORT = "short"
    LONG = "long"
    CHANGED = "changed"

    @classmethod
    def chosen(cls) -> Tests | None:
        value = os.environ.get("REWINDOW_TESTS")
        return cls(value) if value else None


class Seconds(NamedTuple):
    """What the tests of a file took."""

    short: float
    long: float


def kept_durations(path: Path | None = None) -> dict[str, Seconds]:
    path = path or KEPT
    return {file: Seconds(*seconds) for file, seconds in json.loads(path.read_text()).items()} if path.exists() else {}


def keep_durations(measured: Mapping[str, Seconds]) -> None:
    """Write `MEASURED`: a tier that did not run keeps its seconds, and a file that is gone goes."""
    before = kept_durations()
    merged = {
        file: [
            round(new or old, 1) for new, old in zip(measured.get(file, (0, 0)), before.get(file, (0, 0)), strict=True)
        ]
        for file in sorted({*before, *measured})
        if (ROOT / file).exists()
    }
    MEASURED.parent.mkdir(exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(file)}: {seconds}" for file, seconds in merged.items())
    MEASURED.write_text(f"{{\n{lines}\n}}\n")


@dataclass(frozen=True, slots=True)
class Choice:
    """The long test files that a change can break: those for which there is time, and the others with the reason."""

    files: frozenset[str]
    left_out: Mapping[str, str]


def long_files_to_run(files: Iterable[str], changed: Iterable[str], minutes: float) -> Choice:
    """Those of `files` that run after a change of the paths `changed`, until `minutes` are over.

    First come the files of the rooms that have changed, then those that a change can only reach; among both the
    quickest first. A file that no path can reach is left out. A path outside of the package and of the tests
    (requirements, for instance) can reach every file.
    """
    paths = list(changed)
    durations = kept_durations()
    chosen, left_out, total = set[str](), dict[str, str](), 0.0

    def place(file: str) -> tuple[bool, float]:
        return not any(_is_of_its_room(path, file) for path in paths), _long_seconds(durations, file)

    for file in sorted(files, key=place):
        if not any(_can_break(path, file) for path in paths):
            left_out[file] = "the change cannot break it"
            continue
        seconds = _long_seconds(durations, file)
        if max((total + seconds) / PARALLEL, seconds) > minutes * 60:
            left_out[file] = f"it takes {seconds:.0f} s, and the time is used up"
            continue
        total += seconds
        chosen.add(file)
    return Choice(frozenset(chosen), left_out)


def _long_seconds(durations: Mapping[str, Seconds], file: str) -> float:
    return durations[file].long or UNKNOWN if file in durations else UNKNOWN


def _is_of_its_room(path: str, file: str) -> bool:
    """Whether `path` is code of the room that the test file is about, the file itself, or a helper that it imports."""
    if Path(path).parts[0] == PACKAGE:
        return Path(path).parts[1] == Path(file).parts[1]
    return path in _test_files_below(file)


def _can_break(path: str, file: str) -> bool:
    top = path.partition("/")[0]
    if top == "docs" or (path.endswith(".md") and top != "tests"):
        return False
    if top == PACKAGE:
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return module in _modules_below(file) or module not in _graph().modules
    if top != "tests":
        return True
    return path == file or Path(path).parent == Path("tests") or path in _test_files_below(file)


@cache
def _modules_below(file: str) -> frozenset[str]:
    """The modules whose code a test file runs: those that it imports, those of its room, and all that these import."""
    graph, folder = _graph(), Path(file).parts[1]
    rooms = {f"{PACKAGE}.{room}" for room in (folder, *STARTED.get(folder, ()))} & graph.modules
    imported = {name for path in _test_files_below(file) for name in _imported(path)} & graph.modules
    below = imported.union(*(graph.find_descendants(room) for room in rooms))
    for module in tuple(below):
        below |= graph.find_upstream_modules(module)
    return frozenset(below | rooms)


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph(PACKAGE, cache_dir=None)


@cache
def _test_files_below(file: str) -> frozenset[str]:
    """A test file, and the helpers and data folders of the tests that it imports, directly or not."""
    found, waiting = {file}, [file]
    while waiting:
        for name in _imported(waiting.pop()):
            if name.startswith("tests."):
                place = name.replace(".", "/")
                for path in (f"{place}.py", f"{place}/__init__.py"):
                    if path not in found and (ROOT / path).exists():
                        found.add(path)
                        waiting.append(path)
    conftest = f"{Path(file).parent.as_posix()}/conftest.py"
    return frozenset(found | {conftest})


@cache
def _imported(file: str) -> frozenset[str]:
    """The full names of what a file imports; of `from a import b` both `a` and `a.b`."""
    path = ROOT / file
    if not path.exists():
        return frozenset()
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def changed_paths() -> list[str]:
    """The paths that differ from `REWINDOW_TESTS_BASE`; without it, from the state a day before the last commit."""
    base = os.environ.get("REWINDOW_TESTS_BASE") or _a_day_before()
    return _git("diff", "--name-only", base, "HEAD").splitlines() if base else ["everything"]


def _a_day_before() -> str:
    last = int(_git("log", "-1", "--format=%ct"))
    return _git("rev-list", "-1", f"--before={last - 24 * 3600}", "HEAD").strip()


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def in_order(comes_last: Callable[[str], bool]) -> Callable[[str], tuple[bool, float]]:
    """A sort key of test files: the longest first, so that processes end at about the same time."""
    durations = kept_durations()
    tier = Tests.chosen()

    def place(file: str) -> tuple[bool, float]:
        short, long = durations.get(file, Seconds(UNKNOWN, 0))
        seconds = {Tests.SHORT: short, Tests.CHANGED: long}.get(tier, short + long) if tier else short + long
        return comes_last(file), -seconds

    return place


class Stopwatch:
    """Adds up what the tests of each file take."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._began = time.monotonic()

    def minutes(self) -> float:
        """Since the tests began."""
        return (time.monotonic() - self._began) / 60

    def add(self, file: str, *, is_long: bool, seconds: float) -> None:
        self._seconds[file][is_long] += seconds

    def keep(self) -> None:
        keep_durations({file: Seconds(*seconds) for file, seconds in self._seconds.items()})
