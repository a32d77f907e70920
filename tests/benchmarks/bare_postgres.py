"""What Postgres alone does for a grant and a release: the same rows, nothing around them.

A grant is one transaction that inserts the reservation, the command with its answer, the holding,
two events and the record of the decision, and updates the reservation. A release is one that
updates the reservation, the holding and the device, and inserts the command and the event. No
request is checked, nothing is locked or chosen, no epoch drawn, nothing decided, nothing published.
"""

import asyncio
import time
from typing import Any, Final
from uuid import UUID

import asyncpg

from shared.ids import new_id

DEVICES: Final = 800
EVENT_BYTES: Final = bytes(500)
REQUEST: Final = '{"gpus":1}'
DECISION: Final = "x" * 1500

_SCHEMA: Final = "DROP SCHEMA IF EXISTS bare CASCADE; CREATE SCHEMA bare"
_TABLES: Final = (
    "reservation",
    "device",
    "holding",
    "command",
    "outbox",
    "decision",
)


async def rate_per_second(dsn: str, connections: int, seconds: float) -> float:
    """Grants and releases per second, by this many connections at once, each on its devices."""
    setup = await _connect(dsn)
    try:
        await _copy_tables(setup)
        numbers = [row[0] for row in await setup.fetch("SELECT device_no FROM device")]
    finally:
        await setup.close()
    pool = [await _connect(dsn) for _ in range(connections)]
    try:
        deadline = time.monotonic() + seconds
        began = time.monotonic()
        counts = await asyncio.gather(
            *(
                _work(connection, numbers[place::connections], deadline)
                for place, connection in enumerate(pool)
            )
        )
        return sum(counts) / (time.monotonic() - began)
    finally:
        for connection in pool:
            await connection.close()


async def _connect(dsn: str) -> Any:
    return await asyncpg.connect(dsn, server_settings={"search_path": "bare"})


async def _copy_tables(connection: Any) -> None:
    """The scheduler's tables with their indexes and constraints, but without triggers."""
    await connection.execute(_SCHEMA)
    for table in _TABLES:
        await connection.execute(f"CREATE TABLE {table} (LIKE scheduler.{table} INCLUDING ALL)")
    await connection.execute(
        "INSERT INTO device (node_id, uuid, index, name, simulated, health)"
        " SELECT 'node', 'GPU-' || n, n, 'GPU', true, 'ok' FROM generate_series(1, $1) AS n",
        DEVICES,
    )


async def _work(connection: Any, numbers: list[int], deadline: float) -> int:
    done = 0
    while True:
        for number in numbers:
            if time.monotonic() >= deadline:
                return done
            reservation_id = new_id()
            await _grant(connection, reservation_id, number)
            await _release(connection, reservation_id, number)
            done += 2


async def _grant(connection: Any, reservation_id: UUID, number: int) -> None:
    async with connection.transaction():
        await connection.execute(
            "INSERT INTO reservation (reservation_id, namespace, holder, request, state, revision,"
            " requested_at, wait_deadline_at, lease_ttl_seconds)"
            " VALUES ($1, 'default', '', $2, 'queued', 1, now(), now(), 30)",
            reservation_id,
            REQUEST,
        )
        await _remember(connection)
        await connection.execute(
            "INSERT INTO holding (reservation_id, device_no, epoch, cells) VALUES ($1, $2, 1,"
            " int8multirange(int8range($2::bigint * 10000, ($2::bigint + 1) * 10000)))",
            reservation_id,
            number,
        )
        await connection.execute(
            "UPDATE reservation SET state = 'granted', revision = 2, granted_at = now(),"
            " node_id = 'node', lease_expires_at = now() + interval '30 s'"
            " WHERE reservation_id = $1",
            reservation_id,
        )
        for _ in range(2):
            await _stage(connection)
        await connection.execute(
            "INSERT INTO decision (term, decided_at, keyframe, inputs, outcomes, reservation_ids)"
            " VALUES (1, now(), false, $1, $1, ARRAY[$2::uuid])",
            DECISION,
            reservation_id,
        )


async def _release(connection: Any, reservation_id: UUID, number: int) -> None:
    async with connection.transaction():
        await connection.execute(
            "UPDATE reservation SET state = 'released', revision = 3, ended_at = now(),"
            " lease_expires_at = NULL WHERE reservation_id = $1",
            reservation_id,
        )
        await connection.execute(
            "UPDATE holding SET released_at = now() WHERE reservation_id = $1", reservation_id
        )
        await connection.execute(
            "UPDATE device SET releases = releases + 1 WHERE device_no = $1", number
        )
        await _remember(connection)
        await _stage(connection)


async def _remember(connection: Any) -> None:
    await connection.execute(
        "INSERT INTO command (command_id, body_hash, reply) VALUES ($1, $2, $2)",
        new_id(),
        bytes(32),
    )


async def _stage(connection: Any) -> None:
    await connection.execute(
        "INSERT INTO outbox (message_id, subject, body) VALUES ($1, 'subject', $2)",
        new_id(),
        EVENT_BYTES,
    )
