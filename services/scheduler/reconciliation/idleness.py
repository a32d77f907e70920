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
            held_reservations = await idle_reservations.list_held(connection)
        update = update_idle(
            held_reservations,
            activities(
                collected.holdings,
                collected.nodes,
                {
                    reservation.reservation_id
                    for reservation in held_reservations
                    if reservation.of_experiment
                },
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
                await _write(connection, update, held_reservations)


async def _write(
    connection: Connection, update: IdleUpdate, decided_on: list[HeldReservation]
) -> None:
    stored = await reservation_rows.lock(connection, update.changes)
    now = await reservation_rows.database_now(connection)
    unchanged = {
        reservation.reservation_id: stored[reservation.reservation_id]
        for reservation in decided_on
        if reservation.reservation_id in stored
        and _is_as_decided(stored[reservation.reservation_id], reservation)
    }
    for warned in update.warned:
        if (reservation := unchanged.get(warned.reservation_id)) is not None:
            await idle_reservations.warn(connection, reservation, warned, now)
            log.warning("reservation_found_idle", reservation_id=str(warned.reservation_id))
    for reservation_id in update.made_preemptible:
        if (reservation := unchanged.get(reservation_id)) is not None:
            await idle_reservations.make_preemptible(connection, reservation, now)
    for reservation_id in update.active:
        if (reservation := unchanged.get(reservation_id)) is not None:
            await idle_reservations.clear(connection, reservation, now)
    for reservation_id in update.released:
        if (reservation := unchanged.get(reservation_id)) is not None:
            since = reservation.idle_since or now
            reason = f"released as idle: nothing has used its GPUs since {since:%F %H:%M:%S} UTC"
            await transitions.begin_release(connection, reservation, reason)
            log.warning("idle_reservation_released", reservation_id=str(reservation_id))


def _is_as_decided(stored: Reservation, held_reservation: HeldReservation) -> bool:
    """Return True if the basis of the decision still holds: the reservation lives and was not
    exempted since.
    """
    return (
        stored.state in transitions.HELD_ON_LEASE
        and stored.idle_warned_at == held_reservation.warned_at
        and stored.idle_exempt_until == held_reservation.exempt_until
    )
