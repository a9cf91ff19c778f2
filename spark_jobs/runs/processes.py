"""Which process works on a run, and whether it is still alive. No Spark in this module."""

from __future__ import annotations

import os
import socket
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

STAGES_PROCESS = "stages"
"""The process of a run whose stages are applications of their own: between them it has no process."""
SILENCE = timedelta(minutes=20)
"""A process on another host that has given no sign of life for so long is taken for killed."""
WAIT_LIMIT = timedelta(days=7)
"""A run that waits for a person or for its next stage is given up after so long without a sign of life."""
_SILENCE_BEFORE_HEARTBEATS = timedelta(hours=24)


def this_process() -> str:
    """`host:pid:start`, which no other process has. `host` names the boot and the PID namespace too."""
    pid = os.getpid()
    return f"{_host()}:{pid}:{_started(pid) or ''}"


def is_alive(process: str | None, last_sign: datetime | None, now: datetime) -> bool:
    """Whether the process of a run may still work on it.

    Of a process on this host the kernel knows; of another host's only its last sign of life (a heartbeat) is known.
    Of `stages` it is true until `WAIT_LIMIT`.
    """
    if process == STAGES_PROCESS:
        return not _is_older(last_sign, now, WAIT_LIMIT)
    host, pid, start = (process or "::").rsplit(":", 2)
    if host in (_host(), socket.gethostname()) and pid.isdigit():
        return _started(int(pid)) == start if Path("/proc").is_dir() else _answers(int(pid))
    # Versions before heartbeats wrote the plain host name.
    return not _is_older(last_sign, now, SILENCE if "/" in host else _SILENCE_BEFORE_HEARTBEATS)


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
    aware = last_sign if last_sign.tzinfo else last_sign.replace(tzinfo=now.tzinfo)
    return now - aware > limit


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
