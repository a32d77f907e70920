"""What happens to a reservation and its devices: each change with its events, in one transaction.

Rows are locked in one order: leader, reservations by id, node, devices by number.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from schemas.base import Event, NodeId
from schemas.executor import FenceReservation
from schemas.gpu_request import DeviceGrant, Reason
from schemas.scheduler import (
    LIVE_STATES,
    DeviceEvent,
    DeviceFreed,
    DeviceQuarantined,
    RequestReservation,
    ReservationCancelled,
    ReservationEnded,
    ReservationExpired,
    ReservationLost,
    ReservationPreempted,
    ReservationRejected,
    ReservationReleased,
    ReservationState,
    ReservationTimedOut,
)
from services.scheduler import store
from services.scheduler.domain.placement import Placed, Scored
from services.scheduler.store import Ending, OpenHolding, Reservation
from shared.commands import send_later
from shared.database import Connection
from shared.errors import StewardError
from shared.ids import new_id
from shared.outbox import stage

REASONS_KEPT: Final = 1_000  # of the largest fleets, so that an event stays below 1 MiB

_ENDS: Final[dict[ReservationState, type[ReservationEnded]]] = {
    ReservationState.RELEASED: ReservationReleased,
    ReservationState.REJECTED: ReservationRejected,
    ReservationState.CANCELLED: ReservationCancelled,
    ReservationState.TIMED_OUT: ReservationTimedOut,
    ReservationState.EXPIRED: ReservationExpired,
    ReservationState.LOST: ReservationLost,
    ReservationState.PREEMPTED: ReservationPreempted,
}


class LedgerChanged(StewardError):
    """What was decided on is no longer so; look again."""


async def end(
    connection: Connection,
    stored: Reservation,
    state: ReservationState,
    now: datetime,
    *,
    reason: str = "",
    reasons: Sequence[Reason] = (),
) -> Reservation:
    """End a reservation and say so; what it holds is the caller's to free or to quarantine."""
    ending = Ending(stored=stored, state=state, reason=reason, reasons=tuple(reasons))
    return (await end_all(connection, [ending], now))[0]


async def end_all(
    connection: Connection, endings: Sequence[Ending], now: datetime
) -> list[Reservation]:
    """End several reservations as `end` does one."""
    if not endings:
        return []
    ended = [
        replace(
            ending.stored,
            state=ending.state,
            revision=ending.stored.revision + 1,
            ended_at=now,
            reason=ending.reason,
            reasons=ending.reasons[:REASONS_KEPT],
        )
        for ending in endings
    ]
    await store.write_ended(connection, ended)
    await stage(connection, *(_ended_event(one, now) for one in ended))
    return ended


def end_of_release(stored: Reservation) -> ReservationState:
    """What a reservation that is given back becomes: who was told to give way was preempted."""
    preempted = stored.preempting_until is not None
    return ReservationState.PREEMPTED if preempted else ReservationState.RELEASED


async def begin_release(connection: Connection, stored: Reservation, reason: str) -> Reservation:
    """Given up, but something may still run: its devices wait for the confirmed stop."""
    releasing = replace(stored, state=ReservationState.RELEASING)
    await connection.execute(
        "UPDATE reservation SET state = 'releasing', reason = $2, lease_expires_at = NULL"
        " WHERE reservation_id = $1",
        stored.reservation_id,
        reason,
    )
    await quarantine(connection, releasing, reason)
    return releasing


async def quarantine(connection: Connection, stored: Reservation, reason: str) -> None:
    """Keep the devices from everybody and ask their nodes to stop whatever runs on them."""
    rows = await connection.fetch(
        "UPDATE holding h SET quarantined_at = clock_timestamp() FROM device d"
        " WHERE h.device_no = d.device_no AND h.reservation_id = $1 AND h.released_at IS NULL"
        " AND h.quarantined_at IS NULL RETURNING d.device_no, d.node_id, d.uuid",
        stored.reservation_id,
    )
    held = sorted(
        (OpenHolding(**dict(row), quarantined=True) for row in rows), key=lambda h: h.device_no
    )
    await stage_device_events(connection, DeviceQuarantined, held, stored, reason)
    for node_id in sorted({one.node_id for one in held}):
        if stored.epoch is not None:
            await send_later(
                connection,
                FenceReservation(
                    command_id=new_id(),
                    executor_id=node_id,
                    reservation_id=stored.reservation_id,
                    epoch=stored.epoch,
                ),
            )


async def free(
    connection: Connection,
    stored: Reservation,
    now: datetime,
    reason: str = "",
    *,
    only: Collection[int] | None = None,
    only_node: NodeId | None = None,
) -> Reservation:
    """Give devices back whose stop is confirmed; `only` these numbers, or one node's; None: all.

    A reservation in its release is released with its last device.
    """
    held = await store.open_holdings(connection, stored.reservation_id)
    freed = [
        h for h in held if (only is None or h.device_no in only) and only_node in (None, h.node_id)
    ]
    quarantined = [h for h in freed if h.quarantined]
    await stage_device_events(connection, DeviceFreed, quarantined, stored, reason)
    await store.release_holdings(connection, [(stored.reservation_id, h.device_no) for h in freed])
    if stored.holds_host:
        await store.release_hosts(connection, [stored.reservation_id])
    if stored.state is ReservationState.RELEASING and len(freed) == len(held):
        state = end_of_release(stored)
        return await end(connection, stored, state, now, reason=stored.reason or reason)
    return stored


async def cancel(
    connection: Connection, stored: Reservation, now: datetime, reason: str
) -> Reservation:
    """End what waits or lives; what has ended or is being released stays as it is."""
    if stored.state is ReservationState.RELEASING:
        return stored
    if stored.state is not ReservationState.QUEUED and stored.state not in LIVE_STATES:
        return stored
    ended = await end(connection, stored, ReservationState.CANCELLED, now, reason=reason)
    await quarantine(connection, ended, reason or "cancelled")
    return ended


async def expire(connection: Connection, stored: Reservation, now: datetime) -> None:
    """End a reservation whose lease ran out. Raises LedgerChanged if it was renewed meanwhile."""
    if stored.lease_expires_at is None or stored.lease_expires_at > now:
        raise LedgerChanged(f"reservation {stored.reservation_id} was renewed or has ended")
    reason = f"not renewed for {stored.lease_ttl_seconds:g} s"
    ended = await end(connection, stored, ReservationState.EXPIRED, now, reason=reason)
    await quarantine(connection, ended, reason)


async def finish_preemption(connection: Connection, stored: Reservation, now: datetime) -> None:
    """End a reservation whose notice has run out. Raises LedgerChanged if it ended meanwhile."""
    if stored.preempting_until is None or stored.preempting_until > now:
        raise LedgerChanged(f"reservation {stored.reservation_id} has ended")
    reason = f"preempted for reservation {stored.preempted_for}"
    ended = await end(connection, stored, ReservationState.PREEMPTED, now, reason=reason)
    await quarantine(connection, ended, reason)


async def stage_device_events(
    connection: Connection,
    event: type[DeviceEvent],
    held: Sequence[OpenHolding],
    stored: Reservation | None,
    reason: str,
) -> int:
    """Tell the same of several devices of one node; its last revision, 0 without any device."""
    if not held:
        return 0
    now = await store.database_now(connection)
    events: list[Event] = []
    revision = 0
    for one in held:
        revision = await store.next_node_revision(connection, one.node_id)
        events.append(
            event(
                message_id=new_id(),
                occurred_at=now,
                revision=revision,
                node_id=one.node_id,
                device_uuid=one.uuid,
                reservation_id=stored.reservation_id if stored is not None else None,
                reason=reason,
            )
        )
    await stage(connection, *events)
    return revision


async def set_cordon(
    connection: Connection,
    node_id: NodeId,
    device_uuid: str | None,
    *,
    cordoned: bool,
    reason: str = "",
) -> list[OpenHolding]:
    """Take devices of a node out of service or back.

    Tells those that were not so before, or were out for another reason than the one now given.
    """
    await connection.execute("SELECT 1 FROM node WHERE node_id = $1 FOR UPDATE", node_id)
    if device_uuid is None:
        await connection.execute(
            "UPDATE node SET cordoned = $2 WHERE node_id = $1", node_id, cordoned
        )
    rows = await connection.fetch(
        "UPDATE device SET cordoned = $3, cordon_reason = $4 WHERE node_id = $1"
        " AND ($2::text IS NULL OR uuid = $2)"
        " AND (cordoned <> $3 OR ($3 AND $4 <> '' AND cordon_reason <> $4))"
        " RETURNING device_no, node_id, uuid",
        node_id,
        device_uuid,
        cordoned,
        reason,
    )
    changed = [OpenHolding(**dict(row), quarantined=False) for row in rows]
    return sorted(changed, key=lambda h: h.device_no)


def device_grants(placed: Placed) -> tuple[DeviceGrant, ...]:
    """Placed devices as their holder sees them, best first."""
    return tuple(_device_grant(scored) for scored in placed.devices)


def _ended_event(ended: Reservation, now: datetime) -> ReservationEnded:
    event = _ENDS[ended.state]
    listed: dict[str, Any] = (
        {"reasons": ended.reasons} if "reasons" in event.__struct_fields__ else {}
    )
    return event(
        **about(ended, now),
        epoch=ended.epoch,
        node_id=ended.node_id,
        devices=ended.devices,
        reason=ended.reason,
        **listed,
    )


def _device_grant(scored: Scored) -> DeviceGrant:
    device = scored.device
    return DeviceGrant(
        node_id=device.node_id,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        memory_total_mb=device.total_mb,
        simulated=device.simulated,
        score=round(scored.score, 6),
    )


def about_new(command: RequestReservation, now: datetime) -> dict[str, Any]:
    """The same fields of what was just requested."""
    return {
        "message_id": new_id(),
        "occurred_at": now,
        "revision": 1,
        "reservation_id": command.reservation_id,
        "namespace": command.namespace,
        "holder": command.holder,
    }


def about(stored: Reservation, now: datetime) -> dict[str, Any]:
    """The fields that every reservation event has."""
    return {
        "message_id": new_id(),
        "occurred_at": now,
        "revision": stored.revision,
        "reservation_id": stored.reservation_id,
        "namespace": stored.namespace,
        "holder": stored.holder,
    }
