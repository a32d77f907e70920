"""What is old is deleted, and nothing that anything still needs."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from services.scheduler.ledger import decision_log
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.retention import Retention
from services.scheduler.ledger.rows import reservation_rows
from shared.clock import utcnow
from shared.ids import new_id
from shared.postgres.database import Database


async def ended_reservation(connection: Any, device_no: int, *, days: int, freed: bool) -> UUID:
    """One that ended so long ago; its device waits for its confirmed stop unless `freed`."""
    reservation_id, ended_at = new_id(), utcnow() - timedelta(days=days)
    await connection.execute(
        "INSERT INTO reservation (reservation_id, namespace, holder, request, state, revision,"
        " requested_at, wait_deadline_at, lease_ttl_seconds, ended_at)"
        " VALUES ($1, 'default', '', '{}', 'expired', 1, $2, $2, 30, $2)",
        reservation_id,
        ended_at,
    )
    await connection.execute(
        "INSERT INTO holding (reservation_id, device_no, epoch, cells, released_at)"
        " VALUES ($1, $2, 1, int8multirange(int8range($2::bigint * 10000, $2::bigint * 10000 + 1)),"
        " $3)",
        reservation_id,
        device_no,
        ended_at if freed else None,
    )
    return reservation_id


async def test_old_reservations_are_pruned_once_freed(database: Database) -> None:
    async with database.transaction() as connection:
        await connection.execute("INSERT INTO node (node_id) VALUES ('alpha')")
        device_no = await connection.fetchval(
            "INSERT INTO device (node_id, uuid, index, name, simulated, health)"
            " VALUES ('alpha', 'GPU-a', 0, 'GPU', true, 'ok') RETURNING device_no"
        )
        await ended_reservation(connection, device_no, days=31, freed=True)
        recent = await ended_reservation(connection, device_no, days=29, freed=True)
        waiting = await ended_reservation(connection, device_no, days=31, freed=False)

    await Retention(
        database, Leadership(database, 3.0), reservation_days=30, decision_days=7, decisions_kept=9
    ).prune()

    async with database.transaction() as connection:
        left = await connection.fetch("SELECT reservation_id FROM reservation")
        assert {row["reservation_id"] for row in left} == {recent, waiting}
        assert await reservation_rows.find(connection, waiting) is not None


async def test_pruning_keeps_keyframe_and_successors(database: Database) -> None:
    async with database.transaction() as connection:
        for number in range(12):
            await decision_log.record(
                connection,
                term=1,
                decided_at=utcnow(),
                keyframe=number % 4 == 0,
                inputs="[]",
                outcomes="[]",
                reservation_ids=[],
            )
        while await decision_log.delete(connection, 7.0, 5, 3) == 3:
            pass

        kept = await connection.fetch("SELECT keyframe FROM decision ORDER BY decision_id")

    assert [row["keyframe"] for row in kept] == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        False,
    ]
