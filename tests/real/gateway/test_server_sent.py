"""Server-Sent Events over a real nats-server and Postgres."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from schemas.base import subject_for
from services.gateway.ledger import tokens as token_store
from services.gateway.streams import server_sent
from shared.local_platform.tokens import digest_of
from shared.messaging.codec import encode
from tests.support.worlds.gateway import NODE, Api, gateway, make_sample, make_task_started

Frame = tuple[int | None, dict[str, Any]]


@pytest.fixture
async def api(nats_url: str, postgres_dsn: str) -> AsyncIterator[Api]:
    async with gateway(nats_url, postgres_dsn) as running:
        yield running


async def frames(response: aiohttp.ClientResponse, count: int) -> list[Frame]:
    """The ids and data of the next frames; comments are skipped."""
    found: list[Frame] = []
    cursor = None
    async with asyncio.timeout(30):
        while len(found) < count:
            name, _, value = (await response.content.readline()).decode().strip().partition(": ")
            if name == "id":
                cursor = int(value)
            elif name == "data":
                found.append((cursor, json.loads(value)))
                cursor = None
    return found


async def test_reconnecting_browser_misses_no_event(api: Api) -> None:
    events = [make_task_started() for _ in range(12)]
    stream = api.owners.client.jetstream()
    path = f"{api.url}/sse/events?after=0"

    async with api.session.get(path) as response:
        kind = response.headers["Content-Type"]
        for event in events[:6]:
            await stream.publish(subject_for(event), encode(event))
        seen = await frames(response, 4)
    for event in events[6:]:
        await stream.publish(subject_for(event), encode(event))
    async with api.session.get(path, headers={"Last-Event-ID": str(seen[-1][0])}) as response:
        seen += await frames(response, 8)

    assert kind.startswith("text/event-stream")
    assert [data["message_id"] for _, data in seen] == [str(each.message_id) for each in events]
    assert [cursor for cursor, _ in seen] == [data["cursor"] for _, data in seen]


async def test_keepalives_come_between_readings(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_sent, "SILENT_SECONDS", 0.05)
    await api.owners.publish(make_sample(1))

    async with api.session.get(f"{api.url}/sse/metrics?node_id={NODE}") as response:
        first = await frames(response, 1)
        async with asyncio.timeout(30):
            while await response.content.readline() != b":\n":
                pass
        await api.owners.publish(make_sample(2))
        second = await frames(response, 1)

    assert [data["sequence"] for _, data in (*first, *second)] == [1, 2]


async def test_a_wrong_filter_is_refused(api: Api) -> None:
    wrong = ("events?after=x", "events?tasks=1", "metrics?node=a", "metrics?rate=1000")

    found = [(await api.get(f"/sse/{path}"))[0] for path in wrong]

    assert found == [400] * len(wrong)


async def test_a_stream_needs_a_token_and_ends_with_it(
    nats_url: str, postgres_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_store, "POLL_SECONDS", 0.05)
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps([{"token_sha256": digest_of("sse-admin"), "role": "admin"}]))
    async with gateway(nats_url, postgres_dsn, tokens_file=str(path)) as api:
        headers = {"Authorization": "Bearer sse-admin"}
        _, made = await api.post(
            "/api/v1/tokens", {"name": "page", "role": "viewer"}, headers=headers
        )
        token_id = made["token"]["token_id"]
        refused, _ = await api.get("/sse/events")
        async with api.session.get(
            f"{api.url}/sse/events?access_token={made['secret']}"
        ) as response:
            assert response.status == 200
            await api.call("DELETE", f"/api/v1/tokens/{token_id}", headers=headers)
            async with asyncio.timeout(30):
                rest = await response.content.read()

    assert refused == 401
    assert set(rest.split()) <= {b":"}
