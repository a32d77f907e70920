"""A decision finds what was committed before its request, however late Postgres tells of it."""

import asyncio

import pytest

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey
from schemas.scheduler.nodes import LabelNode
from schemas.scheduler.reservations import ReservationRejected
from services.scheduler.leader.decision_loop import DecisionLoop
from shared.ids import new_id
from tests.support.worlds.scheduler import accepted, scheduler, world

REQUESTS = 5
LATE_SECONDS = 0.1


async def test_request_finds_what_was_accepted_before_it(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wake(loop: DecisionLoop) -> None:
        asyncio.get_running_loop().call_later(LATE_SECONDS, loop._woken.set)  # noqa: SLF001

    monkeypatch.setattr(DecisionLoop, "wake", wake)
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        await around.add_node("alpha", 2)
        await around.known("alpha", 2)
        for number in range(REQUESTS):
            zone = Selector(key=SelectorKey.LABEL, label="zone", values=(str(number),))
            command = LabelNode(command_id=new_id(), node_id="alpha", labels={"zone": str(number)})
            accepted(await around.bus.request(command))
            reservation_id = await around.request(GpuRequest(require=(zone,)))
            accepted(await around.release(await around.granted(reservation_id)))
        assert not around.seen(ReservationRejected)
