"""A local Spark JVM that stays for the next command: its classes are loaded and compiled, so small work is quick.

The first command starts a keeper (`spark_jobs.spark.keeper`), a process that owns the JVM and listens on a Unix socket
in a folder that only this user can enter. A command that joins has the JVM for itself until it ends: it makes a Spark
context of its own and stops it, so nothing of one command, neither settings nor cached frames nor catalogs, is seen by
the next. The keeper ends the JVM when a command dies without leaving, when nobody came for some minutes, and when the
heap does not get empty any more.

A user has one warm JVM at most. It serves commands with the same start: settings, environment, current folder, jars.
Another start replaces it while it is idle; while it is in use, a command starts a JVM of its own, as it does when the
keeper cannot be reached for any reason.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import stat
import struct
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

import pyspark
from py4j.java_gateway import JavaGateway
from pyspark.java_gateway import launch_gateway

from spark_jobs.settings import cache_folder, settings
from spark_jobs.spark.gateway import stop_context
from spark_jobs.spark.jars import conf_folder

_ANSWER_SECONDS, _START_SECONDS = 5.0, 90.0
_SOCKET, _LOCK = "spark.sock", "spark.lock"
_VOLATILE = ("_", "SHLVL", "OLDPWD", "PWD", "TERM", "COLUMNS", "LINES")
"""Variables that differ from command to command in one terminal, and that neither Spark nor Python reads."""
_OF_A_TASK = ("AIRFLOW_CTX_", "_AIRFLOW", "__AIRFLOW")
"""Beginnings of the names by which Airflow describes one task to its process."""


class Request(StrEnum):
    """What a command sends to the keeper, a line each."""

    JOIN = "join"
    LEAVE = "leave"
    STOP = "stop"


class Answer(StrEnum):
    """What the keeper says first."""

    READY = "ready"
    BUSY = "busy"
    OTHER = "other"
    """The JVM was started with other settings, or in another environment."""
    STOPPED = "stopped"
    NONE = "none"
    """Nobody answers."""

    @property
    def sentence(self) -> str:
        """The answer to a request to stop, for people."""
        match self:
            case Answer.STOPPED:
                return "stopped"
            case Answer.BUSY:
                return "a command is using it: stop that one"
            case _:
                return "none is running"


@dataclass(frozen=True)
class Start:
    """What a keeper starts its JVM with.

    Attributes:
        key: a hash of everything that the JVM takes from the command that started it.
        conf: Spark's settings.
        log: the file of the JVM's output.
        idle_minutes: the keeper ends when no command came for so long.
    """

    key: str
    conf: dict[str, str]
    log: str
    idle_minutes: float


def warm_gateway(conf: Mapping[str, str], log: Path) -> JavaGateway | None:
    """The connection to the warm JVM, started if there is none; None where this command must start its own.

    `conf` has all settings of the Spark context. The command leaves the JVM when its Python ends.
    """
    minutes = settings().spark_idle_minutes
    folder = runtime_folder()
    if minutes <= 0 or folder is None:
        return None
    start = Start(_key(conf, log), dict(conf), str(log), minutes)
    for attempt in range(2):
        connection = _connect(folder)
        if connection is not None:
            answer = _ask(connection, {"request": Request.JOIN, "key": start.key})
            if answer.get("answer") == Answer.READY:
                return _joined(connection, answer["port"], answer["secret"])
            connection.close()
            if answer.get("answer") != Answer.OTHER:
                return None
        if attempt == 0 and not _start_keeper(folder, start):
            return None
    return None


def stop_warm_spark() -> Answer:
    """End this user's warm JVM: `STOPPED`, `BUSY` where a command is using it, `NONE` where there is none."""
    folder = runtime_folder()
    connection = None if folder is None else _connect(folder)
    if connection is None:
        return Answer.NONE
    with connection:
        return Answer(_ask(connection, {"request": Request.STOP}).get("answer", Answer.NONE))


def runtime_folder() -> Path | None:
    """The folder of the keeper's socket, closed to other users; None where there is no such folder."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    folder = Path(base) / "rewindow" if base else cache_folder() / "spark"
    try:
        if not base:
            cache_folder().mkdir(mode=0o700, parents=True, exist_ok=True)  # by default, parents are open to others
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    is_private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    # The address of a Unix socket has 107 bytes at most.
    return folder if is_private and len(os.fsencode(folder / _SOCKET)) < 100 else None


def socket_path(folder: Path) -> Path:
    return folder / _SOCKET


def lock_path(folder: Path) -> Path:
    return folder / _LOCK


def is_same_user(connection: socket.socket) -> bool:
    """Whether the process at the other end belongs to this user."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return struct.unpack("3i", credentials)[1] == os.getuid()


def _key(conf: Mapping[str, str], log: Path) -> str:
    """The JVM inherits all of this from the command that starts it, so only a command with the same may join."""
    defaults = {}
    for file in sorted(conf_folder().glob("*")):
        with suppress(OSError, UnicodeDecodeError):
            defaults[file.name] = file.read_text()
    content = {
        "conf": {name: value for name, value in conf.items() if name != "spark.app.name"},
        "environment": {
            name: value
            for name, value in os.environ.items()
            if name not in _VOLATILE and not name.startswith(_OF_A_TASK)
        },
        "folder": str(Path.cwd()),
        "log": str(log),
        "python": [sys.executable, sys.version, pyspark.__version__],
        "defaults": defaults,
    }
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _connect(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(_ANSWER_SECONDS)
    try:
        connection.connect(str(socket_path(folder)))
    except OSError:
        connection.close()
        return None
    if is_same_user(connection):
        return connection
    connection.close()
    return None


def _ask(connection: socket.socket, request: Mapping[str, str]) -> dict[str, str]:
    """The keeper's answer; empty where none came."""
    try:
        connection.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(connection.makefile().readline() or "{}")
    except (OSError, ValueError):
        return {}


def _start_keeper(folder: Path, start: Start) -> bool:
    """Start a keeper, and wait until it listens or has ended."""
    command = [sys.executable, "-P", "-m", "spark_jobs.spark.keeper", str(folder)]
    keeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    assert keeper.stdin is not None
    with suppress(OSError), keeper.stdin as pipe:
        pipe.write(json.dumps(asdict(start)).encode())
    until = time.monotonic() + _START_SECONDS
    while keeper.poll() is None and time.monotonic() < until:
        connection = _connect(folder)
        if connection is not None:
            connection.close()
            return True
        time.sleep(0.02)
    return False


def _joined(connection: socket.socket, port: str, secret: str) -> JavaGateway:
    connection.settimeout(None)
    os.environ |= {"PYSPARK_GATEWAY_PORT": port, "PYSPARK_GATEWAY_SECRET": secret}
    try:
        gateway = launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    atexit.register(_leave, connection)
    return gateway


def _leave(connection: socket.socket) -> None:
    """Stop this command's Spark and say so; a command that dies before has left without a word, and ends the JVM."""
    with connection, suppress(Exception):
        stop_context()
        connection.sendall(json.dumps({"request": Request.LEAVE}).encode() + b"\n")
