"""Rows of drifts in and out: functions on a connection, inside the caller's transaction."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from schemas.base import NodeId
from schemas.scheduler import DriftAction, DriftKind
from services.scheduler.domain.drift import Drift, Finding
from services.scheduler.store import Row
from shared.database import Connection

KEPT_DAYS: Final = 1


async def open_drifts(connection: Connection) -> tuple[Drift, ...]:
    """Every drift that lasts, oldest first."""
    rows = await connection.fetch("SELECT * FROM drift WHERE ended_at IS NULL ORDER BY since_at")
    return tuple(map(_drift, rows))


async def listed(
    connection: Connection, node_id: NodeId | None = None, *, ended: bool = False
) -> tuple[Drift, ...]:
    """Drifts of a node or of all, oldest first; with `ended` also those that ended within a day."""
    rows: Sequence[Row] = await connection.fetch(
        "SELECT * FROM drift WHERE ($1::text IS NULL OR node_id = $1)"
        " AND (ended_at IS NULL OR $2 AND ended_at > clock_timestamp() - $3 * interval '1 day')"
        " ORDER BY since_at, drift_id",
        node_id,
        ended,
        KEPT_DAYS,
    )
    return tuple(map(_drift, rows))


async def insert(connection: Connection, drift: Drift) -> bool:
    """Store a drift that has begun; False if it is known."""
    found = drift.finding
    inserted = await connection.fetchval(
        "INSERT INTO drift (drift_id, kind, node_id, device_uuid, reservation_id, since_at, action,"
        " detail, pids) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
        " ON CONFLICT DO NOTHING RETURNING true",
        drift.drift_id,
        found.kind.value,
        found.node_id,
        found.device_uuid,
        found.reservation_id,
        drift.since_at,
        found.action.value,
        found.detail,
        list(found.pids),
    )
    return bool(inserted)


async def update(connection: Connection, drift: Drift) -> None:
    """Keep what a lasting drift looks like now."""
    await connection.execute(
        "UPDATE drift SET detail = $2, pids = $3 WHERE drift_id = $1",
        drift.drift_id,
        drift.finding.detail,
        list(drift.finding.pids),
    )


async def end(connection: Connection, drift: Drift, now: datetime) -> bool:
    """Close a drift; False if it is closed."""
    ended = await connection.fetchval(
        "UPDATE drift SET ended_at = $2 WHERE drift_id = $1 AND ended_at IS NULL RETURNING true",
        drift.drift_id,
        now,
    )
    return bool(ended)


async def forget_old(connection: Connection) -> None:
    """Drop what ended longer ago than anybody is told."""
    await connection.execute(
        "DELETE FROM drift WHERE ended_at < clock_timestamp() - $1 * interval '1 day'", KEPT_DAYS
    )


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
