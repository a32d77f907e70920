"""A node that nobody has admitted is granted to no one, whatever it reports."""

from schemas.base import NodeId
from schemas.errors import Accepted, ErrorCode, Reply
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceState
from schemas.scheduler.nodes import AdmitNode, NodeAdmitted, RemoveNode
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationGranted
from schemas.scheduler.views import AllocationMap, GetAllocationMap, NodeAllocation
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, refused, scheduler, world


async def admit(around: World, node_id: NodeId) -> Reply:
    return await around.bus.request(AdmitNode(command_id=new_id(), node_id=node_id))


async def allocation(around: World, node_id: NodeId) -> NodeAllocation:
    view = await around.bus.query(GetAllocationMap(node_id=node_id), AllocationMap)
    return view.nodes[0]


async def test_simulated_node_waits_for_admission(nats_url: str, postgres_dsn: str) -> None:
    async with world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn, admit_nodes="alpha"):
            await around.add_node("alpha", 1)
            await around.add_node("made-up", 8)
            await around.known("alpha", 1)
            await around.known("made-up", 8)
            own = await around.granted(await around.request())
            waiting = await around.request(GpuRequest(gpus=8, lease_ttl_seconds=60.0))
            view = await around.waiting(waiting, ReasonCode.NOT_ADMITTED)
            shown = await allocation(around, "made-up")
            unknown = refused(await admit(around, "never-was"))

        async with scheduler(nats_url, postgres_dsn, admit_nodes="alpha"):
            await around.waiting(waiting, ReasonCode.NOT_ADMITTED)
            before = around.seen(ReservationGranted)
            accepted(await admit(around, "made-up"))
            granted = await around.granted(waiting)

    assert own.node_id == "alpha"
    assert before == [own]
    assert granted.node_id == "made-up"
    assert any("`gpusteward node admit made-up`" in reason.message for reason in view.reasons)
    assert (shown.admitted, shown.devices[0].state) == (False, DeviceState.UNAVAILABLE)
    assert unknown.code is ErrorCode.NOT_FOUND
    assert [event.node_id for event in around.seen(NodeAdmitted)] == ["made-up"]


async def test_removed_node_must_be_admitted_again(nats_url: str, postgres_dsn: str) -> None:
    quick = {"stale_agent_seconds": 1.0, "admit_nodes": ""}
    async with scheduler(nats_url, postgres_dsn, **quick), world(nats_url) as around:
        alpha = await around.add_node("alpha", 1, samples=False, executor=False)
        await around.known("alpha", 1)
        accepted(await admit(around, "alpha"))
        admitted = (await allocation(around, "alpha")).admitted

        async def is_removed() -> bool:
            command = RemoveNode(command_id=new_id(), node_id="alpha")
            return isinstance(await around.bus.request(command), Accepted)

        await eventually(is_removed, what="alpha to be forgotten")
        alpha.boot_id = new_id()
        await alpha.report_inventory()
        await around.known("alpha", 1)
        again = (await allocation(around, "alpha")).admitted

    assert (admitted, again) == (True, False)
