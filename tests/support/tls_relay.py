"""A relay between two processes that tells whether every byte that passes is TLS."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

RECORD_TYPES: Final = frozenset({20, 21, 22, 23})
HEADER_BYTES: Final = 5
MAX_RECORD_BYTES: Final = (1 << 14) + 256
# What a Postgres client asks before TLS, and the one byte of the answer.
SSL_REQUEST: Final = bytes((0, 0, 0, 8, 4, 210, 22, 47))


@dataclass(slots=True)
class Relay:
    """`plain` are the first bytes of each direction in which something was no record of TLS."""

    port: int = 0
    connections: int = 0
    passed_bytes: int = 0
    plain: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class _Records:
    """Follows the records of one direction, after a preamble that is allowed."""

    relay: Relay
    preamble: bytes
    is_plain: bool = False
    _rest: bytes = b""

    def see(self, data: bytes) -> None:
        self.relay.passed_bytes += len(data)
        if self.is_plain:
            return
        self._rest += data
        if self.preamble and self._rest.startswith(self.preamble):
            self._rest, self.preamble = self._rest[len(self.preamble) :], b""
        while len(self._rest) >= HEADER_BYTES:
            kind, major, length = self._rest[0], self._rest[1], int.from_bytes(self._rest[3:5])
            if kind not in RECORD_TYPES or major != 3 or length > MAX_RECORD_BYTES:
                self.is_plain = True
                self.relay.plain.append(self._rest[:80])
                return
            if len(self._rest) < HEADER_BYTES + length:
                return
            self._rest = self._rest[HEADER_BYTES + length :]


@asynccontextmanager
async def tls_relay(
    port: int, *, host: str = "127.0.0.1", is_postgres: bool = False
) -> AsyncIterator[Relay]:
    """Relay to `port`; at the end of the block nothing but TLS may have passed, and something has.

    Postgres' clients ask for TLS in 8 bytes, and are answered in one.
    """
    relay = Relay()
    copies: set[asyncio.Task[None]] = set()

    async def copy(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, preamble: bytes
    ) -> None:
        records = _Records(relay, preamble)
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(1 << 16):
                    records.see(data)
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        relay.connections += 1
        try:
            there, to_there = await asyncio.open_connection(host, port)
        except OSError:
            writer.transport.abort()
            return
        asked, answered = (SSL_REQUEST, b"S") if is_postgres else (b"", b"")
        for pair in ((reader, to_there, asked), (there, writer, answered)):
            task = asyncio.create_task(copy(*pair))
            copies.add(task)
            task.add_done_callback(copies.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    relay.port = server.sockets[0].getsockname()[1]
    try:
        yield relay
    finally:
        server.close()
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)
    assert relay.plain == []
    assert relay.passed_bytes > 0
