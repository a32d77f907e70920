"""An HTTP application on a free loopback port of this process, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ssl import SSLContext

from aiohttp import web


@asynccontextmanager
async def serving(
    app: web.Application, host: str = "127.0.0.1", port: int = 0, tls: SSLContext | None = None
) -> AsyncIterator[str]:
    """The address of `app` while it is served; clients that leave cancel their handlers."""
    runner = web.AppRunner(app, handler_cancellation=True, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        scheme = "https" if tls is not None else "http"
        yield "{}://{}:{}".format(scheme, *runner.addresses[0][:2])
    finally:
        for site in runner.sites.copy():
            await site.stop()
        await last_connections_made()
        await runner.cleanup()


async def last_connections_made() -> None:
    """Wait for those that were accepted before a server was closed.

    asyncio makes their transports in tasks of their own, some turns later; what closes only those
    that it knows before leaves one open.
    """
    for _ in range(5):
        await asyncio.sleep(0)
