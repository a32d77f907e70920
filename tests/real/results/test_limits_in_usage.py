"""The usage report beside what the scheduler says that namespaces may hold."""

from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from schemas.base import pattern_for
from schemas.results.reports import GetUsage, UsageView
from schemas.scheduler.namespaces import ListNamespaces, NamespaceList, NamespaceUse
from services.results.domain.rollup import HOUR, start_of
from shared.clock import utcnow
from shared.ids import new_id
from shared.messaging.codec import encode
from tests.support.worlds.results import World


async def test_use_stands_beside_what_a_namespace_may_hold(world: World) -> None:
    end = start_of(utcnow(), HOUR) - HOUR
    query = GetUsage(start_at=end - 10 * HOUR, end_at=end)
    limits = NamespaceList(
        namespaces=(
            NamespaceUse(namespace="team-a", gpus=0, gpu_limit=4),
            NamespaceUse(namespace="team-b", gpus=0, gpu_limit=0),
            NamespaceUse(namespace="team-c", gpus=3),
        )
    )

    async def scheduler(message: Any) -> None:
        await message.respond(encode(limits))

    async with world.results():
        connection = await asyncpg.connect(world.dsn)
        reservation = new_id()
        await connection.execute(
            "INSERT INTO results.device (node_id, device_uuid, device_index, name, simulated)"
            " VALUES ('n', 'GPU-0', 0, 'A100', true)"
        )
        await connection.execute(
            "INSERT INTO results.reservation (reservation_id, namespace, holder)"
            " VALUES ($1, 'team-a', 'x')",
            reservation,
        )
        await connection.execute(
            "INSERT INTO results.ledger_hour SELECT $1, device_no, $2, $3, 0, 0, 0, 0, 0"
            " FROM results.device",
            end - HOUR,
            reservation,
            2 * 3_600_000_000,
        )
        await connection.close()
        alone = await world.ask(query, UsageView)
        await world.client.subscribe(pattern_for(ListNamespaces), cb=scheduler)
        await world.client.flush()
        view = await world.ask(query, UsageView)
        other = await world.ask(replace(query, namespace="team-b"), UsageView)

    assert [(line.name, line.gpu_limit) for line in alone.lines] == [("team-a", None)]
    assert [(line.name, line.gpu_limit, line.limit_percent) for line in view.lines] == [
        ("team-a", 4, pytest.approx(5.0)),
        ("team-b", 0, None),
    ]
    assert [line.name for line in other.lines] == ["team-b"]
