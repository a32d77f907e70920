"""Rows of what reservations hold of Kubernetes clusters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.clusters.holdings import ClusterHolding
from services.scheduler.domain.clusters.host_room import host_needs
from services.scheduler.domain.clusters.parts import part_of
from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.ledger.timeline import draw_epochs
from shared.postgres.database import Connection, from_json, to_json

# The source of a cluster's row is not one of an agent's, so that none is taken for the other.
_REGISTER: Final = """
INSERT INTO node AS known (node_id, source, admitted, inventory_at)
VALUES ($1, 'kubernetes', $2, clock_timestamp())
ON CONFLICT (node_id) DO UPDATE SET source = 'kubernetes', removed = false,
    inventory_at = clock_timestamp(), admitted = known.admitted OR $2
WHERE known.source <> 'kubernetes' OR known.removed OR (known.admitted IS FALSE AND $2)
"""
_STATUS: Final = """
SELECT node_id, admitted, cordoned, cordon_reason FROM node
WHERE source = 'kubernetes' AND NOT removed
"""
_QUEUED: Final = """
SELECT reservation_id, request::text AS request, arrival, wait_deadline_at,
    requested_at AS queued_at
FROM reservation WHERE state = 'queued' AND request->>'cluster' IS NOT NULL
ORDER BY priority DESC, arrival
"""
_OPEN: Final = """
SELECT h.reservation_id, h.cluster_id, h.node_name, h.resource, h.gpus, h.granted_at,
    r.request::text AS request
FROM cluster_holding h JOIN reservation r USING (reservation_id) WHERE h.released_at IS NULL
"""
_DRAW_EPOCHS: Final = f"UPDATE epoch SET {draw_epochs('$1')} RETURNING value"
_HOLD: Final = """
INSERT INTO cluster_holding (reservation_id, rank, cluster_id, node_name, resource, gpus, epoch)
SELECT * FROM unnest($1::uuid[], $2::int[], $3::text[], $4::text[], $5::text[], $6::int[],
    $7::bigint[])
"""
_GRANT: Final = """
UPDATE reservation r SET state = 'granted', revision = r.revision + 1, granted_at = $5,
    epoch = new.epoch, node_id = new.cluster_id, cluster = new.cluster::jsonb, reasons = '[]',
    lease_expires_at = clock_timestamp() + r.lease_ttl_seconds * interval '1 second'
FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[])
    AS new (reservation_id, cluster_id, epoch, cluster)
WHERE r.reservation_id = new.reservation_id
"""
_QUARANTINE: Final = """
UPDATE cluster_holding SET quarantined_at = clock_timestamp()
WHERE reservation_id = $1 AND released_at IS NULL AND quarantined_at IS NULL
RETURNING cluster_id
"""
_RELEASE: Final = """
UPDATE cluster_holding SET released_at = clock_timestamp()
WHERE reservation_id = ANY($1) AND released_at IS NULL
"""


class ClusterStatus(Struct, frozen=True, kw_only=True):
    """What operators have set for a cluster."""

    node_id: NodeId
    admitted: bool
    cordoned: bool
    cordon_reason: str


async def register(connection: Connection, cluster_id: NodeId, *, admits: bool) -> None:
    """Store that there is such a cluster; one that is known stays as it is."""
    await connection.execute(_REGISTER, cluster_id, admits)


async def statuses(connection: Connection) -> dict[NodeId, ClusterStatus]:
    rows = await connection.fetch(_STATUS)
    return {row["node_id"]: ClusterStatus(**dict(row)) for row in rows}


async def list_queued(connection: Connection) -> list[QueuedRequest]:
    """Requests for GPUs of clusters, in the order in which they are served."""
    return [
        QueuedRequest(**dict(row) | {"request": from_json(row["request"], GpuRequest)})
        for row in await connection.fetch(_QUEUED)
    ]


async def open_holdings(connection: Connection) -> list[ClusterHolding]:
    """List everything that is not given back, quarantined or not."""
    return [
        ClusterHolding(**row, host=host_needs(request), part=part_of(request))
        for row in map(dict, await connection.fetch(_OPEN))
        for request in (from_json(row.pop("request"), GpuRequest),)
    ]


async def grant(
    connection: Connection, placed: Mapping[UUID, ClusterPlacement], now: datetime
) -> dict[UUID, int]:
    """Open the holdings and begin the leases; the epochs."""
    last = await connection.fetchval(_DRAW_EPOCHS, len(placed))
    epochs = dict(zip(placed, range(last - len(placed) + 1, last + 1), strict=True))
    held_nodes = [
        (reservation_id, rank, place, node_name)
        for reservation_id, place in placed.items()
        for rank, node_name in enumerate(
            (place.node_name, *(node.node_name for node in place.other_nodes))
        )
    ]
    await connection.execute(
        _HOLD,
        [reservation_id for reservation_id, *_ in held_nodes],
        [rank for _, rank, *_ in held_nodes],
        [place.cluster_id for _, _, place, _ in held_nodes],
        [node_name for *_, node_name in held_nodes],
        [place.resource for _, _, place, _ in held_nodes],
        [place.gpus for _, _, place, _ in held_nodes],
        [epochs[reservation_id] for reservation_id, *_ in held_nodes],
    )
    await connection.execute(
        _GRANT,
        list(epochs),
        [place.cluster_id for place in placed.values()],
        list(epochs.values()),
        [to_json(place) for place in placed.values()],
        now,
    )
    return epochs


async def quarantine(connection: Connection, reservation_id: UUID) -> NodeId | None:
    """Mark what a reservation holds as waiting for its confirmed stop; None if it was so before."""
    cluster_id: NodeId | None = await connection.fetchval(_QUARANTINE, reservation_id)
    return cluster_id


async def release(connection: Connection, ids: Sequence[UUID]) -> None:
    """Close what these reservations hold."""
    await connection.execute(_RELEASE, list(ids))
