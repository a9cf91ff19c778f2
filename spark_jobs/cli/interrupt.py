"""Ctrl-C or TERM while Spark works: one sentence says what was staged or published, and how to go on."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_jobs.runs.life.status import RunStatus

_READS = frozenset({"check", "plan", "compare", "history", "sql", "doctor", "expectations", "live"})
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_WATCHING: list[threading.Thread] = []
_ENDING = threading.Event()


def end_on_interrupt() -> None:
    """From now on Ctrl-C and TERM end this process at once, as a kill would, and say what that means.

    A killed run leaves the published tables as they were, and the next run clears up after it. To end it in another way
    would take calls into a Java that is interrupted too. PySpark puts a handler of its own in the place of ours while
    it starts, so a thread waits for the number of the signal, which the interpreter writes whoever handles it.
    """
    for number in _SIGNALS:
        signal.signal(number, _leave_to_the_watcher)
    if _WATCHING:
        return
    come, written = os.pipe()
    os.set_blocking(written, False)
    signal.set_wakeup_fd(written, warn_on_full_buffer=False)
    _WATCHING.append(threading.Thread(target=_watch, args=(come,), name="interrupt", daemon=True))
    _WATCHING[0].start()


def end_as_the_command_does() -> None:
    """What Ctrl-C and TERM do from the begin of a command on: those that serve until then clean up by themselves."""
    if sys.argv[1:2] in (["up"], ["demo"], ["kafka"]):
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    else:
        end_on_interrupt()


def leave_the_end_to_the_watcher() -> None:
    """Return only where no signal has come: else the watcher ends this process, with its own sentence and exit code."""
    if _WATCHING:
        _ENDING.wait(_MOMENT)
    if _ENDING.is_set():
        threading.Event().wait()


_MOMENT = 0.2
"""Seconds: the number of a signal that has made something fail is read within."""


def _leave_to_the_watcher(*_: object) -> None:
    """The interpreter writes the signal's number only where there is a handler."""


def _watch(come: int) -> None:
    while number := os.read(come, 1):
        if number[0] in _SIGNALS:
            _end(number[0])


def _end(number: int) -> None:
    _ENDING.set()
    terminal = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what fails now, because Java is interrupted too, says nothing
    said = sentence(sys.argv[1] if len(sys.argv) > 1 else "") + "\n"
    if os.isatty(terminal):
        said = f"\r\x1b[2K{said}\x1b[?25h"  # in place of the line that shows the progress; then the cursor again
    os.write(terminal, said.encode())
    with suppress(Exception):  # the process ends, whatever its folder says
        _record()
    os._exit(128 + number)


def _record() -> None:
    """Write down that nothing works on the runs of this process any more, but for what the next run has to find out."""
    if not (moved := _moved_runs()):
        return
    from spark_jobs.runs.life.status import RunStatus
    from spark_jobs.runs.life.store import RunStore
    from spark_jobs.runs.life.unfinished import record_end

    for run_id, status in moved.items():
        if status is not RunStatus.PUBLISHING:
            why = "it was interrupted; nothing was published"
            record_end(RunStore.configured().folder(run_id), datetime.now(UTC), why)


def _moved_runs() -> Mapping[str, RunStatus]:
    """The runs that this process works on; none where it has not yet loaded what moves them."""
    lifecycle = sys.modules.get("spark_jobs.runs.life.lifecycle")
    moved_runs = getattr(lifecycle, "moved_runs", None)  # a module may be half loaded
    return moved_runs() if moved_runs is not None else {}


def sentence(command: str) -> str:
    """What an interrupt of the command means now, and how to go on."""
    from spark_jobs.runs.life.status import RunStatus

    for run_id, status in _moved_runs().items():
        if status.is_published:
            return f"interrupted: run {run_id} is published; `rewindow report {run_id}` writes its report"
        if status is RunStatus.PUBLISHING:
            return (
                f"interrupted while run {run_id} was being published: all of its windows are published, or none. "
                "Start the command again: it finishes or drops what is left, and says which"
            )
        if status.waits:
            return f"interrupted: run {run_id} is {status.in_words}, nothing was published; see `rewindow status`"
        return (
            f"interrupted: nothing was published. What run {run_id} has staged is dropped by the next run: "
            "start the command again"
        )
    if command in ("run", "reconcile"):
        return "interrupted: nothing was staged or published. Start the command again"
    if command in _READS:
        return "interrupted; it only reads, so nothing has changed"
    return "interrupted. The command can be started again: what it has done already is not done twice"
