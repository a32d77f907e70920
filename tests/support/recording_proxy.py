"""A proxy before an engine that keeps what was asked of it, for counting what really arrived."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from tests.support.http_server import serving


@dataclass(slots=True)
class Exchange:
    """Messages of a chat completion, and the text of its answer once that is over."""

    messages: list[dict[str, Any]]
    answer: list[str] = field(default_factory=list)

    @property
    def prompt(self) -> str:
        return " ".join(message["content"] for message in self.messages)


@asynccontextmanager
async def recording_proxy(engine_url: str) -> AsyncIterator[tuple[str, list[Exchange]]]:
    """Its address, and the exchanges in the order in which their requests arrived."""
    exchanges: list[Exchange] = []
    connector = aiohttp.TCPConnector(limit=0, force_close=True)

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        exchange = None
        if request.path.endswith("/chat/completions"):
            exchange = Exchange(msgspec.json.decode(body)["messages"])
            exchanges.append(exchange)
        async with session.request(
            request.method, f"{engine_url}{request.path_qs}", data=body or None
        ) as answer:
            response = web.StreamResponse(
                status=answer.status, headers={"Content-Type": answer.content_type}
            )
            response.enable_chunked_encoding()
            await response.prepare(request)
            tail = b""
            async for chunk in answer.content.iter_any():
                await response.write(chunk)
                if exchange is not None:
                    *lines, tail = (tail + chunk).split(b"\n")
                    exchange.answer += filter(None, map(_text_of, lines))
            await response.write_eof()
        return response

    app = web.Application(client_max_size=64 * 2**20)
    app.router.add_route("*", "/{path:.*}", handle)
    async with aiohttp.ClientSession(connector=connector) as session, serving(app) as url:
        yield url, exchanges


def _text_of(line: bytes) -> str:
    if not line.startswith(b"data: {"):
        return ""
    choices = msgspec.json.decode(line[6:])["choices"]
    return (choices[0]["delta"].get("content") or "") if choices else ""
