"""The leader's loop: look at fleet and queue, decide, commit, sleep until something can change."""

import asyncio
import contextlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
from msgspec import Struct

from schemas.scheduler import ReservationState
from services.scheduler import ledger, store
from services.scheduler.domain.fleet import Fleet
from services.scheduler.domain.placement import Weights
from services.scheduler.domain.queue import Grant, Outcome, QueuedRequest, TimeOut, Wait, decide
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.leadership import Leadership, LeadershipLost
from services.scheduler.ledger import LedgerChanged
from services.scheduler.readings import DeviceKey
from services.scheduler.store import Reservation
from shared.database import Connection, Database
from shared.errors import UnavailableError
from shared.logging import log

SAFETY_SECONDS: Final = 1.0
DROPS_IN_A_ROW: Final = 5


class Snapshot(Struct, frozen=True, kw_only=True):
    """What one decision is made on. `leases` end soonest first."""

    now: datetime
    fleet: Fleet
    queue: tuple[QueuedRequest, ...]
    leases: tuple[tuple[UUID, datetime], ...]

    @property
    def expired(self) -> tuple[UUID, ...]:
        """Reservations whose lease has run out."""
        return tuple(reservation_id for reservation_id, at in self.leases if at <= self.now)

    def seconds_to_next_deadline(self) -> float:
        """Until a wait or a lease ends, at most until the next look for safety."""
        ends = [entry.wait_deadline_at for entry in self.queue] + [at for _, at in self.leases]
        left = [(at - self.now).total_seconds() for at in ends if at > self.now]
        return min([SAFETY_SECONDS, *left])


@dataclass(slots=True)
class Decider:
    """Decides while this process leads. Whatever changes a decision calls `wake`."""

    database: Database
    leadership: Leadership
    reader: FleetReader
    weights: Weights
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _free: frozenset[DeviceKey] = frozenset()
    _waiting: int = 0
    _renew_at_seconds: float = 0.0
    _drops: int = 0

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()

    def note_readings(self, changed: frozenset[DeviceKey]) -> None:
        """Look again if somebody waits and one of these devices could serve him."""
        if self._waiting and not changed.isdisjoint(self._free):
            self._woken.set()

    async def run(self) -> None:
        """Decide until cancelled. Raises UnavailableError while Postgres is away."""
        while True:
            self._woken.clear()
            pause = await self._turn()
            if pause > 0:
                # Not wait_for: until Python 3.12 it forgets a cancellation that meets the wake-up.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._woken.wait()

    async def _turn(self) -> float:
        """One look and what follows from it; how long to sleep if nothing happens."""
        if not await self._leads():
            return SAFETY_SECONDS
        seen = await self._look()
        outcomes = decide(seen.fleet, seen.queue, seen.now, self.weights)
        try:
            await self._apply(seen, outcomes)
        except LeadershipLost:
            log.warning("leadership_lost")
            return SAFETY_SECONDS
        except (LedgerChanged, asyncpg.ExclusionViolationError) as error:
            log.info("decision_dropped", error=str(error))
            self._drops += 1
            return 0.0 if self._drops < DROPS_IN_A_ROW else SAFETY_SECONDS
        except asyncpg.IdleInTransactionSessionTimeoutError as error:
            raise UnavailableError(f"postgres: {error!r}") from error
        self._drops = 0
        self._remember(seen.fleet, outcomes)
        return seen.seconds_to_next_deadline()

    async def _leads(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self.leadership.term is None or now >= self._renew_at_seconds:
            await self.leadership.hold()
            self._renew_at_seconds = now + self.leadership.ttl_seconds / 3
        return self.leadership.term is not None

    async def _look(self) -> Snapshot:
        async with self.database.transaction() as connection:
            return Snapshot(
                now=await store.database_now(connection),
                queue=tuple(await store.queued(connection)),
                leases=tuple(await store.leases(connection)),
                fleet=await self.reader.read(connection),
            )

    async def _apply(self, seen: Snapshot, outcomes: tuple[Outcome, ...]) -> None:
        """Commit everything that was decided, or nothing."""
        changes = {o.reservation_id: o for o in outcomes if not isinstance(o, Wait)}
        if not changes and not seen.expired:
            return
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            stored = await store.find_locked(connection, [*changes, *seen.expired])
            for reservation_id in seen.expired:
                await ledger.expire(connection, stored[reservation_id], seen.now)
            for reservation_id, outcome in changes.items():
                await _carry_out(connection, stored[reservation_id], outcome, seen.now)
        if seen.expired:
            log.warning("leases_expired", reservation_ids=[str(i) for i in seen.expired])

    def _remember(self, fleet: Fleet, outcomes: tuple[Outcome, ...]) -> None:
        self._waiting = sum(isinstance(outcome, Wait) for outcome in outcomes)
        self._free = frozenset(
            (device.node_id, device.uuid)
            for devices in fleet.nodes.values()
            for device in devices
            if device.holder is None
        )


async def _carry_out(
    connection: Connection, stored: Reservation, outcome: Outcome, now: datetime
) -> None:
    if isinstance(outcome, Grant):
        await ledger.grant(connection, stored, outcome.placed, now)
        return
    if isinstance(outcome, Wait):
        return
    if stored.state is not ReservationState.QUEUED:
        raise LedgerChanged(f"reservation {stored.reservation_id} is {stored.state.value}")
    timed_out = isinstance(outcome, TimeOut)
    await ledger.end(
        connection,
        stored,
        ReservationState.TIMED_OUT if timed_out else ReservationState.REJECTED,
        now,
        reason="waited as long as asked" if timed_out else "can never fit on this fleet",
        reasons=outcome.reasons,
    )
