"""Devices and nodes that failed: cordoned with the reason, what they held is lost."""

from collections.abc import Sequence
from uuid import UUID

from schemas.base import NodeId
from schemas.scheduler import DeviceCordoned, ReservationState
from services.scheduler import ledger, store
from services.scheduler.domain.faults import Fault
from services.scheduler.leadership import pause_decisions
from shared.database import Connection
from shared.logging import log


async def handle_faults(
    connection: Connection, node_id: NodeId, boot_id: UUID, faults: Sequence[Fault]
) -> bool:
    """Act on each fault that was never acted on; whether there was one.

    A device that is not known yet is left to its inventory, which repeats the fault.
    """
    if not await _unhandled(connection, node_id, faults):
        return False
    await pause_decisions(connection)
    unhandled = await _unhandled(connection, node_id, faults)
    for fault in unhandled:
        await take_out(connection, node_id, fault.device_uuid, fault.reason)
        await connection.execute(
            "INSERT INTO fault (node_id, event_id, boot_id, device_uuid, reason)"
            " VALUES ($1, $2, $3, $4, $5)",
            node_id,
            fault.event_id,
            boot_id,
            fault.device_uuid,
            fault.reason,
        )
    return bool(unhandled)


async def lose_node(connection: Connection, node_id: NodeId, reason: str) -> bool:
    """Act on a node's silence, once until it is heard again; whether this was that once."""
    await pause_decisions(connection)
    if await connection.fetchval("SELECT lost FROM node WHERE node_id = $1", node_id):
        return False
    await take_out(connection, node_id, None, reason)
    await connection.execute("UPDATE node SET lost = true WHERE node_id = $1", node_id)
    return True


async def take_out(
    connection: Connection, node_id: NodeId, device_uuid: str | None, reason: str
) -> None:
    """Cordon a device, or a whole node, and end what lives on it as lost.

    The caller has paused decisions. What was held waits for the node's confirmation.
    """
    rows = await connection.fetch(
        "SELECT DISTINCT h.reservation_id FROM holding h JOIN device d USING (device_no)"
        " JOIN reservation r USING (reservation_id)"
        " WHERE d.node_id = $1 AND ($2::text IS NULL OR d.uuid = $2) AND h.released_at IS NULL"
        " AND r.state IN ('granted', 'active')",
        node_id,
        device_uuid,
    )
    now = await store.database_now(connection)
    found = await store.find_locked(connection, [row["reservation_id"] for row in rows])
    for stored in found.values():
        if stored.state in {ReservationState.GRANTED, ReservationState.ACTIVE}:
            lost = await ledger.end(connection, stored, ReservationState.LOST, now, reason=reason)
            await ledger.quarantine(connection, lost, reason)
    changed = await ledger.set_cordon(
        connection, node_id, device_uuid, cordoned=True, reason=reason
    )
    await ledger.stage_device_events(connection, DeviceCordoned, changed, None, reason)
    log.error(
        "taken_out_of_service",
        node_id=node_id,
        device_uuid=device_uuid,
        reason=reason,
        reservations_lost=[str(reservation_id) for reservation_id in found],
    )


async def _unhandled(
    connection: Connection, node_id: NodeId, faults: Sequence[Fault]
) -> list[Fault]:
    if not faults:
        return []
    handled = {
        row["event_id"]
        for row in await connection.fetch(
            "SELECT event_id FROM fault WHERE node_id = $1 AND event_id = ANY($2)",
            node_id,
            [fault.event_id for fault in faults],
        )
    }
    known = {
        row["uuid"]
        for row in await connection.fetch("SELECT uuid FROM device WHERE node_id = $1", node_id)
    }
    return [
        fault
        for fault in faults
        if fault.event_id not in handled
        and (fault.device_uuid in known if fault.device_uuid is not None else known)
    ]
