"""A ledger that came from a backup: nothing that ran is trusted, nothing is granted too early."""

from datetime import timedelta

import asyncpg
import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from schemas.scheduler.reservations import ReservationGranted, ReservationState
from services.scheduler.after_restore import set_right
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.rows import loss_rows
from shared.clock import utcnow
from shared.errors import RefusedError
from shared.ids import new_id
from shared.postgres.database import Database
from shared.testing import eventually
from tests.support.worlds.scheduler import World, accepted, scheduler, world

QUICK = {"reconcile_interval_seconds": 0.2, "recovery_quiet_seconds": 0.0}


async def restore(dsn: str, *, backup_age: timedelta = timedelta(hours=2)) -> dict[str, int]:
    """What a restore does to the ledger, in which no scheduler runs."""
    database = Database(dsn, "scheduler", MIGRATIONS)
    await database.open()
    try:
        async with database.transaction() as connection:
            return await set_right(connection, utcnow() - backup_age)
    finally:
        await database.close()


async def end_leases(dsn: str) -> None:
    """Let the time pass that leases from before the restore may still take."""
    connection = await asyncpg.connect(dsn)
    for table in ("node", "device"):
        await connection.execute(
            f"UPDATE scheduler.{table} SET cordoned_at = cordoned_at - interval '1 hour'"
        )
    await connection.close()


async def test_restored_ledger_fences_and_waits(nats_url: str, postgres_dsn: str) -> None:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as before:
        await before.add_node("alpha", 2)
        granted = await before.granted(await before.request())
        accepted(await before.renew(granted, activate=True))
        queued = await before.waiting(
            await before.request(GpuRequest(gpus=2, wait_timeout_seconds=600.0)),
            ReasonCode.HELD,
        )

    done = await restore(postgres_dsn)

    assert done == {"reservations_fenced": 1, "devices_awaited": 2}
    unknown = new_id()
    async with scheduler(nats_url, postgres_dsn, **QUICK), world(nats_url) as after:
        # Its executor still runs what was granted after the backup.
        node = await after.add_node("alpha", 2)
        node.workloads = {unknown: (4711,)}
        await node.answer_running()
        await eventually(lambda: bool(node.fences), what="a fence of what the ledger knew")
        assert [fence.reservation_id for fence in node.fences] == [granted.reservation_id]
        lost = await after.view(granted.reservation_id)
        assert lost.state is ReservationState.LOST
        assert "restored from a backup" in lost.reason
        await end_leases(postgres_dsn)
        late = await after.request()
        view = await after.waiting(late, ReasonCode.CORDONED)
        assert "its node has reported what runs there" in str(view.reasons)

        node.workloads = {}

        again = await after.event(ReservationGranted, queued.reservation_id)
        assert again.epoch > granted.epoch + 2**31


async def test_node_waits_for_leases_from_before(nats_url: str, postgres_dsn: str) -> None:
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as before:
        await before.add_node("alpha", 1)
        await before.granted(await before.request(GpuRequest(lease_ttl_seconds=1800.0)))
    await restore(postgres_dsn)
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()

    async with database.transaction() as connection:
        await connection.execute("UPDATE device SET cordoned_at = now() - interval '1700 s'")
        [early] = [row for row in await loss_rows.losses(connection) if row.uuid is not None]
        await connection.execute("UPDATE device SET cordoned_at = now() - interval '1801 s'")
        [late] = [row for row in await loss_rows.losses(connection) if row.uuid is not None]
    await database.close()

    assert (early.is_restored, early.are_leases_over, late.are_leases_over) == (True, False, True)


async def test_node_new_to_the_backup_is_held_back(steward: World, postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("INSERT INTO scheduler.restore (backup_at) VALUES (now())")
    await connection.close()

    await steward.add_node("beta", 1)

    view = await steward.waiting(await steward.request(), ReasonCode.CORDONED)
    assert "not known to the backup" in view.reasons[0].message


async def test_same_backup_restored_twice_gives_new_epochs(
    nats_url: str, postgres_dsn: str
) -> None:
    database = Database(postgres_dsn, "scheduler", MIGRATIONS)
    await database.open()
    read = "SELECT value FROM scheduler.epoch"
    await restore(postgres_dsn)
    first = await database.pool.fetchval(read)
    # The same backup once more: whatever was given in between is not in it.
    await database.pool.execute("UPDATE epoch SET value = 7")
    await database.pool.execute("SELECT pg_sleep(1.1)")

    await restore(postgres_dsn)

    assert await database.pool.fetchval(read) >= first + 2**20
    assert await database.pool.fetchval(read) < 2**53  # exact in every client's JSON
    await database.close()


async def test_live_platform_is_not_set_right(steward: World, postgres_dsn: str) -> None:
    await steward.add_node("alpha", 1)

    with pytest.raises(RefusedError, match="stop the platform's services first"):
        await restore(postgres_dsn)
