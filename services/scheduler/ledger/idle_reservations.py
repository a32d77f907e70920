"""What the ledger holds of idle reservations; each change with its event, in one transaction."""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from schemas.scheduler.reservations import held_for_experiment
from services.scheduler.domain.idle import HeldReservation, Warned
from services.scheduler.ledger import events
from services.scheduler.ledger.rows.reservation_rows import Reservation
from shared.postgres.database import Connection
from shared.postgres.outbox import stage

_HELD: Final = """
SELECT reservation_id, namespace, holder, idle_warned_at, idle_preemptible, idle_exempt_until
FROM reservation WHERE state IN ('granted', 'active') ORDER BY reservation_id
"""
_WRITE: Final = """
UPDATE reservation SET revision = $2, idle_since = $3, idle_warned_at = $4, idle_action = $5,
    idle_acts_at = $6, idle_preemptible = $7, idle_exempt_until = $8, idle_exempt_reason = $9
WHERE reservation_id = $1
"""


async def held(connection: Connection) -> list[HeldReservation]:
    """Every reservation that holds something on a lease."""
    return [
        HeldReservation(
            reservation_id=row["reservation_id"],
            namespace=row["namespace"],
            of_experiment=bool(held_for_experiment(row["holder"])),
            warned_at=row["idle_warned_at"],
            preemptible=row["idle_preemptible"],
            exempt_until=row["idle_exempt_until"],
        )
        for row in await connection.fetch(_HELD)
    ]


async def warn(connection: Connection, stored: Reservation, found: Warned, now: datetime) -> None:
    after = replace(
        stored,
        revision=stored.revision + 1,
        idle_since=found.since_at,
        idle_warned_at=now,
        idle_action=found.action,
        idle_acts_at=found.acts_at,
    )
    await _write(connection, after)
    await stage(connection, events.found_idle(after, found, now))


async def make_preemptible(connection: Connection, stored: Reservation, now: datetime) -> None:
    after = replace(stored, revision=stored.revision + 1, idle_preemptible=True)
    await _write(connection, after)
    await stage(connection, events.made_preemptible(after, stored.idle_since or now, now))


async def clear(connection: Connection, stored: Reservation, now: datetime) -> None:
    """It is used again, or exempted."""
    after = replace(
        stored,
        revision=stored.revision + 1,
        idle_since=None,
        idle_warned_at=None,
        idle_action=None,
        idle_acts_at=None,
        idle_preemptible=False,
    )
    await _write(connection, after)
    await stage(connection, events.found_active(after, now))


async def exempt(
    connection: Connection, stored: Reservation, reason: str, until_at: datetime, now: datetime
) -> Reservation:
    after = replace(
        stored,
        revision=stored.revision + 1,
        idle_exempt_until=until_at,
        idle_exempt_reason=reason,
    )
    await _write(connection, after)
    await stage(connection, events.exempted(after, reason, until_at, now))
    return after


async def _write(connection: Connection, after: Reservation) -> None:
    await connection.execute(
        _WRITE,
        after.reservation_id,
        after.revision,
        after.idle_since,
        after.idle_warned_at,
        after.idle_action.value if after.idle_action is not None else None,
        after.idle_acts_at,
        after.idle_preemptible,
        after.idle_exempt_until,
        after.idle_exempt_reason,
    )
