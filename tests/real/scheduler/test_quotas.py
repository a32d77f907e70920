"""Quotas in the ledger: set by a command, kept over a restart, named to who waits."""

from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.namespaces import (
    ListNamespaces,
    NamespaceList,
    NamespaceSet,
    NamespaceUse,
    SetNamespace,
)
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationRejected
from services.scheduler.ledger.rows import use_rows
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


async def test_turns_follow_what_the_ledger_says_was_held(nats_url: str, postgres_dsn: str) -> None:
    """Four quarters held for an hour cost as much as one whole GPU: exactly one GPU-hour."""
    quarter, one = GpuRequest(shares=0.25), GpuRequest(lease_ttl_seconds=60.0)
    async with world(nats_url) as around, scheduler(nats_url, postgres_dsn):
        await around.add_node("alpha", 2)
        await around.known("alpha", 2)
        for number in range(4):
            await around.granted(await around.request(quarter, namespace="a", holder=f"a{number}"))
        whole = await around.request(one, namespace="b", holder="b")
        await around.granted(whole)
        rules = SetNamespace(command_id=new_id(), namespace="b", gpu_limit=4.0, weight=3)
        accepted(await around.bus.request(rules))
        too_much = refused(
            await around.bus.request(
                SetNamespace(command_id=new_id(), namespace="a", gpu_limit=1.0, guaranteed_gpus=2.0)
            )
        )
        waiting = [
            await around.request(one, namespace=name, holder=name) for name in ("a", "b", "c")
        ]
        for each in waiting:
            await around.waiting(each, ReasonCode.HELD)
        positions = {
            view.namespace: view.queue_position
            for view in [await around.view(each) for each in waiting]
        }
        listed = await around.bus.query(ListNamespaces(), NamespaceList)

    since = datetime(2026, 1, 1, tzinfo=UTC)
    connection = await asyncpg.connect(postgres_dsn, server_settings={"search_path": "scheduler"})
    try:
        await connection.execute("UPDATE holding SET granted_at = $1", since)
        learned = await use_rows.learn(connection, since + timedelta(hours=1), 1e9)
    finally:
        await connection.close()

    assert too_much.code is ErrorCode.BAD_REQUEST
    assert positions == {"c": 1, "b": 2, "a": 3}
    uses = {each.namespace: each for each in listed.namespaces}
    assert uses["b"].weight == 3
    assert uses["a"].used_share == pytest.approx(0.5, abs=0.1)
    assert uses["c"].used_share == 0.0
    held = {name: use.hundredths for name, use in learned.by_namespace.items()}
    assert held["a"] == held["b"] == pytest.approx(100 * 3600, rel=1e-4)
