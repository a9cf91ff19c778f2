"""Limits of what is read: its time and its memory, and what a refusal must say."""

from __future__ import annotations

import os
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from spark_jobs.errors import DefinitionError, RewindowError

_LONGEST = 20_000
"""Characters of a refusal that a person may have to read."""
_WAITING = 10
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Fault(AssertionError):
    """The product has not done what it must with an input."""


class _Late(BaseException):
    """The time is over. Not an `Exception`: no handler of the product takes it for its own."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What reading one input may take.

    `seconds`: of the processor, so that a busy machine makes no fault; a wait may take `_WAITING` times as long.
    `megabytes`: of address space, beside what the process has already.
    """

    seconds: float = 5.0
    megabytes: int = 512


def try_input(read: Callable[[], object], limit: Limit) -> None:
    """Read an input. Raises Fault unless it is read, or refused in a sentence that says where, within the limits."""
    try:
        with _limited(limit):
            read()
    except RewindowError as refused:
        check_refusal(refused)
    except Fault:
        raise
    except _Late:
        raise Fault(f"a hang: it has taken more than {limit.seconds:g} s") from None
    except MemoryError:
        raise Fault(f"memory: it has taken more than {limit.megabytes} MB") from None
    except (Exception, SystemExit) as problem:
        raise Fault(f"a traceback: {_last_lines(problem)}") from problem


def check_refusal(refused: RewindowError) -> None:
    """Raises Fault for a refusal that has no words, does not say where, or that no terminal can show."""
    problems = refused.problems if isinstance(refused, DefinitionError) else ()
    if not refused.what.strip():
        raise Fault("a refusal without words")
    if not (refused.where or refused.hint or problems):
        raise Fault(f"a refusal that says neither where nor what to do: {refused.what[:300]}")
    if any(not problem.file or problem.line < 1 for problem in problems):
        raise Fault(f"a problem without a file or a line: {refused.what[:300]}")
    text = str(refused)
    if len(text) > _LONGEST:
        raise Fault(f"a refusal of {len(text):,} characters: {text[:300]}")
    text.encode()


@contextmanager
def _limited(limit: Limit) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + (limit.megabytes << 20), before[1]))
    handlers = {number: signal.signal(number, _end) for number in (signal.SIGPROF, signal.SIGALRM)}
    # Again and again: what is raised while garbage is collected is lost.
    signal.setitimer(signal.ITIMER_PROF, limit.seconds, 0.5)
    signal.setitimer(signal.ITIMER_REAL, limit.seconds * _WAITING, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _Late


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE


def _last_lines(problem: BaseException) -> str:
    """The error, and the places of the product that it came through, the innermost last."""
    places = [
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
        for frame in traceback.extract_tb(problem.__traceback__)
        if "spark_jobs" in frame.filename
    ]
    lines = str(problem).splitlines()
    causes = [line.strip() for line in lines[1:] if line.startswith("Caused by:")]  # of Java
    first = next(iter((*causes[-1:], *lines)), "")
    return f"{type(problem).__name__}: {first[:300]} ({' > '.join(places[-4:])})"
