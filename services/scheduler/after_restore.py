"""Makes a ledger that came from a backup safe to decide on: fences what ran, trusts no node yet.

What was granted after the backup is in no ledger. Its holders stop when their leases are over,
which nobody renews; until then, and until their nodes have reported what runs there, nothing is
granted.
"""

import asyncio
from datetime import datetime
from typing import Final

from schemas.errors import ErrorCode
from schemas.scheduler.devices import LOSSES, CordonCause, DeviceCordoned
from schemas.scheduler.reservations import ReservationState
from services.scheduler.ledger import transitions
from services.scheduler.ledger.leader_election import pause_decisions
from services.scheduler.ledger.migrations import MIGRATIONS
from services.scheduler.ledger.restoring import (
    CORDON_DEVICES,
    CORDON_NODES,
    DEPOSE,
    FORGET_CHANGES,
    HELD,
    LED_SECONDS,
    NOTE,
    RAISE_EPOCH,
    WAIT_ON,
)
from services.scheduler.ledger.rows import holding_rows, reservation_rows
from shared.errors import RefusedError
from shared.postgres import after_restore
from shared.postgres.database import Connection

MAX_WAIT_SECONDS: Final = 5.0  # for the term that the backup's own leader had left


async def set_right(connection: Connection, backup_at: datetime) -> dict[str, int]:
    """End what was held, cordon every node until it is accounted for, and raise the epochs.

    Raises RefusedError where a scheduler decides on this ledger.
    """
    await _depose(connection)
    await connection.execute(FORGET_CHANGES)
    await connection.execute(RAISE_EPOCH)
    reason = f"the platform was restored from a backup of {backup_at:%Y-%m-%d %H:%M:%S} UTC"
    ended = await _fence(connection, reason)
    await connection.execute(WAIT_ON, backup_at)
    await connection.execute(NOTE, backup_at)
    cordon = (CordonCause.RESTORED.value, reason, sorted(cause.value for cause in LOSSES))
    await connection.execute(CORDON_NODES, *cordon)
    devices = holding_rows.by_number(await connection.fetch(CORDON_DEVICES, *cordon))
    await transitions.stage_device_events(connection, DeviceCordoned, devices, None, reason)
    return {"reservations_fenced": ended, "devices_awaited": len(devices)}


async def _depose(connection: Connection) -> None:
    led_seconds = await connection.fetchval(LED_SECONDS)
    if led_seconds > 0:
        await asyncio.sleep(min(led_seconds, MAX_WAIT_SECONDS))
    await pause_decisions(connection)
    if await connection.fetchval(LED_SECONDS) > 0:
        message = "a scheduler still decides on this database: stop the platform's services first"
        raise RefusedError(ErrorCode.CONFLICT, message)
    await connection.execute(DEPOSE)


async def _fence(connection: Connection, reason: str) -> int:
    """End all that was granted as lost: its devices wait until their nodes confirm the stop."""
    states = [state.value for state in transitions.HELD_ON_LEASE]
    rows = await connection.fetch(HELD, states)
    stored = await reservation_rows.lock(connection, [row["reservation_id"] for row in rows])
    await transitions.lock_nodes_of(connection, stored.values())
    now = await reservation_rows.database_now(connection)
    for reservation in stored.values():
        lost = await transitions.end(
            connection, reservation, ReservationState.LOST, now, reason=reason
        )
        await transitions.quarantine(connection, lost, reason)
    return len(stored)


if __name__ == "__main__":
    after_restore.run("scheduler", MIGRATIONS, set_right)
