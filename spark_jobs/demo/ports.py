"""Ports that are free on the loopback interface."""

from __future__ import annotations

import random
import socket
from contextlib import suppress
from pathlib import Path

_LISTENING = range(15_000, 32_000)
"""Below the ports that systems give to clients: of those, another process may take one before it is listened on."""
_ATTEMPTS = 100


def free_port() -> int:
    """A port of 127.0.0.1 that is free now."""
    for port in random.sample(_LISTENING, _ATTEMPTS):
        if _is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def kept_port(file: Path, wanted: int = 0) -> int:
    """The port `wanted`; 0: the one that `file` keeps from an earlier start, if it is free, else a free one.

    The file keeps the result.
    """
    port = wanted
    if not port:
        with suppress(OSError, ValueError):
            port = int(file.read_text())
        if not port or not _is_free(port):
            port = free_port()
    file.write_text(f"{port}\n")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
