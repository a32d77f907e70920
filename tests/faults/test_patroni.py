"""Patroni promotes the standby under 200 clients, again and again: nothing that was told is lost.

`PATRONI_KILLS` is how many primaries are killed: 50 take seven minutes.
"""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from shared.messaging.bus import Bus
from shared.testing import eventually, short_directory
from tests.support.bus import connected_bus
from tests.support.history.holders import Holders, audit, find_repeated_epochs
from tests.support.patroni.cluster import PatroniCluster, missing, patroni_cluster
from tests.support.processes.scheduler import scheduler_process
from tests.support.worlds.scheduler import FakeGpu, FakeNode

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(missing() is not None, reason=missing() or ""),
]

KILLS = int(os.environ.get("PATRONI_KILLS", "6"))
HOST_KILL_EVERY = 10  # Patroni with its Postgres; its lead runs out after 20 s
CLIENTS = 200
NODES, GPUS = 16, 8
FIRST_GRANT_SECONDS = 10.0
PROMOTION_SECONDS = 60.0


@pytest.fixture
def directory() -> Iterator[Path]:
    with short_directory() as path:
        yield path


@asynccontextmanager
async def clients_at_work(
    nats_url: str, cluster: PatroniCluster, directory: Path
) -> AsyncIterator[Holders]:
    """Two schedulers and all clients; at the end each client has given back what it holds."""
    async with AsyncExitStack() as stack:
        for _ in range(2):
            await stack.enter_async_context(scheduler_process(nats_url, cluster.dsn, directory))
        bus = await stack.enter_async_context(connected_bus(nats_url, "test"))
        sampling = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [sampling.create_task(add_node(bus, f"node-{n}")) for n in range(NODES)]
        holders, is_over = Holders(bus, random.Random(1)), asyncio.Event()
        await holders.listen()
        async with asyncio.TaskGroup() as clients:
            for _ in range(CLIENTS):
                clients.create_task(holders.run(is_over))
            await eventually(lambda: holders.lives > CLIENTS, within_seconds=60, what="work")
            try:
                yield holders
            finally:
                is_over.set()
        for task in tasks:
            task.cancel()


async def add_node(bus: Bus, node_id: str) -> None:
    gpus = [FakeGpu(uuid=f"GPU-{node_id}-{index}", index=index) for index in range(GPUS)]
    node = FakeNode(bus=bus, node_id=node_id, gpus=gpus)
    await node.answer_snapshots()
    await node.answer_fences()
    await node.report_inventory()
    await node.keep_sampling()


async def kill_primaries(cluster: PatroniCluster, holders: Holders, *, synchronous: bool) -> None:
    """Kill the primary again and again; print how long each promotion and first grant took."""
    for number in range(1, KILLS + 1):
        leader = await cluster.await_whole(is_synchronous=synchronous)
        lives = holders.lives
        await eventually(
            lambda before=lives: holders.lives > before + CLIENTS / 4,  # type: ignore[misc]
            within_seconds=60,
            what="clients to go on",
        )
        killed_at = time.monotonic()
        is_host = number % HOST_KILL_EVERY == 0
        if is_host:
            await leader.kill_host()
        else:
            leader.kill_postgres()
        await cluster.await_other_leader(leader, within_seconds=PROMOTION_SECONDS)
        promoted_at = time.monotonic()
        if is_host:
            leader.start()
        await eventually(
            lambda at=promoted_at: holders.first_grant_after(at) is not None,  # type: ignore[misc]
            within_seconds=FIRST_GRANT_SECONDS,
            what=f"a grant within {FIRST_GRANT_SECONDS} s of promotion {number}",
        )
        print(  # noqa: T201  # the figures are what a run is kept for
            f"kill {number} of {'a host' if is_host else 'Postgres'}:"
            f" promoted {promoted_at - killed_at:.1f} s later,"
            f" first grant {holders.first_grant_after(promoted_at) or 0:.2f} s after that"
        )
    await cluster.await_whole(is_synchronous=synchronous)


async def test_kills_lose_nothing_behind_a_synchronous_standby(
    nats_url: str, directory: Path
) -> None:
    async with patroni_cluster(directory) as cluster:
        async with clients_at_work(nats_url, cluster, directory) as holders:
            await kill_primaries(cluster, holders, synchronous=True)
        leader = await cluster.await_whole(is_synchronous=True)
        await audit(f"postgresql://postgres@{leader.address}/gpusteward", holders)

    print(  # noqa: T201  # the figures are what a run is kept for
        f"{KILLS} kills, {CLIENTS} clients: {len(holders.grants)} grants told,"
        f" {len(holders.lost)} lost, {len(holders.doubles)} double,"
        f" worst gap {holders.worst_gap_seconds():.1f} s"
    )
    assert holders.lost == set()
    assert holders.doubles == []
    assert find_repeated_epochs(holders) == []


async def test_no_epoch_is_given_twice_behind_an_asynchronous_standby(
    nats_url: str, directory: Path
) -> None:
    async with patroni_cluster(directory, is_synchronous=False) as cluster:
        async with clients_at_work(nats_url, cluster, directory) as holders:
            await kill_primaries(cluster, holders, synchronous=False)
        leader = await cluster.await_whole(is_synchronous=False)
        await audit(f"postgresql://postgres@{leader.address}/gpusteward", holders)

    print(  # noqa: T201  # the figures are what a run is kept for
        f"{KILLS} kills, {CLIENTS} clients: {len(holders.grants)} grants told,"
        f" {len(holders.lost)} lost, worst gap {holders.worst_gap_seconds():.1f} s"
    )
    assert find_repeated_epochs(holders) == []
    assert len(holders.lost) < KILLS * CLIENTS  # of each kill the last moments
