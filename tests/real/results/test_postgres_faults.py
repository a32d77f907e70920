"""Postgres away, killed, stopped dead: what the bus holds is stored once it is back."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

import nats
import psutil
import pytest
from msgspec.structs import replace

from schemas.errors import ErrorCode, Refused
from schemas.results.measurements import GetReport, ReportView
from shared.clock import utcnow
from shared.testing import PostgresServer, eventually
from tests.support.worlds.results import World, make_sample

NODES: Final = 20
GPUS: Final = 2
TICK_SECONDS: Final = 0.5
AWAY_SECONDS: Final = 60.0
STOPPED_SECONDS: Final = 15.0  # longer than any statement may take
MAX_GROWTH_BYTES: Final = 64 << 20


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_samples_wait_while_postgres_is_away(
    nats_url: str, postgres_server_factory: Callable[[], Awaitable[PostgresServer]]
) -> None:
    postgres = await postgres_server_factory()
    world = World(nats_url, postgres.dsn, await nats.connect(nats_url))
    ticks, enough = 0, asyncio.Event()

    async def sample() -> None:
        nonlocal ticks
        while not enough.is_set():
            tick = make_sample(utcnow(), ticks, gpus=GPUS)
            await world.publish(*(replace(tick, node_id=f"node-{n}") for n in range(NODES)))
            ticks += 1
            await asyncio.sleep(TICK_SECONDS)

    async def holds_everything() -> bool:
        expected = ticks * NODES * GPUS
        return await world.count("stored_sample") >= expected

    async with world.results():
        publisher = asyncio.create_task(sample())
        await eventually(lambda: ticks > 2, within_seconds=30, what="some ticks")
        before = psutil.Process().memory_info().rss

        postgres.kill()
        await postgres.wait()
        refused = await world.ask(a_report(), Refused)
        await asyncio.sleep(AWAY_SECONDS)
        grown = psutil.Process().memory_info().rss - before
        await postgres.start()

        assert refused.code is ErrorCode.UNAVAILABLE  # what /readyz asks
        assert grown < MAX_GROWTH_BYTES
        await eventually(holds_everything, within_seconds=60, what="what came meanwhile")
        with hanging(postgres):
            await asyncio.sleep(STOPPED_SECONDS)
        enough.set()
        await publisher
        await eventually(holds_everything, within_seconds=60, what="every sample")
        assert await world.ask(a_report(), ReportView) == ReportView(rows=())
        assert await world.count("stored_sample") == ticks * NODES * GPUS
    await world.client.close()


def a_report() -> GetReport:
    now = utcnow()
    return GetReport(start_at=now - timedelta(seconds=1), end_at=now)


@contextmanager
def hanging(postgres: PostgresServer) -> Iterator[None]:
    """Its processes neither work nor end."""
    server = psutil.Process(postgres.pid)
    stopped = [server, *server.children(recursive=True)]
    for process in stopped:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in stopped:
            process.send_signal(signal.SIGCONT)
