"""A node that left is forgotten: with what is held there only on the sender's word."""

from schemas.base import NodeId
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.nodes import NodeRemoved, RemoveNode
from schemas.scheduler.reservations import ReservationLost
from schemas.scheduler.views import AllocationMap, GetAllocationMap
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, refused, scheduler, world

STALE_SECONDS = 1.0


async def remove(steward: World, node_id: NodeId, *, end_held: bool = False) -> Reply:
    command = RemoveNode(command_id=new_id(), node_id=node_id, end_held=end_held, reason="scrapped")
    return await steward.bus.request(command)


async def states(steward: World) -> dict[NodeId, list[DeviceState]]:
    seen = await steward.bus.query(GetAllocationMap(), AllocationMap)
    return {node.node_id: [device.state for device in node.devices] for node in seen.nodes}


async def test_node_that_left_is_new_when_it_returns(nats_url: str, postgres_dsn: str) -> None:
    quick = {"stale_agent_seconds": STALE_SECONDS}
    async with scheduler(nats_url, postgres_dsn, **quick), world(nats_url) as steward:
        await steward.add_node("alpha", 1)
        beta = await steward.add_node("beta", 2, samples=False, executor=False)
        await steward.known("alpha", 1)
        await beta.publish_sample()
        request = GpuRequest(node_ids=("beta",), lease_ttl_seconds=60.0)
        held = await steward.granted(await steward.request(request))

        at_once = refused(await remove(steward, "beta", end_held=True))
        refusals: list[str] = []

        async def is_refused_as_held() -> bool:
            refusals.append(refused(await remove(steward, "beta")).message)
            return "are held" in refusals[-1]

        await eventually(is_refused_as_held, what="beta to have left")
        accepted(await remove(steward, "beta", end_held=True))
        unknown = refused(await remove(steward, "beta", end_held=True))
        running = refused(await remove(steward, "alpha", end_held=True))
        left = await states(steward)
        beta.boot_id = new_id()
        beta.gpus.pop(0)
        await beta.report_inventory()
        await steward.known("beta", 1)
        steward.running.append(steward.tasks.create_task(beta.keep_sampling()))
        again = await steward.granted(await steward.request(request))
        back = await states(steward)

    assert at_once.code is ErrorCode.CONFLICT
    assert "still reports" in at_once.message
    assert refusals[-1].startswith("1 devices of beta are held")
    assert unknown.code is ErrorCode.NOT_FOUND
    assert "still reports" in running.message
    lost = steward.seen(ReservationLost, held.reservation_id)
    assert [event.reason for event in lost] == ["node removed: scrapped"]
    assert [(e.node_id, e.reason) for e in steward.seen(NodeRemoved)] == [("beta", "scrapped")]
    assert left.keys() == {"alpha"}
    assert [device.uuid for device in again.devices] == ["GPU-beta-1"]
    assert back["beta"] == [DeviceState.HELD]


async def test_old_report_does_not_revive_removed_node(nats_url: str, postgres_dsn: str) -> None:
    quick = {"stale_agent_seconds": 0.1}
    async with scheduler(nats_url, postgres_dsn, **quick), world(nats_url) as steward:
        beta = await steward.add_node("beta", 1, samples=False, executor=False)
        await steward.known("beta", 1)

        async def is_removed() -> bool:
            return isinstance(await remove(steward, "beta"), Accepted)

        await eventually(is_removed, what="beta to have left")
        beta.inventory_revision -= 1
        await beta.report_inventory()  # the same once more
        await steward.add_node("alpha", 1)  # what follows is recorded after it
        await steward.known("alpha", 1)

        assert (await states(steward)).keys() == {"alpha"}
