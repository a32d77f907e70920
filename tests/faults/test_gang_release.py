"""A gang's devices are free node by node, whoever says that it is over."""

import pytest

from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import FenceReservation
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import DeviceFreed
from schemas.scheduler.reservations import ReservationReleased, ReservationState
from tests.support.worlds.scheduler import accepted, ledger, scheduler, world

pytestmark = pytest.mark.long

OPEN = (
    "SELECT node_id FROM scheduler.holding JOIN scheduler.device USING (device_no)"
    " WHERE released_at IS NULL ORDER BY node_id"
)


async def test_first_ended_part_does_not_free_others(nats_url: str, postgres_dsn: str) -> None:
    """An executor releases when its own part is torn down. It cannot speak for the other node, on
    which the gang may still run.
    """

    def still_runs(command: FenceReservation) -> Reply:
        return Refused(
            code=ErrorCode.STILL_RUNNING, message="stopping", command_id=command.command_id
        )

    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        await around.add_node("alpha", 1, interval_seconds=0.2)
        beta = await around.add_node("beta", 1, interval_seconds=0.2)
        beta.answer_fence = still_runs
        granted = await around.granted(await around.request(GpuRequest(nodes=2)))

        accepted(await around.release(granted, stopped=True))
        await around.event(DeviceFreed, granted.reservation_id)
        async with ledger(postgres_dsn) as connection:
            held = [row["node_id"] for row in await connection.fetch(OPEN)]
        state = (await around.view(granted.reservation_id)).state
        beta.answer_fence = lambda command: Accepted(command_id=command.command_id)
        await around.event(ReservationReleased, granted.reservation_id)

    assert held == ["beta"]
    assert state is ReservationState.RELEASING
