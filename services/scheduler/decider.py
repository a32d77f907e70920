"""The leader's loop: take over what is new, decide, commit, sleep until something can change."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID

import asyncpg
import msgspec

from services.scheduler import decisions as decision_log
from services.scheduler import grants, ledger, store
from services.scheduler.changes import Look
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.policy import Policy
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.leadership import Leadership, LeadershipLost
from services.scheduler.ledger import LedgerChanged
from services.scheduler.live_engine import LiveEngine
from services.scheduler.readings import DeviceKey
from services.scheduler.store import Row
from shared.database import Connection, Database
from shared.errors import UnavailableError
from shared.logging import log

SAFETY_SECONDS: Final = 1.0
SHORTEST_SECONDS: Final = 0.005  # a moment that has just come is not asked for again and again
LONGEST_GAP_SECONDS: Final = 60.0  # changes are kept for longer than this
DROPS_IN_A_ROW: Final = 5


@dataclass(slots=True)
class Decider:
    """Decides while this process leads. Whatever changes a decision calls `wake`."""

    database: Database
    leadership: Leadership
    reader: FleetReader
    policy: Policy
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: set[DeviceKey] = field(default_factory=set)
    _live: LiveEngine | None = None
    _term: int | None = None
    _looked_at: datetime | None = None
    _records: int = 0
    _renew_at_seconds: float = 0.0
    _drops: int = 0

    def wake(self) -> None:
        """Look again now."""
        self._woken.set()

    def note_readings(self, changed: frozenset[DeviceKey]) -> None:
        """Look again if somebody waits and one of these devices could serve him."""
        self._changed |= changed
        live = self._live
        if live is not None and live.engine.queue_length and live.mirror.has_free(changed):
            self._woken.set()

    def note_released(self, devices: Sequence[Row]) -> None:
        """Have devices read at once that were just given back, without waiting for the look."""
        if devices and self._live is not None:
            self.reader.ask_for_released(devices)

    async def run(self) -> None:
        """Decide until cancelled. Raises UnavailableError while Postgres is away."""
        try:
            while True:
                self._woken.clear()
                pause = await self._turn()
                if pause > 0:
                    # Not wait_for: until Python 3.12 it forgets a cancellation that meets the
                    # wake-up.
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._woken.wait()
        finally:
            self._live = None

    async def _turn(self) -> float:
        """One look and what follows from it; how long to sleep if nothing happens."""
        try:
            if not await self._leads():
                self._live = None
                return SAFETY_SECONDS
            return await self._decide(await self._load())
        except LeadershipLost:
            log.warning("leadership_lost")
            self._live = None
            return SAFETY_SECONDS
        except (LedgerChanged, asyncpg.IntegrityConstraintViolationError) as error:
            log.info("decision_dropped", error=str(error))
            self._live = None
            self._drops += 1
            return 0.0 if self._drops < DROPS_IN_A_ROW else SAFETY_SECONDS
        except asyncpg.IdleInTransactionSessionTimeoutError as error:
            raise UnavailableError(f"postgres: {error!r}") from error

    async def _leads(self) -> bool:
        now = asyncio.get_running_loop().time()
        if self.leadership.term is None or now >= self._renew_at_seconds:
            await self.leadership.hold()
            self._renew_at_seconds = now + self.leadership.ttl_seconds / 3
        return self.leadership.term is not None

    async def _load(self) -> LiveEngine:
        if self._live is None or self._term != self.leadership.term:
            self._term = self.leadership.term
            self._looked_at = None
            self._live = await LiveEngine.load(self.database, self.reader, self.policy)
        return self._live

    async def _decide(self, live: LiveEngine) -> float:
        seen = await live.catch_up()
        if self._looked_at is not None and _seconds(self._looked_at, seen) > LONGEST_GAP_SECONDS:
            self._live = None
            return 0.0
        self._looked_at = seen.now
        if seen.expired or seen.preempted:
            await self._end_overdue(seen)
            return 0.0
        if live.engine.queue_length:
            changed, self._changed = self._changed, set()
            live.refresh(changed)
            if decided := live.engine.decide(seen.now):
                await self._commit(live, decided, seen.now)
        self._drops = 0
        return _pause(live, seen)

    async def _end_overdue(self, seen: Look) -> None:
        """End what was not renewed in time or has had its notice; the next look takes it in."""
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            stored = await store.find_locked(connection, {*seen.expired, *seen.preempted})
            for reservation_id in seen.expired:
                await ledger.expire(connection, stored[reservation_id], seen.now)
            for reservation_id in set(seen.preempted) - set(seen.expired):
                await ledger.finish_preemption(connection, stored[reservation_id], seen.now)
        for what, ids in (("leases_expired", seen.expired), ("preempted", seen.preempted)):
            if ids:
                log.warning(what, reservation_ids=[str(one) for one in ids])

    async def _commit(self, live: LiveEngine, decided: Sequence[Decision], now: datetime) -> None:
        """Carry out everything that was decided, or nothing."""
        async with self.database.transaction() as connection:
            xid = await self.leadership.check(connection)
            await grants.carry_out(connection, decided, now)
            await self._record(connection, live, decided, now)
        live.committed(decided, xid)
        self._records += 1
        is_keyframe_due = self._records % decision_log.KEYFRAME_EVERY == 0
        live.journal.start_anew(live.engine.state() if is_keyframe_due else ())

    async def _record(
        self, connection: Connection, live: LiveEngine, decided: Sequence[Decision], now: datetime
    ) -> None:
        ids: list[UUID] = [decision.reservation_id for decision in decided]
        await decision_log.record(
            connection,
            term=self._term or 0,
            decided_at=now,
            keyframe=live.journal.is_keyframe,
            inputs=live.journal.encoded(),
            outcomes=_json(decided),
            reservation_ids=ids,
            policy=_json(live.engine.policy) if live.journal.is_keyframe else None,
        )


def _json(told: object) -> str:
    return msgspec.json.encode(told).decode()


def _seconds(before: datetime, seen: Look) -> float:
    return abs((seen.now - before).total_seconds())


def _pause(live: LiveEngine, seen: Look) -> float:
    """Until time alone changes something, at most until the next look for safety."""
    ends = (live.engine.next_decision_at(seen.now), seen.next_end_at)
    left = [(at - seen.now).total_seconds() for at in ends if at is not None]
    return max(SHORTEST_SECONDS, min([SAFETY_SECONDS, *left]))
