"""The process that keeps a warm JVM: `python -m spark_jobs.spark.keeper FOLDER`, started by `spark_jobs.spark.warm`.

It reads its `Start` from standard input, starts the JVM, and serves one command after another over a Unix socket in
FOLDER.
"""

from __future__ import annotations

import fcntl
import json
import select
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from spark_jobs.spark.gateway import JavaObject
from spark_jobs.spark.launch import launch_jvm
from spark_jobs.spark.warm import Answer, Request, Start, is_same_user, lock_path, socket_path

_TICK_SECONDS, _REQUEST_SECONDS, _LOCK_SECONDS, _END_SECONDS = 1.0, 2.0, 20.0, 10.0
_HEAP_SHARE = 0.25
"""A JVM that still uses so much of its heap after a collection is ended: something of a command has stayed in it."""
_MOST_COMMANDS = 50
"""Then the JVM is ended too: catalogs leave connections open, and so a bounded number of them."""


class Keeper:
    """One warm JVM, and the socket over which one command at a time joins it."""

    def __init__(self, start: Start, address: Path) -> None:
        self._start = start
        self._address = address
        self._gateway: JavaObject = launch_jvm(start.conf, Path(start.log))
        self._jvm: subprocess.Popen[bytes] = self._gateway.proc
        address.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(address))
        self._listener.listen()
        self._command: socket.socket | None = None
        self._commands = 0
        self._idle_since = time.monotonic()
        self._must_end = False

    def serve(self) -> None:
        """Serve commands until the JVM must end, and end it."""
        try:
            while not self._must_end and self._jvm.poll() is None:
                waiting = [self._listener] if self._command is None else [self._listener, self._command]
                readable, _, _ = select.select(waiting, [], [], _TICK_SECONDS)
                if self._command in readable:
                    self._part()
                elif self._listener in readable:
                    self._receive(self._listener.accept()[0])
                elif self._command is None:
                    self._must_end = time.monotonic() - self._idle_since > 60 * self._start.idle_minutes
        finally:
            self._end()

    def _receive(self, connection: socket.socket) -> None:
        """Answer a process that has connected."""
        connection.settimeout(_REQUEST_SECONDS)
        try:
            request = json.loads(connection.makefile().readline()) if is_same_user(connection) else {}
            answer = self._answer(request)
            connection.sendall(json.dumps(answer).encode() + b"\n")
        except (OSError, ValueError):  # it has gone, or only looked whether somebody listens
            connection.close()
            return
        if answer["answer"] == Answer.READY:
            connection.settimeout(None)
            self._command = connection
        else:
            connection.close()

    def _answer(self, request: dict[str, str]) -> dict[str, str]:
        if self._command is not None:
            return {"answer": Answer.BUSY}
        if request["request"] == Request.JOIN and request["key"] == self._start.key:
            parameters = self._gateway.java_parameters
            return {"answer": Answer.READY, "port": str(parameters.port), "secret": parameters.auth_token}
        self._must_end = True
        self._address.unlink(missing_ok=True)  # whoever needs another JVM starts its keeper now
        return {"answer": Answer.STOPPED if request["request"] == Request.STOP else Answer.OTHER}

    def _part(self) -> None:
        """The command has left, or it has died: then nobody knows what the JVM is still working on."""
        assert self._command is not None
        with self._command as command:
            try:
                has_left = json.loads(command.recv(1000) or "{}").get("request") == Request.LEAVE
            except (OSError, ValueError):
                has_left = False
        self._command = None
        self._commands += 1
        self._idle_since = time.monotonic()
        self._must_end = not has_left or self._commands >= _MOST_COMMANDS or self._is_full()

    def _is_full(self) -> bool:
        java = self._gateway.jvm.java.lang
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        return runtime.totalMemory() - runtime.freeMemory() > _HEAP_SHARE * runtime.maxMemory()

    def _end(self) -> None:
        self._address.unlink(missing_ok=True)
        self._listener.close()
        assert self._jvm.stdin is not None
        with suppress(OSError):
            self._jvm.stdin.close()  # the JVM's lifeline
        try:
            self._jvm.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._jvm.kill()
            self._jvm.wait()


def main() -> None:
    """Become the user's keeper, unless there is one."""
    folder = Path(sys.argv[1])
    start = Start(**json.load(sys.stdin))
    with lock_path(folder).open("w") as lock:
        if _is_first(lock.fileno()):
            Keeper(start, socket_path(folder)).serve()


def _is_first(lock: int) -> bool:
    """Whether no other keeper lives; one that is about to end is waited for."""
    until = time.monotonic() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)


if __name__ == "__main__":
    main()
