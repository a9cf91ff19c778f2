"""Which process works on a run or a delivery, and whether it is still alive. No Spark in this module."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path

STAGES_PROCESS = "stages"
"""The process of a run whose stages are applications of their own: between them it has no process."""
HEARTBEAT = timedelta(minutes=2)
"""How often a working process writes that it is alive."""
_WATCHED = 2.5
"""For so many heartbeats a process is watched that may be gone."""
SILENCE = timedelta(minutes=20)
"""A process on another host whose last sign of life is so far from this host's clock is watched: is there a new one?"""
WAIT_LIMIT = timedelta(days=7)
"""A run that waits for a person or for its next stage is given up after so long without a sign of life."""


def this_process() -> str:
    """`host:pid:start`, which no other process has. `host` names the boot and the PID namespace too."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid) or ''}"


class Sign(StrEnum):
    """What is known of a process. `SILENT`: of another host, by whose clock its last sign of life may be recent."""

    ALIVE = "alive"
    GONE = "gone"
    SILENT = "silent"


def sign_of(process: str | None, last_sign: datetime | None, now: datetime) -> Sign:
    """What is known of the process of a run.

    Of a process on this host the kernel knows; of another host's only its last sign of life (a heartbeat) is known, by
    that host's clock. `stages` is alive until `WAIT_LIMIT`. A time without a zone is local, as Spark gives them.
    """
    if process == STAGES_PROCESS:
        return Sign.GONE if _is_older(last_sign, now, WAIT_LIMIT) else Sign.ALIVE
    if process is None:
        return Sign.GONE
    host, pid, start = process.rsplit(":", 2)
    if host == _host():
        known = _started(int(pid)) == start if Path("/proc").is_dir() else _answers(int(pid))
        return Sign.ALIVE if known else Sign.GONE
    if last_sign is None:
        return Sign.SILENT
    return Sign.ALIVE if abs(now - last_sign.astimezone(UTC)) <= SILENCE else Sign.SILENT


def alive_of(signs: Mapping[str, Callable[[], object]], heartbeat: timedelta = HEARTBEAT) -> set[str]:
    """The names whose sign of life changes while it is watched, for `_WATCHED` heartbeats at most.

    The clocks of two hosts can differ by any amount. So a sign's time says nothing: what counts is that it changes.
    """
    waiting, alive = {name: sign() for name, sign in signs.items()}, set[str]()
    until = time.monotonic() + _WATCHED * heartbeat.total_seconds()
    while waiting and time.monotonic() < until:
        time.sleep(heartbeat.total_seconds() / 8)
        changed = {name for name, before in waiting.items() if signs[name]() != before}
        alive |= changed
        waiting = {name: before for name, before in waiting.items() if name not in changed}
    return alive


@contextmanager
def beating(beat: Callable[[], bool], name: str, heartbeat: timedelta = HEARTBEAT) -> Iterator[None]:
    """Call `beat` now and then while the block runs, until it returns False. Work shorter than the interval calls it
    not once. What it raises is passed over: the catalog may come back, and the next beat tries again."""
    stop = threading.Event()

    def beats() -> None:
        while not stop.wait(heartbeat.total_seconds()):
            with suppress(Exception):
                if not beat():
                    return

    thread = threading.Thread(target=beats, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=60)


@cache
def _host() -> str:
    """The host's name, its boot and the PID namespace: two containers may share a name, but not all three."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        namespace = str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        boot = namespace = ""
    return f"{socket.gethostname()}/{boot}/{namespace}"


def _is_older(last_sign: datetime | None, now: datetime, limit: timedelta) -> bool:
    if last_sign is None:
        return True
    return now - last_sign.astimezone(UTC) > limit


def _started(pid: int) -> str | None:
    """When the process started, in the kernel's own clock; None if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except (OSError, IndexError):
        return None


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
