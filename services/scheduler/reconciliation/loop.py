"""The leader's second loop: compares what is reserved, runs and is used, and acts on drifts."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID, uuid5

from schemas.base import Event
from schemas.executor.attempts import FenceReservation
from schemas.scheduler.drifts import DriftAction, DriftDetected, DriftEvent, DriftResolved
from services.scheduler.domain.drift.detection import compare_ledgers
from services.scheduler.domain.drift.lifecycle import (
    Drift,
    DriftKey,
    DriftUpdate,
    Limits,
    Suspicion,
    update_drifts,
)
from services.scheduler.domain.faults import NodeSilence, lost_nodes, recovery
from services.scheduler.ledger import events, out_of_service, transitions
from services.scheduler.ledger.leader_election import Leadership, LeadershipLost
from services.scheduler.ledger.lock_order import lock_nodes
from services.scheduler.ledger.rows import drift_rows, node_rows, reservation_rows
from services.scheduler.reconciliation.collect import Collected, Collector
from services.scheduler.reconciliation.idleness import IdleWatch
from shared.logging import log
from shared.postgres.commands import send_later
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage


@dataclass(slots=True)
class Reconciler:
    """Compares every interval while this process leads."""

    database: Database
    leadership: Leadership
    collector: Collector
    interval_seconds: float
    node_lost_seconds: float
    quiet_seconds: float
    idleness: IdleWatch
    _suspicions: Mapping[DriftKey, Suspicion] = field(default_factory=dict)

    async def run(self) -> None:
        """Compare until cancelled. Raises UnavailableError while Postgres is away."""
        while True:
            await asyncio.sleep(self.interval_seconds)
            await self.reconcile()

    async def reconcile(self) -> None:
        """Compare once, report what is new, act on it."""
        is_connected = self.collector.bus.is_connected
        elapsed_seconds = self.collector.liveness.check(is_connected=is_connected)
        if self.leadership.term is None:
            self._suspicions = {}
            self.idleness.forget()
        if self.leadership.term is None or not is_connected:
            return
        async with self.database.transaction() as connection:
            nodes = await node_rows.statuses(connection)
        running = await self.collector.query_executors(n.node_id for n in nodes if n.has_executor)
        async with self.database.transaction() as connection:
            collected = await self.collector.read(connection, running)
            open_drifts = await drift_rows.find(connection)
            now = await reservation_rows.database_now(connection)
        try:
            await self._lose_silent(collected)
            update = self._update(collected, open_drifts, now, elapsed_seconds)
            await self._apply(collected, update, now)
            await self._recover(collected, now)
            await self.idleness.judge(collected, now, elapsed_seconds)
        except LeadershipLost:
            log.warning("leadership_lost")

    def _update(
        self,
        collected: Collected,
        open_drifts: tuple[Drift, ...],
        now: datetime,
        elapsed_seconds: float,
    ) -> DriftUpdate:
        limits: Limits = self.collector.limits
        update = update_drifts(
            open_drifts,
            self._suspicions,
            compare_ledgers(
                collected.holdings, collected.nodes, frozenset(collected.epochs), limits
            ),
            now=now,
            elapsed_seconds=elapsed_seconds,
            limits=limits,
            leases={
                holding.reservation_id: holding.lease_ttl_seconds for holding in collected.holdings
            },
        )
        self._suspicions = update.suspicions
        return update

    async def _lose_silent(self, collected: Collected) -> None:
        silences = [
            NodeSilence(
                node_id=node.node_id,
                seconds=self.collector.liveness.silence(node.node_id),
                was_stopped=node.was_stopped,
            )
            for node in collected.nodes
            if node.devices and node.node_id not in collected.lost
        ]
        stopped = {silence.node_id for silence in silences if silence.was_stopped}
        for node_id in lost_nodes(
            silences,
            limit_seconds=self.node_lost_seconds,
            outage_seconds=self.collector.limits.stale_agent_seconds,
        ):
            async with self.database.transaction() as connection:
                await self.leadership.check(connection)
                stop_text = "its agent has stopped, " if node_id in stopped else ""
                reason = f"node lost: {stop_text}not heard for {self.node_lost_seconds:g} s"
                await out_of_service.lose_node(connection, node_id, reason)

    async def _recover(self, collected: Collected, now: datetime) -> None:
        decided = recovery(collected.losses, now=now, quiet_seconds=self.quiet_seconds)
        if decided.new_losses or decided.broken or decided.over:
            async with self.database.transaction() as connection:
                await self.leadership.check(connection)
                await out_of_service.recover(connection, decided, now, self.quiet_seconds)

    async def _apply(self, collected: Collected, update: DriftUpdate, now: datetime) -> None:
        acting = [
            drift
            for drift in (*update.new_drifts, *update.lasting)
            if drift.finding.action in {DriftAction.RELEASE, DriftAction.FENCE}
        ]
        if not (update.new_drifts or update.changed or update.ended or acting):
            return
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            await _lock(connection, acting, (*update.new_drifts, *update.ended))
            for drift in acting:
                await _act_on(connection, drift, collected.epochs)
            new_drifts = [
                drift for drift in update.new_drifts if await drift_rows.insert(connection, drift)
            ]
            for drift in update.changed:
                await drift_rows.update(connection, drift)
            ended = [
                drift for drift in update.ended if await drift_rows.end(connection, drift, now)
            ]
            await _stage(connection, DriftDetected, new_drifts, now)
            await _stage(connection, DriftResolved, ended, now)
            await drift_rows.delete_ended(connection)
        for drift in new_drifts:
            log.warning("drift_detected", kind=drift.finding.kind, detail=drift.finding.detail)


async def _lock(connection: Connection, acting: Iterable[Drift], reported: Iterable[Drift]) -> None:
    """Lock what acting on drifts and reporting others changes, before the first change."""
    ids = {drift.finding.reservation_id for drift in acting}
    stored = await reservation_rows.lock(
        connection, [reservation_id for reservation_id in ids if reservation_id is not None]
    )
    nodes = {node_id for reservation in stored.values() for node_id in reservation.node_ids}
    await lock_nodes(connection, nodes | {drift.finding.node_id for drift in reported})


async def _act_on(connection: Connection, drift: Drift, epochs: Mapping[UUID, int]) -> None:
    """Release a ghost, fence an orphan; done again it changes nothing."""
    finding = drift.finding
    if finding.reservation_id is None:
        return
    if finding.action is DriftAction.FENCE:
        await send_later(
            connection,
            FenceReservation(
                command_id=uuid5(drift.drift_id, "fence"),
                executor_id=finding.node_id,
                reservation_id=finding.reservation_id,
                epoch=epochs.get(finding.reservation_id, 1),
            ),
        )
        return
    stored = await reservation_rows.lock_one(connection, finding.reservation_id)
    if stored is not None and stored.state in transitions.HELD_ON_LEASE:
        # Fenced before its devices are free: what was to start there may still be on its way.
        await transitions.begin_release(
            connection, stored, f"released as a ghost: {finding.detail}"
        )


async def _stage(
    connection: Connection, event: type[DriftEvent], drifts: Iterable[Drift], now: datetime
) -> None:
    staged: list[Event] = []
    for drift in sorted(drifts, key=lambda drift: drift.finding.node_id):
        revision = await node_rows.next_revision(connection, drift.finding.node_id)
        staged.append(events.drift(event, drift, revision, now))
    await stage(connection, *staged)
