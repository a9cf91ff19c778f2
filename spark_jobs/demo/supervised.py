"""Processes that end with the process that started them, however that ends.

A small parent process has a pipe to the process that started it. When the pipe closes, the parent ends all processes
of its session, and those that have left the session but carry its mark in their environment. Both are needed: some
programs overwrite their environment with their title.
"""

from __future__ import annotations

import operator
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed


def becomes_true(condition: Callable[[], bool], *, within: float, every: float) -> bool:
    """Call `condition` until it is true, each `every` seconds; False when it is not after `within` seconds.

    The condition is called at least once. What it raises is raised.
    """
    attempts = Retrying(
        retry=retry_if_result(operator.not_),
        stop=stop_after_delay(within),
        wait=wait_fixed(every),
        retry_error_callback=lambda _: False,
    )
    return attempts(condition)


_MARK = "SUPERVISED_MARK"
"""The environment variable by which the processes of one command are found again."""
_STOP_SECONDS = 15


class Supervised:
    """One command and all that it starts."""

    def __init__(self, command: Sequence[str], *, environ: Mapping[str, str], log: IO[bytes], folder: Path) -> None:
        self._mark = secrets.token_hex(8)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "spark_jobs.demo.supervised", *command],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env={**environ, _MARK: self._mark},
            cwd=folder,
            start_new_session=True,
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        """End it and all that it has started; harmless twice."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_SECONDS)
        end_all(self._mark, self._process.pid)
        self._process.kill()
        self._process.wait()


def end_all(mark: str, session: int) -> None:
    """End all processes of a session, and all that carry the mark in their environment; but this one."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            is_ours = os.getsid(process.pid) == session or process.environ().get(_MARK) == mark
            if is_ours and process.pid != os.getpid():
                found.append(process)
    for process in found:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(found, timeout=_STOP_SECONDS - 5)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=5)


def main() -> None:
    """Run the command of the arguments until it ends or standard input closes; then end all that it has started."""
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def end() -> None:
        end_all(os.environ[_MARK], os.getsid(0))

    def watch() -> None:
        with suppress(OSError):
            sys.stdin.buffer.read()
        end()

    threading.Thread(target=watch, daemon=True).start()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # only the pipe ends it: a group's SIGTERM must not orphan the rest
    status = child.wait()
    end()  # here too: the watcher ends with this thread, and the command may be the first that it has ended
    sys.exit(status)


if __name__ == "__main__":
    main()
