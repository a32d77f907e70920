"""Drifts as the running scheduler finds them: told once, acted on, over when they are."""

from collections.abc import AsyncIterator

import pytest

from schemas.gpu_request import ReasonCode
from schemas.telemetry import GpuProcess
from tests.scheduler_world import World, accepted, scheduler, world


@pytest.fixture
async def steward(nats_url: str, postgres_dsn: str) -> AsyncIterator[World]:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        yield around


async def test_a_process_that_no_reservation_explains_delays_a_grant_until_it_ends(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1, interval_seconds=0.2)
    node.gpus[0].processes = (GpuProcess(pid=4711, name="python", memory_used_mb=100),)
    await node.publish_sample()
    await steward.known("alpha", 1)

    waiting = await steward.request()
    view = await steward.waiting(waiting, ReasonCode.FOREIGN_PROCESS)
    node.gpus[0].processes = (GpuProcess(pid=1, name="Xorg", memory_used_mb=4),)

    assert "4711" in view.reasons[0].message
    await steward.granted(waiting)


async def test_the_last_holder_s_processes_delay_nothing_once_its_node_was_read_again(
    steward: World,
) -> None:
    node = await steward.add_node("alpha", 1, samples=False)
    await node.publish_sample()
    first = await steward.granted(await steward.request())
    node.gpus[0].processes = (GpuProcess(pid=5, reservation_id=first.reservation_id),)
    await node.publish_sample()
    second = await steward.request()
    await steward.waiting(second, ReasonCode.HELD)

    node.gpus[0].processes = ()
    accepted(await steward.release(first))

    assert (await steward.granted(second)).waited_seconds < 5
