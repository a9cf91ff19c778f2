"""Ctrl-C while Spark works: one sentence says what was staged, what was published and how to go on; exit code 130."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
_READS = frozenset({"check", "plan", "compare", "history", "sql", "doctor", "expectations", "live"})


def end_on_interrupt() -> None:
    """From now on Ctrl-C ends this process at once, as a kill would, and says what that means.

    A killed run leaves the published tables as they were, and the next run clears up after it. To end it in another way
    would take calls into a Java that is interrupted too. PySpark sets a handler of its own when it starts: call this
    again after that.
    """
    signal.signal(signal.SIGINT, _end)


def _end(number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    said = sentence(sys.argv[1] if len(sys.argv) > 1 else "") + "\n"
    if os.isatty(2):
        said = f"\r\x1b[2K{said}\x1b[?25h"  # in place of the line that shows the progress; then the cursor again
    os.write(2, said.encode())  # at once: whatever draws the progress draws no more after this
    os._exit(INTERRUPTED)


def sentence(command: str) -> str:
    """What an interrupt of the command means now, and how to go on."""
    from spark_jobs.runs.life.lifecycle import moved_runs
    from spark_jobs.runs.life.status import RunStatus

    for run_id, status in moved_runs().items():
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
