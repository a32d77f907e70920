"""What the ledger says of its rows, and to whom it says that they have changed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from schemas.scheduler.reservations import ReservationState
from services.scheduler.ledger import transitions
from services.scheduler.ledger.change_listener import ChangeListener
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import reservation_rows
from shared.errors import UnavailableError
from shared.postgres.database import Database
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.worlds.scheduler import ledger, scheduler, world


@asynccontextmanager
async def listening(database: Database) -> AsyncIterator[list[None]]:
    """A list that grows with every wake-up; the first comes with the connection."""
    wakes: list[None] = []
    task = asyncio.create_task(ChangeListener(database, lambda: wakes.append(None)).run())
    try:
        await eventually(lambda: len(wakes) == 1)
        yield wakes
    finally:
        await cancel_and_wait(task)


async def test_locked_reservation_tells_its_quarantine(
    nats_url: str, postgres_dsn: str, database: Database
) -> None:
    """The lock waits for the transaction that cancels: what that one quarantines is seen."""
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        await around.add_node("alpha", 1, executor=False)
        granted = await around.granted(await around.request())
        ids = [granted.reservation_id]

        async def locked() -> reservation_rows.Reservation:
            async with database.transaction() as connection:
                return (await reservation_rows.lock(connection, ids))[granted.reservation_id]

        assert not (await locked()).quarantined
        async with ledger(postgres_dsn) as observer, database.transaction() as connection:
            stored = (await reservation_rows.lock(connection, ids))[granted.reservation_id]
            now = await reservation_rows.database_now(connection)
            waits = asyncio.create_task(locked())
            await eventually(
                lambda: observer.fetchval("SELECT count(*) > 0 FROM pg_locks WHERE NOT granted")
            )
            await transitions.cancel(connection, stored, now, "enough")
        after = await waits

        assert after.state is ReservationState.CANCELLED
        assert after.quarantined
        async with database.transaction() as connection:
            assert await reservation_rows.find(connection, granted.reservation_id) == after


async def test_ledger_change_wakes_with_its_commit(database: Database) -> None:
    add_node = "INSERT INTO node (node_id) VALUES ($1)"
    async with listening(database) as wakes:
        async with database.transaction() as connection:
            await connection.execute(add_node, "alpha")

        await eventually(lambda: len(wakes) == 2)


async def test_a_leader_s_decision_wakes_no_decision_loop(database: Database) -> None:
    leadership = Leadership(database, 3.0)
    await leadership.hold()
    add_node = "INSERT INTO node (node_id) VALUES ($1)"
    async with listening(database) as wakes:
        async with database.transaction() as connection:
            await leadership.check_and_fetch(connection, "SELECT FROM leadership", is_decision=True)
            await connection.execute(add_node, "alpha")
        async with database.transaction() as connection:
            await leadership.check(connection)
            await connection.execute(add_node, "beta")

        # Notifications come in the order of the commits: the first one would be here by now.
        await eventually(lambda: len(wakes) == 2)
        async with database.transaction() as connection:
            await connection.execute(add_node, "gamma")
        await eventually(lambda: len(wakes) == 3)


async def test_a_lost_connection_counts_as_a_change(
    database: Database, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.scheduler.ledger.change_listener.CHECK_SECONDS", 0.05)
    wakes: list[None] = []
    listener = ChangeListener(database, lambda: wakes.append(None))
    task = asyncio.create_task(listener.run())
    await eventually(lambda: len(wakes) == 1)
    async with ledger(postgres_dsn) as connection:
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'gpusteward-changes'"
        )

    with pytest.raises(UnavailableError):
        await task
    again = asyncio.create_task(listener.run())
    await eventually(lambda: len(wakes) == 2)
    await cancel_and_wait(again)


async def test_every_change_is_decided_without_polling(
    nats_url: str, postgres_dsn: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancel is another process's: only the notification can wake this one."""
    monkeypatch.setattr("services.scheduler.leader.decision_loop.POLL_SECONDS", 3600.0)
    async with (
        scheduler(nats_url, postgres_dsn, leader_ttl_seconds=7200.0),
        world(nats_url) as around,
    ):
        await around.add_node("alpha", 1)
        first = await around.granted(await around.request())
        second = await around.request()

        async with database.transaction() as connection:
            stored = await reservation_rows.lock_one(connection, first.reservation_id)
            assert stored is not None
            now = await reservation_rows.database_now(connection)
            await transitions.cancel(connection, stored, now, "by another process")

        await around.granted(second)
