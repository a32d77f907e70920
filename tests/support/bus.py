"""A bus for tests and benchmarks: without routes, on declared streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shared.messaging.bus import Bus
from shared.messaging.stream_declaration import StreamDeclaration


@asynccontextmanager
async def connected_bus(url: str, name: str, credentials: str | None = None) -> AsyncIterator[Bus]:
    """Closed at the end."""
    bus = Bus(name, url, credentials)
    await bus.open()
    try:
        await StreamDeclaration(bus).declare()
        yield bus
    finally:
        await bus.close()
