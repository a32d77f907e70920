"""A TCP connection that can be held up or cut, as a bad network would do it."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from shared.waiting import cancelled


@dataclass(slots=True)
class Link:
    """Forwards to a server's URL; what is held up arrives later and in order, nothing is lost
    unless it is cut.
    """

    server_url: str
    _open: asyncio.Event = field(default_factory=asyncio.Event)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def start(self) -> str:
        """The URL to connect to instead."""
        self._open.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        parts = urlsplit(self.server_url)
        return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()

    def hold_up(self) -> None:
        self._open.clear()

    def let_through(self) -> None:
        self._open.set()

    def cut(self) -> None:
        """End every connection; new ones are taken."""
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def stop(self) -> None:
        self.let_through()
        if self._server is not None:
            self._server.close()
        self.cut()
        await cancelled(*self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        parts = urlsplit(self.server_url)
        try:
            far_reader, far_writer = await asyncio.open_connection(parts.hostname, parts.port)
        except OSError:
            writer.close()
            return
        pair = {writer, far_writer}
        self._writers |= pair
        for source, target in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._pump(source, target, pair))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
    ) -> None:
        # RuntimeError is what uvloop says of a transport that the other direction has closed.
        with contextlib.suppress(OSError, RuntimeError):
            while data := await source.read(65_536):
                await self._open.wait()
                target.write(data)
                await target.drain()
        for writer in pair:
            writer.transport.abort()
        self._writers -= pair
