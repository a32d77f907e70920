"""What the ledger holds of idle reservations; each change with its event, in one transaction."""

from datetime import datetime
from typing import Final

from msgspec.structs import replace

from schemas.scheduler.reservations import experiment_of_holder
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


async def list_held(connection: Connection) -> list[HeldReservation]:
    """List every reservation that holds something on a lease."""
    return [
        HeldReservation(
            reservation_id=row["reservation_id"],
            namespace=row["namespace"],
            of_experiment=bool(experiment_of_holder(row["holder"])),
            warned_at=row["idle_warned_at"],
            preemptible=row["idle_preemptible"],
            exempt_until=row["idle_exempt_until"],
        )
        for row in await connection.fetch(_HELD)
    ]


async def warn(connection: Connection, stored: Reservation, warning: Warned, now: datetime) -> None:
    warned = replace(
        stored,
        revision=stored.revision + 1,
        idle_since=warning.since_at,
        idle_warned_at=now,
        idle_action=warning.action,
        idle_acts_at=warning.acts_at,
    )
    await _write(connection, warned)
    await stage(connection, events.idle_event(warned, warning, now))


async def make_preemptible(connection: Connection, stored: Reservation, now: datetime) -> None:
    preemptible = replace(stored, revision=stored.revision + 1, idle_preemptible=True)
    await _write(connection, preemptible)
    await stage(connection, events.made_preemptible(preemptible, stored.idle_since or now, now))


async def clear(connection: Connection, stored: Reservation, now: datetime) -> None:
    """Forget the warning: it is used again, or exempted."""
    cleared = replace(
        stored,
        revision=stored.revision + 1,
        idle_since=None,
        idle_warned_at=None,
        idle_action=None,
        idle_acts_at=None,
        idle_preemptible=False,
    )
    await _write(connection, cleared)
    await stage(connection, events.active_event(cleared, now))


async def exempt(
    connection: Connection, stored: Reservation, reason: str, until_at: datetime, now: datetime
) -> Reservation:
    exempted = replace(
        stored,
        revision=stored.revision + 1,
        idle_exempt_until=until_at,
        idle_exempt_reason=reason,
    )
    await _write(connection, exempted)
    await stage(connection, events.exempted_event(exempted, reason, until_at, now))
    return exempted


async def _write(connection: Connection, stored: Reservation) -> None:
    await connection.execute(
        _WRITE,
        stored.reservation_id,
        stored.revision,
        stored.idle_since,
        stored.idle_warned_at,
        stored.idle_action.value if stored.idle_action is not None else None,
        stored.idle_acts_at,
        stored.idle_preemptible,
        stored.idle_exempt_until,
        stored.idle_exempt_reason,
    )
