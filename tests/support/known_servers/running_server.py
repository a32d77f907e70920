"""A server of somebody else's, which runs already: what tasks with an endpoint measure."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from shared.engines.simulated.server import Behaviour, SimulatedEngine
from tests.support.http_server import serving

SERVED_MODEL: Final = "served-model"


@asynccontextmanager
async def running_server(key: str = "", **behaviour: Any) -> AsyncIterator[tuple[str, list[int]]]:
    """The address of a simulated engine, and how many requests it had at once, each time one came.

    With a `key` it refuses requests without it.
    """
    at_once: list[int] = [0]
    busy = 0

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        nonlocal busy
        if key and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": {"message": "wrong key"}}, status=401)
        busy += 1
        at_once.append(busy)
        try:
            response: web.StreamResponse = await handler(request)
            return response
        finally:
            busy -= 1

    options = {"model": SERVED_MODEL, "ttft_seconds": 0.005, "tpot_seconds": 0.001, **behaviour}
    app = SimulatedEngine(Behaviour(**options)).app()
    app.middlewares.append(guard)
    async with serving(app) as address:
        yield address, at_once
