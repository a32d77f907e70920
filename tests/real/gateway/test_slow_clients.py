"""Clients that read slowly, not at all, or vanish, on real sockets."""

import asyncio
import json
from contextlib import suppress

import aiohttp
import nats
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from services.gateway.app import create_service
from services.gateway.http import server
from services.gateway.settings import GatewaySettings
from shared.testing import eventually
from shared.waiting import within
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


async def test_clients_that_do_not_read_are_disconnected(
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


async def test_clients_that_vanish_are_no_failures_of_ours(
    nats_url: str, postgres_dsn: str
) -> None:
    service = create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, port=0))
    owners = Owners(await nats.connect(nats_url))
    with capture_logs() as entries:
        async with service.running():
            port, live = service.http.port, service.live
            request = f"GET /ws/metrics HTTP/1.1\r\n{OPENING}"
            clients = [await open_and_read_nothing(port, request) for _ in range(40)]
            await eventually(lambda: len(live.watchers) == 40, what="every watcher")
            for sequence, client in enumerate(clients, 1):
                await owners.publish(make_sample(sequence, name=BULK))
                client.transport.abort()
            await eventually(lambda: not live.watchers, within_seconds=60, what="their end")
    await owners.client.close()

    assert [entry for entry in entries if entry["event"] == "websocket_failed"] == []


async def test_unfinished_requests_are_disconnected(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STUCK_SECONDS", 0.5)
    service = create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, port=0))
    async with service.running(), aiohttp.ClientSession() as session:
        port = service.http.port
        url = f"http://127.0.0.1:{port}"

        async def until_cut_off(said: bytes, again: bytes = b"") -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            heard = b""
            try:
                writer.write(said)
                while True:
                    with suppress(TimeoutError):
                        async with within(0.05):
                            if not (some := await reader.read(1024)):
                                return heard
                            heard += some
                    writer.write(again)
            except ConnectionError:
                return heard
            finally:
                writer.close()

        head = b"POST /api/v1/estimate HTTP/1.1\r\nHost: localhost\r\n"
        async with (
            within(60),
            session.ws_connect(f"{url}/ws/events") as following,
            session.get(f"{url}/sse/events") as streaming,
        ):
            cut = await asyncio.gather(
                until_cut_off(b""),
                until_cut_off(head),
                until_cut_off(head, again=b"x"),
                until_cut_off(head + b"Content-Length: 9\r\n\r\n{"),
            )
            still = (following.closed, streaming.connection is None)

    assert list(cut) == [b""] * 4
    assert still == (False, False)


async def test_socket_without_pong_is_closed(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "WEBSOCKET_PING_SECONDS", 0.2)
    service = create_service(GatewaySettings(nats_url=nats_url, postgres_dsn=postgres_dsn, port=0))
    async with service.running(), within(60):
        reader, writer = await asyncio.open_connection("127.0.0.1", service.http.port)
        writer.write(f"GET /ws/metrics HTTP/1.1\r\n{OPENING}".encode())
        said = await reader.read()
        await eventually(lambda: not service.live.watchers, what="the end of its watcher")
        writer.close()

    assert said.startswith(b"HTTP/1.1 101 ")
    assert said.endswith(b"keepalive ping timeout")
