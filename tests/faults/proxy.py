"""A proxy between a run and a service around it, which can be slow, full of holes, silent or lie."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")

_SLOW_SECONDS = 0.03
_RESTART_SECONDS = 1.0


class Fault(StrEnum):
    """What happens to the bytes between a client and a service."""

    NONE = "none"
    SLOW = "slow"
    """Each piece waits before it goes on."""
    CUT = "cut"
    """Half of an answer arrives, then the connection is gone."""
    CLOSED = "closed"
    """Connections are refused, as by a service that is down."""
    RESTART = "restart"
    """Connections are refused for a second, as by a service that starts anew."""
    SILENT = "silent"
    """Connections are taken, and nothing ever answers."""
    TWICE = "twice"
    """Each piece of an answer arrives twice."""
    FOREIGN = "foreign"
    """Another program answers, whatever is asked."""


_FOREIGN = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbusy"


class Proxy:
    """Listens on a free port of the loopback interface and passes on what comes, with the fault that is set."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = host, port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._open: set[asyncio.StreamWriter] = set()
        self._fault = Fault.NONE
        self.port = 0

    def set(self, fault: Fault) -> None:
        """From now on this happens, also to open connections."""
        self._fault = Fault.CLOSED if fault is Fault.RESTART else fault
        if fault in (Fault.CLOSED, Fault.RESTART, Fault.NONE):
            self._call(self._drop_all())
        if fault is Fault.RESTART:
            self._loop.call_soon_threadsafe(self._loop.call_later, _RESTART_SECONDS, self._heal)

    def _heal(self) -> None:
        self._fault = Fault.NONE

    def __enter__(self) -> Self:
        self._thread.start()
        server = self._call(asyncio.start_server(self._serve, "127.0.0.1", self.port or None))
        self.port = server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _call(self, action):
        return asyncio.run_coroutine_threadsafe(action, self._loop).result(10)

    async def _end(self) -> None:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def _drop_all(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._fault is Fault.CLOSED:
            writer.transport.abort()
            return
        try:
            above_reader, above_writer = await asyncio.open_connection(*self._upstream)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, above_writer}
        try:
            await asyncio.gather(
                self._pass_on(reader, above_writer, is_answer=False),
                self._pass_on(above_reader, writer, is_answer=True),
            )
        finally:
            for one in (writer, above_writer):
                self._open.discard(one)
                one.transport.abort()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            while piece := await reader.read(65536):
                match self._fault, is_answer:
                    case Fault.SILENT, _:
                        continue
                    case Fault.SLOW, _:
                        await asyncio.sleep(_SLOW_SECONDS)
                    case Fault.CUT, True:
                        writer.write(piece[: len(piece) // 2])
                        await writer.drain()
                        break
                    case Fault.TWICE, True:
                        writer.write(piece)
                    case Fault.FOREIGN, True:
                        piece = _FOREIGN
                    case _:
                        pass
                writer.write(piece)
                await writer.drain()
        with suppress(OSError):
            if self._fault is Fault.CUT and is_answer:
                writer.transport.abort()
            else:
                writer.close()
