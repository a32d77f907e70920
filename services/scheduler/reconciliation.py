"""The leader's second loop: compares the three ledgers, keeps drifts, and acts on them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final
from uuid import UUID, uuid5

from schemas.base import Event, NodeId
from schemas.executor import FenceReservation
from schemas.scheduler import (
    DriftAction,
    DriftDetected,
    DriftEvent,
    DriftResolved,
    ReservationState,
)
from services.scheduler import drifts, ledger, losses, store
from services.scheduler.domain.drift import Course, Drift, DriftKey, Limits, Suspicion, follow
from services.scheduler.domain.faults import NodeSilence, lost_nodes
from services.scheduler.domain.reconciliation import look_for_drifts
from services.scheduler.leadership import Leadership, LeadershipLost
from services.scheduler.ledgers import LedgerReader, Ledgers
from shared.commands import send_later
from shared.database import Connection, Database
from shared.logging import log
from shared.outbox import stage

_HELD: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})


@dataclass(slots=True)
class Reconciler:
    """Looks every interval while this process leads; `on_changed` hears that devices changed."""

    database: Database
    leadership: Leadership
    reader: LedgerReader
    interval_seconds: float
    node_lost_seconds: float
    on_changed: Callable[[], None]
    _suspicions: Mapping[DriftKey, Suspicion] = field(default_factory=dict)

    async def run(self) -> None:
        """Look until cancelled. Raises UnavailableError while Postgres is away."""
        while True:
            await asyncio.sleep(self.interval_seconds)
            await self.look_once()

    async def look_once(self) -> None:
        """Compare, tell what is new, act on it."""
        can_hear = self.reader.bus.is_connected
        elapsed_seconds = self.reader.hearing.look(can_hear=can_hear)
        if self.leadership.term is None:
            self._suspicions = {}
        if self.leadership.term is None or not can_hear:
            return
        running = await self.reader.ask_executors(await self._executors())
        async with self.database.transaction() as connection:
            seen = await self.reader.read(connection, running)
            known = await drifts.open_drifts(connection)
            now = await store.database_now(connection)
        try:
            await self._lose_silent(seen)
            await self._keep(seen, self._course(seen, known, now, elapsed_seconds), now)
        except LeadershipLost:
            log.warning("leadership_lost")

    async def _executors(self) -> list[NodeId]:
        async with self.database.transaction() as connection:
            rows = await connection.fetch(
                "SELECT node_id FROM node WHERE executor_seen_at IS NOT NULL ORDER BY node_id"
            )
        return [row["node_id"] for row in rows]

    def _course(
        self, seen: Ledgers, known: tuple[Drift, ...], now: datetime, elapsed_seconds: float
    ) -> Course:
        limits: Limits = self.reader.limits
        course = follow(
            known,
            self._suspicions,
            look_for_drifts(seen.holdings, seen.nodes, frozenset(seen.epochs), limits),
            now=now,
            elapsed_seconds=elapsed_seconds,
            limits=limits,
            leases={held.reservation_id: held.lease_ttl_seconds for held in seen.holdings},
        )
        self._suspicions = course.suspicions
        return course

    async def _lose_silent(self, seen: Ledgers) -> None:
        holding = {held.node_id for held in seen.holdings if not held.quarantined}
        silences = [
            NodeSilence(
                node_id=node.node_id,
                seconds=self.reader.hearing.silence(node.node_id),
                was_stopped=node.node_id in seen.stopped,
                holds=node.node_id in holding,
            )
            for node in seen.nodes
            if node.devices and node.node_id not in seen.lost
        ]
        for node_id in lost_nodes(
            silences,
            limit_seconds=self.node_lost_seconds,
            outage_seconds=self.reader.limits.stale_agent_seconds,
        ):
            async with self.database.transaction() as connection:
                await self.leadership.check(connection)
                reason = f"node lost: not heard for {self.node_lost_seconds:g} s"
                await losses.lose_node(connection, node_id, reason)
            self.on_changed()

    async def _keep(self, seen: Ledgers, course: Course, now: datetime) -> None:
        acting = [
            drift
            for drift in (*course.began, *course.lasting)
            if drift.finding.action in {DriftAction.RELEASE, DriftAction.FENCE}
        ]
        if not (course.began or course.changed or course.ended or acting):
            return
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            for drift in acting:
                await _act_on(connection, drift, seen.epochs)
            began = [drift for drift in course.began if await drifts.insert(connection, drift)]
            for drift in course.changed:
                await drifts.update(connection, drift)
            ended = [drift for drift in course.ended if await drifts.end(connection, drift, now)]
            await _tell(connection, DriftDetected, began, now)
            await _tell(connection, DriftResolved, ended, now)
            await drifts.forget_old(connection)
        for drift in began:
            log.warning("drift_detected", kind=drift.finding.kind, detail=drift.finding.detail)
        self.on_changed()


async def _act_on(connection: Connection, drift: Drift, epochs: Mapping[UUID, int]) -> None:
    """Release a ghost, fence an orphan; done again it changes nothing."""
    found = drift.finding
    if found.reservation_id is None:
        return
    if found.action is DriftAction.FENCE:
        await send_later(
            connection,
            FenceReservation(
                command_id=uuid5(drift.drift_id, "fence"),
                executor_id=found.node_id,
                reservation_id=found.reservation_id,
                epoch=epochs.get(found.reservation_id, 1),
            ),
        )
        return
    stored = await store.find(connection, found.reservation_id, lock=True)
    if stored is not None and stored.state in _HELD:
        # Fenced before its devices are free: what was to start there may still be on its way.
        await ledger.begin_release(connection, stored, f"released as a ghost: {found.detail}")


async def _tell(
    connection: Connection, event: type[DriftEvent], told: Iterable[Drift], now: datetime
) -> None:
    events: list[Event] = []
    for drift in sorted(told, key=lambda each: each.finding.node_id):
        found = drift.finding
        revision = await store.next_node_revision(connection, found.node_id)
        events.append(
            event(
                message_id=uuid5(drift.drift_id, event.__name__),
                occurred_at=now,
                revision=revision,
                node_id=found.node_id,
                drift=found.kind,
                device_uuid=found.device_uuid,
                reservation_id=found.reservation_id,
                detail=found.detail,
                drift_id=drift.drift_id,
                since_at=drift.since_at,
                action=found.action,
                pids=found.pids,
            )
        )
    await stage(connection, *events)
