"""Rows of drifts in and out."""

from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import astuple

from schemas.base import NodeId, UtcDatetime
from schemas.scheduler.drifts import DriftAction, DriftKind
from services.scheduler.domain.drift.lifecycle import Drift, Finding
from shared.postgres.database import Connection, Row

ENDED_DAYS: Final = 1

_LIST: Final = """
SELECT drift_id, kind, node_id, device_uuid, reservation_id, since_at, ended_at, action, detail,
    pids
FROM drift WHERE ($1::text IS NULL OR node_id = $1)
    AND (ended_at IS NULL OR $2 AND ended_at > clock_timestamp() - $3 * interval '1 day')
    AND ($4::timestamptz IS NULL OR (since_at, drift_id) > ($4, $5::uuid))
ORDER BY since_at, drift_id LIMIT $6
"""
_INSERT: Final = """
INSERT INTO drift
    (drift_id, kind, node_id, device_uuid, reservation_id, since_at, action, detail, pids)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING true
"""
_UPDATE: Final = "UPDATE drift SET detail = $2, pids = $3 WHERE drift_id = $1"
_END: Final = """
UPDATE drift SET ended_at = $2 WHERE drift_id = $1 AND ended_at IS NULL RETURNING true
"""
_DELETE: Final = "DELETE FROM drift WHERE ended_at < clock_timestamp() - $1 * interval '1 day'"


class DriftPlace(Struct, frozen=True, array_like=True, tag="drift"):
    """Where a drift is in a list, oldest first."""

    since_at: UtcDatetime
    drift_id: UUID


async def find(
    connection: Connection,
    node_id: NodeId | None = None,
    *,
    ended: bool = False,
    after_place: DriftPlace | None = None,
    limit: int | None = None,
) -> tuple[Drift, ...]:
    """Open drifts of a node or of all, oldest first; with `ended` also those of the last day."""
    place = astuple(after_place) if after_place is not None else (None, None)
    rows = await connection.fetch(_LIST, node_id, ended, ENDED_DAYS, *place, limit)
    return tuple(map(_drift, rows))


async def insert(connection: Connection, drift: Drift) -> bool:
    """Store a drift that has begun; False if it is known."""
    finding = drift.finding
    inserted = await connection.fetchval(
        _INSERT,
        drift.drift_id,
        finding.kind.value,
        finding.node_id,
        finding.device_uuid,
        finding.reservation_id,
        drift.since_at,
        finding.action.value,
        finding.detail,
        list(finding.pids),
    )
    return bool(inserted)


async def update(connection: Connection, drift: Drift) -> None:
    """Store what was last found of an open drift."""
    await connection.execute(
        _UPDATE, drift.drift_id, drift.finding.detail, list(drift.finding.pids)
    )


async def end(connection: Connection, drift: Drift, now: datetime) -> bool:
    """Close a drift; False if it is closed."""
    return bool(await connection.fetchval(_END, drift.drift_id, now))


async def delete_ended(connection: Connection) -> None:
    """Delete what ended longer ago than it is listed."""
    await connection.execute(_DELETE, ENDED_DAYS)


def _drift(row: Row) -> Drift:
    return Drift(
        drift_id=row["drift_id"],
        since_at=row["since_at"],
        ended_at=row["ended_at"],
        finding=Finding(
            kind=DriftKind(row["kind"]),
            node_id=row["node_id"],
            device_uuid=row["device_uuid"],
            reservation_id=row["reservation_id"],
            action=DriftAction(row["action"]),
            detail=row["detail"],
            pids=tuple(row["pids"]),
        ),
    )
