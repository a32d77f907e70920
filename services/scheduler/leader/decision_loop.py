"""The leader's loop: catch up with the ledger, decide, commit, sleep until something can change."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import asyncpg

from services.scheduler.domain.placement.decisions import Decision
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.leader.cluster_decisions import ClusterDecisions
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.leader.live_engine import LiveEngine
from services.scheduler.ledger import apply_decisions, decision_log, transitions
from services.scheduler.ledger.change_feed import Changes
from services.scheduler.ledger.leader_election import Leadership, LeadershipLost
from services.scheduler.ledger.rows import reservation_rows
from services.scheduler.ledger.rows.holding_rows import ReleasedDevice
from services.scheduler.ledger.transitions import LedgerChanged
from services.scheduler.observations.latest_readings import DeviceKey
from shared.errors import UnavailableError
from shared.logging import log
from shared.postgres.database import Database, to_json
from shared.postgres.writes import Writes
from shared.waiting import cancel_and_wait, wait_for

POLL_SECONDS: Final = 1.0  # the longest pause: a wake-up may be lost
SHORTEST_SECONDS: Final = 0.005  # a moment that has just come is not polled for again and again
DROPS_IN_A_ROW: Final = 5
LONGEST_CYCLE_SECONDS: Final = 30.0


@dataclass(slots=True)
class DecisionLoop:
    """Decides while this process leads.

    A change of the ledger wakes it, a reading of a free device while a request is queued, and a
    change of a cluster while a request for its GPUs is.
    """

    database: Database
    leadership: Leadership
    reader: FleetReader
    policy: Policy
    clusters: ClusterDecisions
    _live: LiveEngine = field(init=False)
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _changed: set[DeviceKey] = field(default_factory=set)
    _term: int | None = None
    _records: int = 0
    _began_at_seconds: float = 0.0
    _drops: int = 0

    def __post_init__(self) -> None:
        self._live = LiveEngine(self.database, self.reader, self.policy)
        self.reader.readings.subscribe(self._on_readings)
        self.clusters.views.subscribe(self._on_cluster)

    def wake(self) -> None:
        """Begin the next cycle now."""
        self._woken.set()

    def request_snapshots(self, released: Sequence[ReleasedDevice]) -> None:
        """Have devices read at once that were just given back, before the next cycle finds them."""
        if self._live.is_loaded:
            self.reader.snapshots.request(released)

    async def run(self) -> None:
        """Decide until cancelled. Raises UnavailableError while Postgres is away."""
        renewing = asyncio.create_task(self._keep_renewing(), name="renew_leadership")
        try:
            while True:
                self._woken.clear()
                self._began_at_seconds = asyncio.get_running_loop().time()
                pause = await self._cycle()
                if pause > 0:
                    await wait_for(self._woken, pause)
        finally:
            await cancel_and_wait(renewing)
            self._live.discard()

    async def _keep_renewing(self) -> None:
        """Renew the leadership, also during a long cycle: one that loads a large fleet, or grants
        much at once. One that hangs loses it.
        """
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self.leadership.ttl_seconds / 3)
            if loop.time() - self._began_at_seconds < LONGEST_CYCLE_SECONDS:
                with suppress(UnavailableError):  # the cycle finds out for itself
                    await self.leadership.renew()

    async def _cycle(self) -> float:
        """Run one cycle; return how long to sleep if nothing happens."""
        try:
            # 1. Lead, or leave it to the process that does.
            if self.leadership.term is None and not await self.leadership.hold():
                self._live.discard()
                return POLL_SECONDS
            return await self._decide()
        except LeadershipLost:
            log.warning("leadership_lost")
            self._live.discard()
            return POLL_SECONDS
        except (LedgerChanged, asyncpg.IntegrityConstraintViolationError) as error:
            log.info("decision_dropped", error=str(error))
            self._live.discard()
            self._drops += 1
            return 0.0 if self._drops < DROPS_IN_A_ROW else POLL_SECONDS

    async def _decide(self) -> float:
        live = self._live
        # 2. Catch up with the ledger; in a new term, load all of it.
        if self._term != self.leadership.term:
            self._term = self.leadership.term
            live.discard()
        changes = await live.catch_up()
        # 3. End what time has ended. The next cycle finds it as a change of the ledger.
        if changes.expired or changes.preempted:
            await self._end_overdue(changes)
            return 0.0
        # 4. Serve what is queued for clusters, which the engine knows nothing of.
        if live.feed.awaits_cluster and await self.clusters.decide():
            return 0.0
        if live.engine.queue_length:
            # 5. Apply the newest readings: nothing else needs them.
            changed, self._changed = self._changed, set()
            live.apply_readings(changed)
            # 6. Decide, in memory.
            if decided := live.engine.decide(changes.now):
                # 7. Commit all of it or nothing. Only then the engine may keep what it decided;
                # after any error it is discarded.
                await self._commit(decided, changes.now)
        self._drops = 0
        # 8. Sleep until time alone may change something.
        return _pause(live, changes)

    async def _end_overdue(self, changes: Changes) -> None:
        """End what was not renewed in time, and what was to stop by now."""
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            stored = await reservation_rows.lock(connection, {*changes.expired, *changes.preempted})
            await transitions.lock_nodes_of(connection, stored.values())
            for reservation_id in changes.expired:
                await transitions.expire(connection, stored[reservation_id], changes.now)
            for reservation_id in set(changes.preempted) - set(changes.expired):
                await transitions.finish_preemption(connection, stored[reservation_id], changes.now)
        for what, ids in (("leases_expired", changes.expired), ("preempted", changes.preempted)):
            if ids:
                log.warning(what, reservation_ids=[str(reservation_id) for reservation_id in ids])

    async def _commit(self, decided: Sequence[Decision], now: datetime) -> None:
        live = self._live
        async with self.database.transaction() as connection:
            writes = Writes()
            xid = await apply_decisions.apply(connection, writes, self.leadership, decided, now)
            await decision_log.record(
                writes,
                term=self._term or 0,
                decided_at=now,
                keyframe=live.journal.is_keyframe,
                inputs=live.journal.encode(),
                outcomes=to_json(decided),
                reservation_ids=[decision.reservation_id for decision in decided],
                policy=to_json(live.engine.policy) if live.journal.is_keyframe else None,
            )
            await writes.send(connection)
        live.commit(decided, xid)
        self._records += 1
        is_keyframe_due = self._records % decision_log.KEYFRAME_EVERY == 0
        live.journal.restart(live.engine.state() if is_keyframe_due else ())

    def _on_readings(self, changed: frozenset[DeviceKey]) -> None:
        """Wake if a request is queued and one of these devices is free."""
        self._changed |= changed
        live = self._live
        if live.is_loaded and live.engine.queue_length and live.feed.has_free(changed):
            self._woken.set()

    def _on_cluster(self) -> None:
        if self._live.is_loaded and self._live.feed.awaits_cluster:
            self._woken.set()


def _pause(live: LiveEngine, changes: Changes) -> float:
    ends = (live.engine.next_decision_at(changes.now), changes.next_end_at)
    seconds_left = [(at - changes.now).total_seconds() for at in ends if at is not None]
    return max(SHORTEST_SECONDS, min([POLL_SECONDS, *seconds_left]))
