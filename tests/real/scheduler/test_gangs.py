"""What is held beside one node's devices: gangs over several nodes, CPUs and memory of hosts."""

import asyncpg
import pytest

from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import FenceReservation
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceFreed
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationGranted, ReservationState
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, ledger


async def test_gang_is_held_whole_and_freed_per_node(steward: World) -> None:
    silent = True

    def not_yet(command: FenceReservation) -> Reply:
        if silent:
            return Refused(code=ErrorCode.STILL_RUNNING, message="stopping")
        return Accepted(command_id=command.command_id)

    nodes = {name: await steward.add_node(name, 2) for name in ("alpha", "beta")}
    nodes["beta"].answer_fence = not_yet
    for name in nodes:
        await steward.known(name, 2)
    gang = await steward.request(GpuRequest(gpus=2, nodes=2))
    granted = await steward.granted(gang)
    waiting = await steward.request(GpuRequest(gpus=2, node_ids=("beta",)))
    accepted(await steward.cancel(gang))
    await eventually(lambda: len(steward.seen(DeviceFreed)) == 2)
    accepted(await steward.release(granted))  # its holder does not speak for the nodes of a gang

    freed_by_alpha = {event.node_id for event in steward.seen(DeviceFreed)}
    quarantined = await steward.waiting(waiting, ReasonCode.QUARANTINED)
    silent = False
    await steward.granted(waiting)

    assert sorted(granted.node_ids) == ["alpha", "beta"]
    assert len(granted.devices) == 4
    assert freed_by_alpha == {"alpha"}
    assert quarantined.state is ReservationState.QUEUED
    fences = {f.reservation_id for node in nodes.values() for f in node.fences}
    assert fences == {gang}
    assert (await steward.view(gang)).quarantined is False


async def test_gang_that_does_not_fit_holds_nothing(steward: World) -> None:
    await steward.add_node("alpha", 1)
    await steward.add_node("beta", 1)
    await steward.known("beta", 1)
    single = await steward.granted(await steward.request(GpuRequest(node_ids=("beta",))))
    gang = await steward.request(GpuRequest(nodes=2))
    await steward.waiting(gang, ReasonCode.HELD)

    held_meanwhile = [event.reservation_id for event in steward.seen(ReservationGranted)]
    accepted(await steward.release(single))

    assert held_meanwhile == [single.reservation_id]
    assert len((await steward.granted(gang)).node_ids) == 2


async def test_host_cpus_are_held_with_the_devices(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 2, cpu_count=8)
    await steward.known("alpha", 2)
    large = GpuRequest(cpu_count=5.5)
    first = await steward.granted(await steward.request(large))
    second = await steward.request(large)
    await steward.waiting(second, ReasonCode.INSUFFICIENT_CPU)

    async with ledger(postgres_dsn) as connection:
        held = "SELECT cpu_milli FROM node_use"
        while_held = await connection.fetchval(held)
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.execute("UPDATE node_use SET cpu_milli = cpu_milli + 5500")
        accepted(await steward.release(first))
        accepted(await steward.release(await steward.granted(second)))
        afterwards = await connection.fetchval(held)

    assert (while_held, afterwards) == (5_500, 0)
