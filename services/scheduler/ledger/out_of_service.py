"""Devices and nodes taken out of service: cordoned with the reason, what lives on them ends.

The caller, or the function itself, has paused decisions: nothing is granted there in between.
"""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.scheduler.devices import CordonCause, DeviceCordoned, DeviceUncordoned
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.faults import Fault, Recovery
from services.scheduler.ledger import transitions
from services.scheduler.ledger.leader_election import pause_decisions
from services.scheduler.ledger.lock_order import lock_nodes
from services.scheduler.ledger.rows import holding_rows, loss_rows, node_rows, reservation_rows
from shared.logging import log
from shared.postgres.database import Connection


class NewCordon(Struct, frozen=True, kw_only=True):
    """A cordon to set: on a device, or with None on the whole node."""

    device_uuid: DeviceUuid | None
    reason: str
    cause: CordonCause = CordonCause.OPERATOR
    set_by: str = ""


async def handle_faults(
    connection: Connection, node_id: NodeId, boot_id: UUID, faults: Sequence[Fault]
) -> None:
    """Act on each fault that was never acted on.

    A device that is not known yet is left to its inventory, which repeats the fault.
    """
    if not await _find_unhandled(connection, node_id, faults):
        return
    await pause_decisions(connection)
    for fault in await _find_unhandled(connection, node_id, faults):
        await _lose(connection, node_id, fault.device_uuid, fault.cause, fault.reason)
        await node_rows.add_fault(connection, node_id, boot_id, fault)


async def lose_node(connection: Connection, node_id: NodeId, reason: str) -> None:
    """Act on a node's silence, once until it reports again."""
    await pause_decisions(connection)
    if not await node_rows.is_lost(connection, node_id):
        await _lose(connection, node_id, None, CordonCause.NODE_LOST, reason)
        await node_rows.write_lost(connection, node_id)


async def take_out(
    connection: Connection, node_id: NodeId, end: ReservationState, cordon: NewCordon
) -> tuple[list[UUID], int]:
    """Cordon and end what lives there; its devices wait for the stop.

    Returns the reservations that ended, and the revision of the last device event.
    """
    held_devices = await holding_rows.list_held_on(connection, node_id, cordon.device_uuid)
    reservation_by_id = await reservation_rows.lock(
        connection, {h.held_by for h in held_devices if not h.quarantined}
    )
    now = await reservation_rows.database_now(connection)
    live = [
        stored for stored in reservation_by_id.values() if stored.state in transitions.HELD_ON_LEASE
    ]
    await transitions.lock_nodes_of(connection, live)
    for stored in live:
        ended = await transitions.end(connection, stored, end, now, reason=cordon.reason)
        await transitions.quarantine(connection, ended, cordon.reason)
    revision = await set_cordon(connection, node_id, cordon)
    return [stored.reservation_id for stored in live], revision


async def set_cordon(connection: Connection, node_id: NodeId, cordon: NewCordon) -> int:
    """Grant nothing new there; the revision of the last device event."""
    changed = await node_rows.write_cordon(
        connection, node_id, cordon.device_uuid, cordon.cause, cordon.reason, cordon.set_by
    )
    return await transitions.stage_device_events(
        connection, DeviceCordoned, changed, None, cordon.reason
    )


async def uncordon(
    connection: Connection, node_id: NodeId, device_uuid: DeviceUuid | None, reason: str
) -> int:
    """Grant there again; the revision of the last device event."""
    changed = await node_rows.write_uncordon(connection, node_id, device_uuid)
    return await transitions.stage_device_events(
        connection, DeviceUncordoned, changed, None, reason
    )


async def recover(
    connection: Connection, recovery: Recovery, now: datetime, quiet_seconds: float
) -> None:
    """Take back into service what was lost and is well again, and store what may follow."""
    changed = {loss.node_id for loss in (*recovery.new_losses, *recovery.broken, *recovery.over)}
    await lock_nodes(connection, changed)
    await loss_rows.write_quiet(connection, recovery.new_losses, now)
    await loss_rows.write_quiet(connection, recovery.broken, None)
    reasons = {
        True: f"well again for {quiet_seconds:g} s",
        False: "all that runs there is accounted for after the restore",
    }
    for needs_quiet, reason in reasons.items():
        ended_losses = [loss for loss in recovery.over if loss.needs_quiet is needs_quiet]
        lifted = await loss_rows.lift(connection, ended_losses)
        await transitions.stage_device_events(connection, DeviceUncordoned, lifted, None, reason)
        if lifted:
            log.info(
                "returned_to_service",
                reason=reason,
                devices=[f"{holding.node_id}/{holding.uuid}" for holding in lifted],
            )


async def _lose(
    connection: Connection,
    node_id: NodeId,
    device_uuid: DeviceUuid | None,
    cause: CordonCause,
    reason: str,
) -> None:
    cordon = NewCordon(device_uuid=device_uuid, cause=cause, reason=reason)
    lost, _ = await take_out(connection, node_id, ReservationState.LOST, cordon)
    log.error(
        "taken_out_of_service",
        node_id=node_id,
        device_uuid=device_uuid,
        reason=reason,
        reservations_lost=[str(reservation_id) for reservation_id in lost],
    )


async def _find_unhandled(
    connection: Connection, node_id: NodeId, faults: Sequence[Fault]
) -> list[Fault]:
    handled = await node_rows.filter_handled_faults(
        connection, node_id, [f.event_id for f in faults]
    )
    device_uuids = await node_rows.device_uuids(connection, node_id)
    return [
        fault
        for fault in faults
        if fault.event_id not in handled
        and (fault.device_uuid in device_uuids if fault.device_uuid is not None else device_uuids)
    ]
