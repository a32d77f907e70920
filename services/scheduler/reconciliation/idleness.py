"""Reservations that nothing uses: warned, then given up or made preemptible."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from services.scheduler.domain.idle import (
    HeldReservation,
    IdlePolicy,
    IdleUpdate,
    activities,
    update_idle,
)
from services.scheduler.ledger import idle_reservations, transitions
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import reservation_rows
from services.scheduler.ledger.rows.reservation_rows import Reservation
from services.scheduler.reconciliation.collect import Collected
from shared.logging import log
from shared.postgres.database import Connection, Database


@dataclass(slots=True)
class IdleWatch:
    """Counts quiet time while this process leads; what was warned of is in the ledger."""

    database: Database
    leadership: Leadership
    policy: IdlePolicy
    _quiet_seconds: Mapping[UUID, float] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin every window anew: this process does not lead."""
        self._quiet_seconds = {}

    async def judge(self, collected: Collected, now: datetime, elapsed_seconds: float) -> None:
        """Compare once, write what follows. Raises LeadershipLost."""
        async with self.database.transaction() as connection:
            held = await idle_reservations.held(connection)
        update = update_idle(
            held,
            activities(
                collected.holdings,
                collected.nodes,
                {each.reservation_id for each in held if each.of_experiment},
                collected.engines,
                idle_percent=self.policy.idle_percent,
            ),
            self._quiet_seconds,
            now=now,
            elapsed_seconds=elapsed_seconds,
            policy=self.policy,
        )
        self._quiet_seconds = update.quiet_seconds
        if update.changes:
            async with self.database.transaction() as connection:
                await self.leadership.check(connection)
                await _write(connection, update, held)


async def _write(
    connection: Connection, update: IdleUpdate, decided_on: list[HeldReservation]
) -> None:
    stored = await reservation_rows.lock(connection, update.changes)
    now = await reservation_rows.database_now(connection)
    unchanged = {
        each.reservation_id: stored[each.reservation_id]
        for each in decided_on
        if each.reservation_id in stored and _is_as_decided(stored[each.reservation_id], each)
    }
    for warned in update.warned:
        if (found := unchanged.get(warned.reservation_id)) is not None:
            await idle_reservations.warn(connection, found, warned, now)
            log.warning("reservation_found_idle", reservation_id=str(warned.reservation_id))
    for reservation_id in update.made_preemptible:
        if (found := unchanged.get(reservation_id)) is not None:
            await idle_reservations.make_preemptible(connection, found, now)
    for reservation_id in update.active:
        if (found := unchanged.get(reservation_id)) is not None:
            await idle_reservations.clear(connection, found, now)
    for reservation_id in update.released:
        if (found := unchanged.get(reservation_id)) is not None:
            since = found.idle_since or now
            reason = f"released as idle: nothing has used its GPUs since {since:%F %H:%M:%S} UTC"
            await transitions.begin_release(connection, found, reason)
            log.warning("idle_reservation_released", reservation_id=str(reservation_id))


def _is_as_decided(stored: Reservation, held: HeldReservation) -> bool:
    """Whether what was decided on is still so: it lives, and no exemption came in between."""
    return (
        stored.state in transitions.HELD_ON_LEASE
        and stored.idle_warned_at == held.warned_at
        and stored.idle_exempt_until == held.exempt_until
    )
