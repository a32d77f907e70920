"""Whoever changes several rows locks them in the order in which everybody does.

Another transaction locks the first of two rows, waits until the change waits for it, and locks the
second one. With that one locked by the change the two wait for each other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from schemas.errors import Accepted
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.devices import CordonCause
from schemas.scheduler.reservations import ReleaseReservation, ReservationGranted, ReservationState
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.faults import Loss, Recovery
from services.scheduler.intake import apply_batch
from services.scheduler.ledger import out_of_service, transitions
from services.scheduler.ledger.rows import loss_rows, node_rows, reservation_rows
from shared.ids import new_id
from shared.postgres.database import Connection, Database
from shared.postgres.writes import Writes
from shared.testing import eventually
from tests.support.worlds.scheduler import ledger, scheduler, world

Change = Callable[[Connection], Awaitable[object]]
IS_WAITING = "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted"
BY_LOSS = CordonCause.NODE_LOST


async def change_beside(database: Database, dsn: str, change: Change, *locks: str) -> None:
    """Make a change while another transaction takes these locks, one before it and one after."""

    async def changed() -> None:
        async with database.transaction() as connection:
            await change(connection)

    first, second = locks
    async with (
        ledger(dsn) as observer,
        ledger(dsn) as other,
        asyncio.TaskGroup() as tasks,
        other.transaction(),
    ):
        await other.execute(first)
        tasks.create_task(changed())
        await eventually(lambda: observer.fetchval(IS_WAITING))
        await other.execute(second)


async def two_devices(dsn: str) -> tuple[int, int]:
    """The devices of node alpha, by number; a scan of table or index finds the second one first."""
    async with ledger(dsn) as connection:
        await connection.execute("INSERT INTO node (node_id) VALUES ('alpha')")
        for name in ("GPU-1", "GPU-0"):
            await connection.execute(
                "INSERT INTO device (node_id, uuid, index, name, simulated, health, cordoned,"
                " cordon_cause, health_detail, link_groups)"
                " VALUES ('alpha', $1, 0, 'H100', true, 'ok', true, $2, '', '{}')",
                name,
                BY_LOSS.value,
            )
        one, two = await connection.fetch("SELECT device_no FROM device ORDER BY device_no")
        await connection.execute(
            "UPDATE device SET releases = releases + 1 WHERE device_no = $1", one["device_no"]
        )
    return one["device_no"], two["device_no"]


async def recovered(connection: Connection) -> None:
    rows = await loss_rows.losses(connection)
    losses = tuple(
        Loss(
            node_id=row.node_id,
            device_no=row.device_no,
            is_well=row.is_well,
            quiet_since=row.quiet_since,
        )
        for row in rows
    )
    now = await reservation_rows.database_now(connection)
    await out_of_service.recover(
        connection, Recovery(new_losses=losses, broken=(), over=losses), now, 60.0
    )


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(
            lambda c: node_rows.write_cordon(c, "alpha", None, CordonCause.OPERATOR, "repair"),
            id="cordon",
        ),
        pytest.param(lambda c: node_rows.write_uncordon(c, "alpha", None), id="uncordon"),
        pytest.param(
            lambda c: node_rows.write_health(c, "alpha", None, HealthState.HUNG, ""), id="health"
        ),
        pytest.param(lambda c: node_rows.remove(c, "alpha"), id="removal"),
        pytest.param(recovered, id="recovery"),
    ],
)
async def test_devices_of_node_are_locked_in_order(
    database: Database, postgres_dsn: str, change: Change
) -> None:
    one, two = await two_devices(postgres_dsn)

    lock = "SELECT 1 FROM device WHERE device_no = {} FOR UPDATE"
    await change_beside(database, postgres_dsn, change, lock.format(one), lock.format(two))


async def test_recovery_locks_node_before_devices(database: Database, postgres_dsn: str) -> None:
    one, _ = await two_devices(postgres_dsn)
    async with ledger(postgres_dsn) as connection:
        await connection.execute("UPDATE node SET cordoned = true, cordon_cause = 'node_lost'")

    await change_beside(
        database,
        postgres_dsn,
        recovered,
        "SELECT 1 FROM node FOR UPDATE",
        f"SELECT 1 FROM device WHERE device_no = {one} FOR UPDATE",
    )


async def gangs(nats_url: str, postgres_dsn: str) -> list[ReservationGranted]:
    """Of beta and gamma, alpha and gamma, alpha and beta; beta's devices have the first numbers.

    No scheduler runs any more.
    """
    async with scheduler(nats_url, postgres_dsn), world(nats_url) as around:
        for node_id in ("beta", "alpha", "gamma"):
            await around.add_node(node_id, 2, executor=False)
        return [
            await around.granted(await around.request(GpuRequest(nodes=2, node_ids=pair)))
            for pair in (("beta", "gamma"), ("alpha", "gamma"), ("alpha", "beta"))
        ]


async def released(connection: Connection, held: Sequence[ReservationGranted]) -> None:
    commands = [
        ReleaseReservation(command_id=new_id(), reservation_id=one.reservation_id, epoch=one.epoch)
        for one in held[:2]
    ]
    writes = Writes()
    applied = await apply_batch.apply(connection, writes, commands)
    await writes.send(connection)
    assert all(isinstance(reply, Accepted) for reply in applied.replies.values())


async def drained(connection: Connection, _held: Sequence[ReservationGranted]) -> None:
    cordon = out_of_service.NewCordon(device_uuid=None, reason="repair")
    ended, _ = await out_of_service.take_out(connection, "gamma", ReservationState.LOST, cordon)
    assert len(ended) == 2


async def cancelled_one(connection: Connection, held: Sequence[ReservationGranted]) -> None:
    stored = await reservation_rows.lock_one(connection, held[2].reservation_id)
    assert stored is not None
    now = await reservation_rows.database_now(connection)
    await transitions.cancel(connection, stored, now, "enough")


@pytest.mark.parametrize("change", [released, drained, cancelled_one])
async def test_nodes_are_changed_in_the_order_of_their_ids(
    nats_url: str,
    postgres_dsn: str,
    database: Database,
    change: Callable[[Connection, Sequence[ReservationGranted]], Awaitable[None]],
) -> None:
    held = await gangs(nats_url, postgres_dsn)

    lock = "SELECT 1 FROM node WHERE node_id = '{}' FOR NO KEY UPDATE"
    await change_beside(
        database,
        postgres_dsn,
        lambda connection: change(connection, held),
        lock.format("alpha"),
        lock.format("beta"),
    )
