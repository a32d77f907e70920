"""An engine that follows the ledger's changes is the same as one that is loaded from it."""

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import Cordon, DeviceFreed, Uncordon
from schemas.scheduler.nodes import RemoveNode
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.leader.live_engine import LiveEngine
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.observations.latest_readings import LatestReadings
from services.scheduler.observations.release_snapshots import ReleaseSnapshots
from shared.ids import new_id
from shared.postgres.database import Database
from shared.testing import eventually
from tests.support.kept_schema import opened
from tests.support.worlds.scheduler import World, accepted, scheduler, world


async def much_happens(around: World) -> None:
    """Grants, a gang, hosts, releases, cancels in every state, a fence, cordons, a new device.

    The node `left` is removed.
    """
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
    await around.request(GpuRequest(gpus=2, node_ids=("beta",), mixed_models=True))
    left = RemoveNode(command_id=new_id(), node_id="left")
    accepted(await around.bus.request(left))
    node.gpus[1].name = "another"
    await node.report_inventory()
    await around.add_node("gamma", 1)
    await around.known("gamma", 1)


async def test_followed_engine_equals_a_loaded_one(nats_url: str, postgres_dsn: str) -> None:
    async with (
        scheduler(nats_url, postgres_dsn, stale_agent_seconds=0.1),
        world(nats_url) as around,
        opened(Database(postgres_dsn, "scheduler", MIGRATIONS)) as database,
    ):
        reader = FleetReader(
            readings := LatestReadings(), ReleaseSnapshots(around.bus, readings, 1.0), 0.0
        )
        await around.add_node("alpha", 2)
        await around.add_node("left", 1, samples=False, executor=False)
        await around.known("alpha", 2)
        await around.known("left", 1)
        followed = LiveEngine(database, reader, Policy())
        await followed.catch_up()

        await much_happens(around)
        await followed.catch_up()
        followed.apply_readings(())
        loaded = LiveEngine(database, reader, Policy())
        await loaded.catch_up()
        loaded.apply_readings(())

        assert followed.engine.state() == loaded.engine.state()
        assert len(followed.engine.state()) > 10
