"""Fractions of GPUs in the ledger: exact, never more than a device has, told by the map."""

import asyncio
from decimal import Decimal
from uuid import UUID

import asyncpg
import pytest

from schemas.cluster.node_selection import ClusterStatus, GetClusterStatus
from schemas.errors import ErrorCode
from schemas.gpus.device_grant import ShareKind
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.nodes import LabelNode
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import RequestReservation, ReservationGranted, ReservationState
from schemas.scheduler.views import AllocationMap, AvailabilityView, GetAllocationMap, WhatIf
from shared.gpu.shares import MPS_LABEL
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.scheduler import (
    FakeGpu,
    World,
    accepted,
    ledger,
    refused,
    scheduler,
    world,
)

OVER = """
SELECT device_no, sum(hundredths) FROM holding WHERE released_at IS NULL
GROUP BY device_no HAVING sum(hundredths) > 100
"""


async def held(around: World) -> dict[str, str]:
    """The allocation map, checked against its own holders."""
    found = await around.bus.query(GetAllocationMap(), AllocationMap)
    devices = [device for node in found.nodes for device in node.devices]
    for device in devices:
        exact = sum(Decimal(f"{each.shares:.2f}") for each in device.holders)
        assert Decimal(f"{device.allocated:.2f}") == exact
    return {device.uuid: f"{device.allocated:.2f}" for device in devices}


async def shares(around: World, amount: float, **more: object) -> ReservationGranted:
    request = GpuRequest(shares=amount, **more)  # type: ignore[arg-type]
    return await around.granted(await around.request(request))


async def test_map_shows_shares_of_two_gpus(steward: World) -> None:
    await steward.add_node("alpha", 2)

    first = await shares(steward, 0.2)
    second = await shares(steward, 1.2)

    assert await held(steward) == {"GPU-alpha-0": "0.60", "GPU-alpha-1": "0.80"}
    [device] = first.devices
    assert device.share is not None
    assert (device.share.shares, device.share.reserved_memory_mb) == (0.2, 16_000)
    assert device.share.kind is ShareKind.COOPERATIVE  # and says that nothing is enforced
    assert (device.share.compute_percent, device.share.memory_mb) == (None, None)

    async def are_read() -> bool:
        status = await steward.bus.query(GetClusterStatus(), ClusterStatus)
        return all(gpu.has_metrics for gpu in status.gpus)

    await eventually(are_read, what="the use of shared GPUs")
    waiting = await steward.request(GpuRequest(shares=0.7))
    await steward.waiting(waiting, ReasonCode.INSUFFICIENT_SHARES)

    accepted(await steward.release(first))
    accepted(await steward.release(first))  # as if the answer had been lost

    third = await steward.granted(waiting)
    assert await held(steward) == {"GPU-alpha-0": "0.95", "GPU-alpha-1": "0.95"}
    for granted in (second, third):
        accepted(await steward.release(granted))
    assert set((await held(steward)).values()) == {"0.00"}


async def test_share_enforcement_changes_only_when_empty(steward: World, postgres_dsn: str) -> None:
    gpu = FakeGpu(uuid="GPU-0", index=0, simulated=False)
    node = await steward.add_node("alpha", [gpu])

    async def reported() -> None:
        event = await node.report_inventory()
        async with ledger(postgres_dsn) as connection:

            async def is_stored() -> bool:
                stored = "SELECT inventory_revision FROM node WHERE node_id = 'alpha'"
                return bool(await connection.fetchval(stored) == event.revision)

            await eventually(is_stored, what="the inventory to be stored")

    first = await shares(steward, 0.25)
    node.labels[MPS_LABEL] = "true"
    await reported()
    second = await shares(steward, 0.25)
    label = LabelNode(command_id=new_id(), node_id="alpha", labels={MPS_LABEL: "true"})
    reply = refused(await steward.bus.request(label))
    for granted in (first, second):
        accepted(await steward.release(granted))
    await reported()
    third = await shares(steward, 0.25, enforced_shares=True)

    kinds = [each.devices[0].share.kind for each in (first, second, third) if each.devices[0].share]
    assert kinds == [ShareKind.COOPERATIVE, ShareKind.COOPERATIVE, ShareKind.MPS]
    assert (reply.code, reply.path) == (ErrorCode.CONFLICT, "$.labels")


async def test_whole_gpu_has_the_same_cells_in_any_form(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 1)
    found = []
    for request in (GpuRequest(shares=1.0), GpuRequest(vgpu_cores=100), GpuRequest()):
        granted = await steward.granted(await steward.request(request))
        assert granted.devices[0].share is None
        accepted(await steward.release(granted))
        async with ledger(postgres_dsn) as connection:
            found.append(
                await connection.fetchval(
                    "SELECT cells::text FROM holding WHERE reservation_id = $1",
                    granted.reservation_id,
                )
            )

    assert len(set(found)) == 1


async def test_postgres_refuses_more_than_a_device(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 1)
    await shares(steward, 0.7)
    other = await steward.request(GpuRequest(shares=0.4))

    async with ledger(postgres_dsn) as connection:
        number = await connection.fetchval("SELECT device_no FROM holding")
        for first, last in ((6_999, 10_000), (0, 10_001)):
            with pytest.raises((asyncpg.ExclusionViolationError, asyncpg.CheckViolationError)):
                await connection.execute(
                    "INSERT INTO holding (reservation_id, device_no, epoch, cells)"
                    " VALUES ($1, $2, 99, int8multirange(int8range($3::int8, $4::int8)))",
                    other,
                    number,
                    number * 10_000 + first,
                    number * 10_000 + last,
                )


@pytest.mark.long
async def test_two_schedulers_never_overcommit_a_device(nats_url: str, postgres_dsn: str) -> None:
    """Shares and whole GPUs at once, through both, while a connection of its own looks."""
    amounts = [0.3, 0.25, 0.7, 1.2, 0.5, 1.0] * 4
    async with (
        scheduler(nats_url, postgres_dsn),
        scheduler(nats_url, postgres_dsn),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 2, interval_seconds=0.2)
        await around.add_node("beta", 1, interval_seconds=0.2)
        await around.known("beta", 1)

        async def use(amount: float) -> None:
            granted = await shares(around, amount)
            got = sum(
                Decimal(str(device.share.shares)) if device.share else Decimal(1)
                for device in granted.devices
            )
            assert got == Decimal(str(amount))
            async with ledger(postgres_dsn) as connection:
                assert await connection.fetch(OVER) == []
            accepted(await around.release(granted))

        async def use_whole() -> None:
            accepted(await around.release(await around.granted(await around.request())))

        await asyncio.gather(*map(use, amounts), *(use_whole() for _ in range(4)))

        assert set((await held(around)).values()) == {"0.00"}


async def test_cancelled_share_is_closed_until_confirmed(steward: World) -> None:
    node = await steward.add_node("alpha", 1, executor=False)
    first, second = await shares(steward, 0.5), await shares(steward, 0.25)

    accepted(await steward.cancel(first.reservation_id))

    waiting = await steward.request(GpuRequest(shares=0.1))
    await steward.waiting(waiting, ReasonCode.QUARANTINED)
    assert await held(steward) == {"GPU-alpha-0": "0.75"}
    await node.answer_fences()
    await steward.granted(waiting)
    assert await held(steward) == {"GPU-alpha-0": "0.35"}
    assert (await steward.view(second.reservation_id)).state is ReservationState.GRANTED


async def test_vgpu_needs_enough_cores_and_memory(
    steward: World,
) -> None:
    small = FakeGpu("GPU-small", 0, memory_total_mb=24_000)
    await steward.add_node("alpha", [small, FakeGpu("GPU-large", 1)])

    granted = await steward.granted(
        await steward.request(GpuRequest(vgpu_cores=30, vgpu_memory_mb=8_000))
    )

    [device] = granted.devices
    assert device.uuid == "GPU-large"
    assert device.share is not None
    assert (device.share.shares, device.share.reserved_memory_mb) == (0.3, 24_000)
    assert device.share.kind is ShareKind.COOPERATIVE  # nothing is enforced


async def test_why_and_what_if_speak_of_shares(steward: World) -> None:
    await steward.add_node("alpha", 1)
    await shares(steward, 0.6)
    waiting = await steward.request(GpuRequest(shares=0.5))
    await steward.waiting(waiting, ReasonCode.INSUFFICIENT_SHARES)

    found = await steward.bus.query(
        WhatIf(reservation_id=waiting, request=GpuRequest(shares=0.4)), AvailabilityView
    )

    assert found.available, found


@pytest.mark.parametrize(
    ("request_", "place", "says"),
    [
        (GpuRequest(shares=0.125), "shares", "a multiple of 0.01"),
        (GpuRequest(shares=0.5, gpus=2), "gpus", "gpus and shares in one request"),
        (GpuRequest(unfragmented=True), "unfragmented", "without `shares`"),
    ],
)
async def test_inexact_share_is_refused_with_the_rule(
    steward: World, request_: GpuRequest, place: str, says: str
) -> None:
    command = RequestReservation(command_id=new_id(), reservation_id=UUID(int=1), request=request_)

    answer = refused(await steward.bus.request(command))

    assert answer.path == f"$.request.{place}"
    assert says in answer.message


async def test_a_quantum_and_enforcement_may_be_demanded(nats_url: str, postgres_dsn: str) -> None:
    rules = {"share_quantum": 0.1, "enforced_share_namespaces": "strict"}
    async with scheduler(nats_url, postgres_dsn, **rules), world(nats_url) as around:
        await around.add_node("alpha", 1)

        async def ask(
            amount: float, namespace: str, *, enforced: bool = False
        ) -> RequestReservation:
            return RequestReservation(
                command_id=new_id(),
                reservation_id=new_id(),
                namespace=namespace,
                request=GpuRequest(shares=amount, enforced_shares=enforced),
            )

        odd = refused(await around.bus.request(await ask(0.25, "default")))
        loose = refused(await around.bus.request(await ask(0.3, "strict")))
        enforced = await ask(0.3, "strict", enforced=True)
        accepted(await around.bus.request(enforced))

        assert "a multiple of 0.1" in odd.message
        assert loose.path == "$.request.enforced_shares"
        rejected = await around.view(enforced.reservation_id)
        assert rejected.state in {ReservationState.QUEUED, ReservationState.REJECTED}
