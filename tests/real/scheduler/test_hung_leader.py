"""A scheduler that hangs takes no lease with it while another one is there."""

import asyncio
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from schemas.errors import Accepted
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import RenewReservation, RequestReservation, ReservationGranted
from shared.errors import UnavailableError
from shared.ids import new_id
from shared.lease import Lease
from shared.waiting import cancel_and_wait
from tests.support.processes.scheduler import scheduler_process
from tests.support.worlds.scheduler import World, world

HANGS_SECONDS = 30.0
HOLDERS = 12
TTL_SECONDS = 30.0


async def hold(around: World, granted: ReservationGranted) -> None:
    """Renew as an executor does; raises when it would have to stop its engine."""
    lease = Lease(ttl_seconds=TTL_SECONDS, confirmed_at=time.monotonic())
    while True:
        now = time.monotonic()
        assert now < lease.stop_at, f"not renewed for {now - lease.confirmed_at:.1f} s"
        if now < lease.renew_at:
            await asyncio.sleep(lease.renew_at - now)
            continue
        renewal = RenewReservation(
            command_id=new_id(), reservation_id=granted.reservation_id, epoch=granted.epoch
        )
        try:
            timeout_seconds = lease.request_timeout_seconds(now)
            reply = await around.bus.request(renewal, timeout_seconds=timeout_seconds)
        except UnavailableError:
            await asyncio.sleep(lease.retry_seconds)
            continue
        assert isinstance(reply, Accepted)
        lease = Lease(ttl_seconds=TTL_SECONDS, confirmed_at=now)


async def grant_seconds(around: World) -> float:
    """From the first try of a request to its grant."""
    began = time.monotonic()
    command = RequestReservation(command_id=new_id(), reservation_id=new_id())
    while True:
        try:
            reply = await around.bus.request(command, timeout_seconds=1.0)
        except UnavailableError:
            continue
        assert isinstance(reply, Accepted)
        await around.event(ReservationGranted, command.reservation_id, within_seconds=30)
        return time.monotonic() - began


@pytest.mark.long
@pytest.mark.timeout(180)
async def test_every_lease_outlives_a_leader_that_hangs(
    nats_url: str, postgres_dsn: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        start = stack.enter_async_context
        leader = await start(scheduler_process(nats_url, postgres_dsn, tmp_path))
        around = await start(world(nats_url))
        await around.add_node("alpha", HOLDERS + 2)
        await around.known("alpha", HOLDERS + 2)
        await start(scheduler_process(nats_url, postgres_dsn, tmp_path))
        request = GpuRequest(lease_ttl_seconds=TTL_SECONDS)
        held = [await around.granted(await around.request(request)) for _ in range(HOLDERS)]

        leader.pause()
        async with asyncio.TaskGroup() as group:
            holders = [group.create_task(hold(around, granted)) for granted in held]
            waited_seconds = await grant_seconds(around)
            await asyncio.sleep(HANGS_SECONDS)
            leader.resume()
            await asyncio.sleep(TTL_SECONDS / 3)
            await cancel_and_wait(*holders)

    sys.stdout.write(f"\n  leader stopped, request to grant: {waited_seconds:.1f} s")
    assert waited_seconds < 15
