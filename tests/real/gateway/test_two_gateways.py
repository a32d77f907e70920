"""Two gateways side by side, as behind a load balancer, and one that is killed."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from schemas.base import subject_for
from schemas.orchestrator.experiments import TaskStarted
from shared.messaging import routes
from shared.messaging.codec import encode
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.real.gateway.test_process import start
from tests.support.ports import free_port
from tests.support.worlds.gateway import Api, gateway, make_task_started

EVENTS = 30
ACK_WAIT_SECONDS = 3.0  # after which the bus gives again what the killed gateway had received


class Follower:
    """Follows events at one gateway, after what it has at the other whenever that ends."""

    def __init__(self, session: aiohttp.ClientSession, gateways: list[str], path: str) -> None:
        self.session, self.gateways, self.path = session, gateways, path
        self.cursors: list[int] = []
        self.message_ids: list[str] = []

    async def run(self) -> None:
        while True:
            for url in self.gateways:
                after = self.cursors[-1] if self.cursors else 0
                with suppress(aiohttp.ClientError):
                    async for event in self._events(f"{url}{self.path}?after={after}"):
                        self.cursors.append(event["cursor"])
                        self.message_ids.append(event["message_id"])
                await asyncio.sleep(0.05)

    async def _events(self, url: str) -> AsyncIterator[dict[str, Any]]:
        if self.path.startswith("/ws"):
            async with self.session.ws_connect(url) as socket:
                async for message in socket:
                    yield json.loads(message.data)
        else:
            async with self.session.get(url) as response:
                async for line in response.content:
                    if line.startswith(b"data: "):
                        yield json.loads(line[6:])


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("followers", [50, 500])
async def test_followers_continue_at_another_gateway(
    nats_url: str,
    postgres_dsn: str,
    tmp_path: Path,
    followers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(routes, "ACK_WAIT_SECONDS", ACK_WAIT_SECONDS)
    port = free_port()
    killed = await start(nats_url, postgres_dsn, tmp_path, port)
    events = [make_task_started() for _ in range(EVENTS)]
    try:
        await eventually((tmp_path / "ready").exists, within_seconds=60, what="readiness")
        # The second to start: the time of their consumer that holds is what it declares.
        async with gateway(nats_url, postgres_dsn) as other, unlimited_session() as session:
            urls = [f"http://127.0.0.1:{port}", other.url]
            all_ = [
                Follower(session, urls, "/ws/events" if number % 2 else "/sse/events")
                for number in range(followers)
            ]
            following = [asyncio.create_task(each.run()) for each in all_]

            await publish(other, events[:10])
            await eventually(
                lambda: all(each.cursors for each in all_), within_seconds=60, what="first events"
            )
            publishing = asyncio.create_task(publish(other, events[10:]))
            killed.send_signal(signal.SIGKILL)
            await publishing
            await eventually(
                lambda: all(len(each.cursors) >= EVENTS for each in all_),
                within_seconds=60,
                what="every event at every follower",
            )
            await cancel_and_wait(*following)
            _, log = await other.get(f"/api/v1/events?limit={EVENTS}")
    finally:
        if killed.returncode is None:
            killed.kill()
        await killed.wait()

    in_order = [(event["cursor"], event["message_id"]) for event in log["events"]]
    assert {message_id for _, message_id in in_order} == {str(each.message_id) for each in events}
    for each in all_:
        assert list(zip(each.cursors, each.message_ids, strict=True)) == in_order


def unlimited_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def publish(api: Api, events: list[TaskStarted]) -> None:
    stream = api.owners.client.jetstream()
    for event in events:
        await stream.publish(subject_for(event), encode(event))
