"""Keeping a lease by our own clock, against a scripted gateway."""

import asyncio
from typing import cast
from uuid import UUID

import pytest

from schemas.errors import Accepted, ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from services.cli.leased_process.lease import HeldLease, LeaseLost
from shared.client.errors import PlatformUnreachable
from shared.client.http import StewardClient
from shared.errors import RefusedError
from shared.ids import new_id
from tests.support.worlds.gateway_views import make_reservation

TTL_SECONDS = 3.0


class ScriptedGateway:
    """Answers renewals with what it is given, the last one for ever."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.activations: list[bool] = []

    async def renew_reservation(
        self, reservation_id: UUID, epoch: int, *, activate: bool = False
    ) -> Accepted:
        del reservation_id, epoch
        self.activations.append(activate)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer
        return Accepted(command_id=new_id(), lease_ttl_seconds=TTL_SECONDS)


class SilentGateway(ScriptedGateway):
    """Never answers."""

    async def renew_reservation(
        self, reservation_id: UUID, epoch: int, *, activate: bool = False
    ) -> Accepted:
        del reservation_id, epoch, activate
        await asyncio.Event().wait()
        raise AssertionError


class Clock:
    """Goes forward when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def make_lease(gateway: ScriptedGateway, clock: Clock) -> HeldLease:
    reservation = make_reservation(request=GpuRequest(lease_ttl_seconds=TTL_SECONDS))
    return HeldLease(cast(StewardClient, gateway), reservation, 7, clock)


async def test_time_left_counts_from_request_minus_stop_time() -> None:
    clock = Clock()
    lease = make_lease(ScriptedGateway(None), clock)
    clock.now += 1.5

    before = lease.seconds_left
    await lease.activate()

    assert before == 0.5
    assert lease.seconds_left == TTL_SECONDS - 1.0


@pytest.mark.parametrize("code", [ErrorCode.LEASE_LOST, ErrorCode.STALE_EPOCH, ErrorCode.NOT_FOUND])
async def test_refused_renewal_loses_lease(code: ErrorCode) -> None:
    lease = make_lease(ScriptedGateway(RefusedError(code, "ended")), Clock())

    with pytest.raises(LeaseLost, match="refused to renew it: ended"):
        await lease.activate()


async def test_an_unavailable_scheduler_is_asked_again() -> None:
    gateway = ScriptedGateway(
        PlatformUnreachable("down"), RefusedError(ErrorCode.UNAVAILABLE, "down"), None
    )

    await make_lease(gateway, Clock()).activate()

    assert gateway.activations == [True, True, True]


@pytest.mark.usefixtures("idle_clock")
async def test_unconfirmed_lease_is_lost_before_its_end() -> None:
    clock = Clock()
    lease = make_lease(ScriptedGateway(PlatformUnreachable("down")), clock)
    renewing = asyncio.create_task(lease.renew_until_lost())
    clock.now += TTL_SECONDS - 1.0

    with pytest.raises(LeaseLost, match="no renewal was confirmed for 2 s"):
        async with asyncio.timeout(3):
            await renewing


async def test_late_cancellation_is_not_lost() -> None:
    clock = Clock()
    lease = make_lease(SilentGateway(), clock)
    clock.now += TTL_SECONDS

    async def activate() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as a signal does, which asks nobody what it interrupts
        await lease.activate()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(activate())
