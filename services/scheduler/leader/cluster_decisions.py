"""Requests for GPUs of Kubernetes clusters, decided beside the engine on what the ledger holds.

All of it is read and written in one transaction that has locked the leader's row, so one choice
sees what the one before has taken, and an operator's command comes before or after it.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.clusters.choice import Choice, Cluster, ClusterFleet, selection
from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.domain.placement.reasons import WAIT_TIMED_OUT
from services.scheduler.ledger import events
from services.scheduler.ledger.leader_election import Leadership
from services.scheduler.ledger.rows import cluster_rows, reservation_rows
from services.scheduler.ledger.rows.cluster_rows import ClusterStatus
from services.scheduler.ledger.rows.reservation_rows import Ending
from services.scheduler.ledger.transitions import LedgerChanged, end_all
from services.scheduler.observations.cluster_views import ClusterViews
from shared.gpu.node_selection import selection_lines
from shared.logging import log
from shared.postgres.database import Connection, Database
from shared.postgres.outbox import stage

MAX_AT_ONCE: Final = 32  # the rest waits for the next transaction, a few milliseconds


async def read_fleet(connection: Connection, views: ClusterViews) -> ClusterFleet:
    """The clusters as they are known now, with all that is held of them."""
    now = await reservation_rows.database_now(connection)
    statuses = await cluster_rows.statuses(connection)
    holdings = await cluster_rows.open_holdings(connection)
    cluster_by_id = {cluster.cluster_id: cluster for cluster in views.clusters(now)}
    clusters = [
        _with_status(
            cluster_by_id.get(cluster_id) or _unheard(cluster_id), statuses.get(cluster_id)
        )
        for cluster_id in sorted(cluster_by_id.keys() | statuses.keys())
    ]
    return ClusterFleet(clusters, holdings, now)


@dataclass(frozen=True, slots=True)
class ClusterDecisions:
    """The leader's part: grants and time-outs."""

    database: Database
    leadership: Leadership
    views: ClusterViews

    async def decide(self) -> bool:
        """Decide what can be decided now; whether anything was.

        Raises LeadershipLost, and LedgerChanged if a request has ended meanwhile.
        """
        async with self.database.transaction() as connection:
            await self.leadership.check(connection)
            queued = await cluster_rows.list_queued(connection)
            fleet = await read_fleet(connection, self.views)
            placed, over = decide_in_turn(queued, fleet)
            if not placed and not over:
                return False
            await self._write(connection, placed, over, fleet.now)
        for reservation_id, choice in placed.items():
            log.info(
                "node_selection",
                reservation_id=str(reservation_id),
                cluster_id=choice.placement.cluster_id,
                lines=list(selection_lines(choice.placement.gpus, selection(choice))),
            )
        return True

    async def _write(
        self,
        connection: Connection,
        placed: dict[UUID, Choice],
        over: dict[UUID, tuple[Reason, ...]],
        now: datetime,
    ) -> None:
        stored = await reservation_rows.lock(connection, [*placed, *over])
        for reservation_id in (*placed, *over):
            if (
                reservation_id not in stored
                or stored[reservation_id].state is not ReservationState.QUEUED
            ):
                raise LedgerChanged(f"reservation {reservation_id} is not queued any more")
        if placed:
            places = {reservation_id: choice.placement for reservation_id, choice in placed.items()}
            epochs = await cluster_rows.grant(connection, places, now)
            await stage(
                connection,
                *(
                    events.granted_event(
                        stored[reservation_id], now, epochs[reservation_id], cluster=place
                    )
                    for reservation_id, place in places.items()
                ),
            )
        await end_all(
            connection,
            [
                Ending(
                    stored=stored[reservation_id],
                    state=ReservationState.TIMED_OUT,
                    reason=WAIT_TIMED_OUT,
                    reasons=reasons,
                )
                for reservation_id, reasons in over.items()
            ],
            now,
        )


def decide_in_turn(
    queued: list[QueuedRequest], fleet: ClusterFleet
) -> tuple[dict[UUID, Choice], dict[UUID, tuple[Reason, ...]]]:
    """Decide the requests one after another: each sees what those before it have taken."""
    placed: dict[UUID, Choice] = {}
    over: dict[UUID, tuple[Reason, ...]] = {}
    for entry in queued:
        if len(placed) == MAX_AT_ONCE:
            break
        choice = fleet.choose(entry.request)
        if isinstance(choice, Choice):
            placed[entry.reservation_id] = choice
            fleet.take(entry.reservation_id, entry.request, choice.placement)
        elif entry.wait_deadline_at <= fleet.now:
            over[entry.reservation_id] = choice
    return placed, over


def _with_status(cluster: Cluster, status: ClusterStatus | None) -> Cluster:
    """Return the cluster with what operators have set for it; an unregistered one is not known
    yet.
    """
    cluster_id = cluster.cluster_id
    if status is None:
        return replace(cluster, blocked=cluster.blocked or _unheard(cluster_id).blocked)
    if not status.admitted:
        code, why = ReasonCode.NOT_ADMITTED, f"is new; `gpusteward node admit {cluster_id}`"
    elif status.cordoned:
        code = ReasonCode.CORDONED
        why = f"is cordoned: {status.cordon_reason}" if status.cordon_reason else "is cordoned"
    else:
        return cluster
    reason = Reason(code=code, message=f"cluster {cluster_id} {why}", node_id=cluster_id)
    return replace(cluster, blocked=reason)


def _unheard(cluster_id: NodeId) -> Cluster:
    reason = Reason(
        code=ReasonCode.AWAITING_CLUSTER,
        message=f"waits for a view of cluster {cluster_id}: nothing was heard of it yet",
        node_id=cluster_id,
    )
    return Cluster(cluster_id=cluster_id, blocked=reason)
