"""Clients that read slowly, not at all, or vanish, on real sockets."""

import asyncio
import json

import aiohttp
import nats
import pytest
from msgspec.structs import replace

from services.gateway import server
from services.gateway.app import create_service
from services.gateway.settings import GatewaySettings
from shared.testing import eventually
from tests.support.worlds.gateway import Owners, make_sample

BULK = "n" * 100_000
OPENING = (
    "Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


async def open_and_read_nothing(port: int, request: str) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(request.encode())
    return writer


async def test_clients_that_do_not_read_are_cut_off_and_cost_nobody_else_anything(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STUCK_SECONDS", 0.2)
    service = create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, port=0))
    owners = Owners(await nats.connect(nats_url))
    async with service.running(), aiohttp.ClientSession() as session:
        port, live = service.http.port, service.live
        url = f"http://127.0.0.1:{port}/ws/metrics?node_id=small"
        async with session.ws_connect(url) as reading:
            requests = (
                f"GET /ws/metrics HTTP/1.1\r\n{OPENING}",
                "GET /sse/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
            )
            stuck = [await open_and_read_nothing(port, each) for each in requests]
            vanishing = [await open_and_read_nothing(port, each) for each in requests]
            await eventually(lambda: len(live.watchers) == 5, what="every watcher")
            for writer in vanishing:
                writer.transport.abort()

            sequence = 0
            seen: list[int] = []

            async def only_one_is_left() -> bool:
                nonlocal sequence
                sequence += 1
                bulky, small = make_sample(sequence, name=BULK), make_sample(sequence)
                await owners.publish(bulky, replace(small, node_id="small"))
                seen.append(json.loads(await reading.receive_str(timeout=30))["sequence"])
                return len(live.watchers) == 1

            await eventually(only_one_is_left, within_seconds=60, what="the others' end")

        for writer in stuck:
            writer.close()
    await owners.client.close()

    assert seen == list(range(1, sequence + 1))
