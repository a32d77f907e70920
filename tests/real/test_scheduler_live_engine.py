"""An engine that is told what changes knows what one knows that is built from the ledger."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from schemas.gpu_request import GpuRequest
from schemas.scheduler import Cordon, DeviceFreed, Uncordon
from services.scheduler.domain.policy import Policy
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.live_engine import LiveEngine
from services.scheduler.migrations import MIGRATIONS
from services.scheduler.readings import Readings
from services.scheduler.snapshots import Snapshots
from shared.database import Database
from shared.ids import new_id
from shared.testing import eventually
from tests.scheduler_world import World, accepted, scheduler, world


@asynccontextmanager
async def opened(postgres_dsn: str) -> AsyncIterator[Database]:
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    try:
        yield database
    finally:
        await database.close()


async def much_happens(around: World) -> None:
    """Grants, a gang, hosts, releases, cancels in every state, a fence, cordons, a new device."""
    node = await around.add_node("beta", 2, cpu_count=8)
    await around.known("beta", 2)
    gang = await around.granted(await around.request(GpuRequest(nodes=2)))
    kept = await around.granted(await around.request(GpuRequest(cpu_count=2, node_ids=("beta",))))
    accepted(await around.renew(kept, activate=True))
    waiting = await around.request(GpuRequest(gpus=2))
    gone = await around.request(GpuRequest(gpus=2))
    for reservation_id in (gone, gang.reservation_id):
        accepted(await around.cancel(reservation_id))
    await eventually(lambda: len(around.seen(DeviceFreed)) == 2)
    accepted(await around.release(await around.granted(waiting)))
    uuid = node.gpus[0].uuid
    for command_type in (Cordon, Uncordon, Cordon):
        command = command_type(command_id=new_id(), node_id="beta", device_uuid=uuid)
        accepted(await around.bus.request(command))
    await around.request(GpuRequest(gpus=2, node_ids=("beta",)))
    node.gpus[1].name = "another"
    await node.report_inventory()
    await around.add_node("gamma", 1)
    await around.known("gamma", 1)


async def test_whatever_happens_in_the_ledger(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn),
        world(nats_url) as around,
        opened(postgres_dsn) as database,
    ):
        reader = FleetReader(
            readings := Readings(), Snapshots(around.bus, readings, 1.0, lambda _: None), 0.0
        )
        await around.add_node("alpha", 2)
        await around.known("alpha", 2)
        told = await LiveEngine.load(database, reader, Policy())

        await much_happens(around)
        await told.catch_up()
        told.refresh(())
        built = await LiveEngine.load(database, reader, Policy())
        built.refresh(())

        assert told.engine.state() == built.engine.state()
        assert len(told.engine.state()) > 10
