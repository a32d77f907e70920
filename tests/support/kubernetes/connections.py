"""Connections to a control plane, and from it to webhooks, that a test ends with."""

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any


async def cut_left_connections() -> None:
    """Cut what TLS has left open in this event loop.

    A handshake that is under way when its client is cancelled, or its server closed, is known to
    neither of them: asyncio leaves its socket to the collector, which finds it in another test.
    """
    loop: Any = asyncio.get_running_loop()
    for transport in list(loop._transports.values()):  # noqa: SLF001  # shown nowhere else
        if isinstance(transport.get_protocol(), SSLProtocol):
            transport.abort()
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # in which they are closed
