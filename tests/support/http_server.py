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
        # A connection that was accepted last is known to the server some turns later, and would
        # stay open: asyncio makes its transport in a task of its own.
        for _ in range(5):
            await asyncio.sleep(0)
        await runner.cleanup()
