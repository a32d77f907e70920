"""Quotas in the ledger: set by a command, kept over a restart, named to who waits."""

from schemas.errors import ErrorCode
from schemas.gpu_request import GpuRequest, ReasonCode
from schemas.scheduler import ReservationRejected
from schemas.scheduler_namespaces import (
    ListNamespaces,
    NamespaceList,
    NamespaceSet,
    NamespaceUse,
    SetNamespace,
)
from shared.ids import new_id
from tests.support.worlds.scheduler import World, accepted, refused, scheduler, world


async def set_limit(around: World, gpu_limit: float | None) -> None:
    command = SetNamespace(command_id=new_id(), namespace="a", gpu_limit=gpu_limit)
    accepted(await around.bus.request(command))


async def test_a_quota_is_stored_told_and_kept(nats_url: str, postgres_dsn: str) -> None:
    one, two = GpuRequest(lease_ttl_seconds=60.0), GpuRequest(gpus=2)
    async with world(nats_url) as around:
        async with scheduler(nats_url, postgres_dsn):
            await around.add_node("alpha", 4)
            await around.known("alpha", 4)
            await set_limit(around, 1.0)
            first = await around.request(one, namespace="a", holder="a1")
            await around.granted(first)
            waiting = await around.request(one, namespace="a", holder="a2")
            view = await around.waiting(waiting, ReasonCode.OVER_QUOTA)
            other = await around.request(one, namespace="b", holder="b1")
            await around.granted(other)
            too_large = await around.request(two, namespace="a", holder="a3")
            rejected = await around.event(ReservationRejected, too_large)
            uneven = refused(
                await around.bus.request(
                    SetNamespace(command_id=new_id(), namespace="a", gpu_limit=0.001)
                )
            )

        async with scheduler(nats_url, postgres_dsn):
            await around.waiting(waiting, ReasonCode.OVER_QUOTA)
            listed = await around.bus.query(ListNamespaces(), NamespaceList)
            await set_limit(around, 2.0)
            await around.granted(waiting)

    assert any("may hold" in reason.message for reason in view.reasons)
    assert {reason.code for reason in rejected.reasons} == {ReasonCode.EXCEEDS_QUOTA}
    assert uneven.code is ErrorCode.BAD_REQUEST
    assert listed.namespaces == (
        NamespaceUse(namespace="a", gpus=1.0, gpu_limit=1.0, queued=1),
        NamespaceUse(namespace="b", gpus=1.0),
    )
    assert [(event.namespace, event.gpu_limit) for event in around.seen(NamespaceSet)] == [
        ("a", 1.0),
        ("a", 2.0),
    ]
