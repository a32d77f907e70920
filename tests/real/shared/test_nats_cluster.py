"""Streams on a cluster of real servers: their replicas, and what becomes of a lost one."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from nats.aio.client import Client

from schemas.scheduler.reservations import ReservationReleased
from shared.messaging.bus import Bus
from shared.messaging.routes import event_route
from shared.messaging.stream_declaration import StreamDeclaration
from shared.messaging.stream_names import EVENTS, NAMES, SAMPLES
from shared.messaging.stream_state import StreamReplicas
from shared.postgres.database import Database
from shared.postgres.outbox import stage
from shared.service import Service
from shared.testing import eventually
from tests.support.nats_cluster import NatsCluster, nats_cluster
from tests.support.worlds.gateway import make_released

# nats-py leaves the socket to a server that dies while it logs in to the garbage collector.
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:unclosed <StreamWriter:ResourceWarning"),
]


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[NatsCluster]:
    async with nats_cluster(tmp_path / "cluster") as running:
        yield running


@dataclass
class Listener:
    """Remembers which events it got."""

    heard: list[UUID] = field(default_factory=list)

    async def on_released(self, event: ReservationReleased) -> None:
        self.heard.append(event.reservation_id)


def bus_of(cluster: NatsCluster, name: str, replicas: StreamReplicas | None = None) -> Bus:
    """A service's bus, with the permissions that it has."""
    user = cluster.servers[0].users.path_of(name)
    return Bus(name, cluster.url, str(user), replicas=replicas or StreamReplicas())


async def replicas_of(cluster: NatsCluster, client: Client) -> list[int | None]:
    infos = [await cluster.info(client, name) for name in NAMES]
    return [info.config.num_replicas if info is not None else None for info in infos]


async def test_streams_and_consumers_get_three_replicas(cluster: NatsCluster) -> None:
    bus = bus_of(cluster, "scheduler")
    await bus.open()
    listener = Listener()
    durable = "orchestrator_on_ended"
    route = event_route(listener.on_released, ReservationReleased, durable=durable)
    consumer = Service("orchestrator", bus=bus_of(cluster, "orchestrator"), routes=[route])
    async with cluster.client() as client, consumer.running():
        await StreamDeclaration(bus).declare()

        made = await replicas_of(cluster, client)
        info = await client.jetstream().consumer_info(EVENTS, durable)

        assert made == [3, 3, 3]
        assert info.cluster is not None
        assert len(info.cluster.replicas or []) == 2
    await bus.close()


async def test_setting_is_kept_by_streams_that_exist(
    cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.messaging.stream_declaration.REPLICAS_SECONDS", 0.0)
    one, mixed = StreamReplicas("1", "1"), StreamReplicas(samples="1")
    async with cluster.client() as client:
        for replicas, want in ((one, [1, 1, 1]), (mixed, [1, 1, 3]), (one, [1, 1, 1])):
            bus = bus_of(cluster, "scheduler", replicas)
            await bus.open()

            await StreamDeclaration(bus).declare()

            assert await replicas_of(cluster, client) == want
            await bus.close()


async def test_grown_cluster_gets_replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.messaging.stream_declaration.REPLICAS_SECONDS", 0.2)
    async with nats_cluster(tmp_path / "cluster", count=2) as cluster, cluster.client() as client:
        bus = bus_of(cluster, "scheduler")
        await bus.open()
        declaration = StreamDeclaration(bus)
        await declaration.declare()
        before = await replicas_of(cluster, client)
        watching = asyncio.create_task(declaration.watch())

        await cluster.grow()

        async def has_grown() -> bool:
            return await replicas_of(cluster, client) == [3, 3, 3]

        await eventually(has_grown, what="three replicas")
        watching.cancel()
        await bus.close()

    assert before == [1, 1, 1]


@pytest.mark.parametrize("name", [EVENTS, SAMPLES])
async def test_lost_only_replica_is_filled_again(
    cluster: NatsCluster, postgres_dsn: str, name: str
) -> None:
    """The server comes back without its disk: the stream is there, empty and of the same age."""
    replicas = StreamReplicas("1", "1")
    listener, renewed = Listener(), list[bool]()
    route = event_route(listener.on_released, ReservationReleased, durable="orchestrator_on_ended")

    async def on_new() -> None:
        renewed.append(True)

    database = Database(postgres_dsn, "scheduler", ())
    owner = Service("scheduler", bus=bus_of(cluster, "scheduler", replicas), database=database)
    consumer = Service(
        "orchestrator",
        bus=bus_of(cluster, "orchestrator", replicas),
        routes=[route],
        on_new_stream=on_new,
    )
    before, during = make_released(holder="test"), make_released(holder="test")
    async with cluster.client() as client, owner.running(), consumer.running():
        async with database.transaction() as connection:
            await stage(connection, before)
        await eventually(lambda: before.reservation_id in listener.heard)
        # Both have looked at the stream since; they do every second.
        watches = [service._streams._views for service in (owner, consumer)]  # noqa: SLF001
        await eventually(lambda: all(watch[EVENTS].state.last_seq for watch in watches))
        leader = await cluster.leader_of(client, name)

        await cluster.lose(leader)
        async with database.transaction() as connection:
            await stage(connection, during)
        await leader.start()

        await eventually(
            lambda: during.reservation_id in listener.heard, what="what came meanwhile"
        )
        if name == EVENTS:
            count = listener.heard.count
            await eventually(lambda: count(before.reservation_id) == 2, what="what was lost")
            await eventually(lambda: bool(renewed), what="the news of it")
