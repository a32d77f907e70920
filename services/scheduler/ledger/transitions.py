"""What happens to a reservation and its devices: changes with their events, in one transaction."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from schemas.base import Event, NodeId
from schemas.executor.attempts import FenceReservation
from schemas.gpus.device_grant import (
    CELLS_PER_DEVICE,
    CellRange,
    DeviceGrant,
    DeviceShare,
    ShareKind,
)
from schemas.gpus.gpu_request import WHOLE
from schemas.scheduler.devices import DeviceEvent, DeviceFreed, DeviceQuarantined
from schemas.scheduler.namespaces import PREEMPTION_CAUSES
from schemas.scheduler.reasons import Reason
from schemas.scheduler.reservations import LIVE_STATES, ReservationState
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.placement.placement import Placed, PlacedNode
from services.scheduler.ledger import events
from services.scheduler.ledger.device_cells import Range
from services.scheduler.ledger.lock_order import lock_nodes
from services.scheduler.ledger.rows import cluster_rows, holding_rows, node_rows, reservation_rows
from services.scheduler.ledger.rows.holding_rows import OpenHolding
from services.scheduler.ledger.rows.reservation_rows import Ending, Reservation
from shared.errors import StewardError
from shared.ids import new_id
from shared.postgres.commands import send_later
from shared.postgres.database import Connection, Writer
from shared.postgres.outbox import stage

NO_CELLS: Final[Mapping[int, Sequence[Range]]] = {}
MAX_REASONS: Final = 1_000  # of the largest fleets, so that an event stays below 1 MiB
HELD_ON_LEASE: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})


class LedgerChanged(StewardError):
    """What was decided on has changed meanwhile; decide again on what is there now."""


async def end(
    connection: Connection,
    stored: Reservation,
    state: ReservationState,
    now: datetime,
    *,
    reason: str = "",
    reasons: Sequence[Reason] = (),
) -> Reservation:
    """End a reservation, with its event; what it holds is the caller's to free or to quarantine."""
    ending = Ending(stored=stored, state=state, reason=reason, reasons=tuple(reasons))
    return (await end_all(connection, [ending], now))[0]


async def end_all(
    connection: Writer, endings: Sequence[Ending], now: datetime
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
            reasons=ending.reasons[:MAX_REASONS],
        )
        for ending in endings
    ]
    await reservation_rows.write_ended(connection, ended)
    announced = [
        reservation
        if ending.told_reasons is None
        else replace(reservation, reasons=ending.told_reasons[:MAX_REASONS])
        for ending, reservation in zip(endings, ended, strict=True)
    ]
    await stage(connection, *(events.ended_event(reservation, now) for reservation in announced))
    return ended


def end_of_release(stored: Reservation) -> ReservationState:
    """Return the state of a reservation that is given back: preempted if it had to give way."""
    preempted = stored.preempting_until is not None
    return ReservationState.PREEMPTED if preempted else ReservationState.RELEASED


async def begin_release(connection: Connection, stored: Reservation, reason: str) -> Reservation:
    """Given up, but something may still run: its devices wait for the confirmed stop."""
    releasing = replace(stored, state=ReservationState.RELEASING)
    await reservation_rows.write_releasing(connection, stored.reservation_id, reason)
    await quarantine(connection, releasing, reason)
    return releasing


async def lock_nodes_of(connection: Connection, stored: Iterable[Reservation]) -> None:
    """Before the first of several locked reservations is quarantined or freed."""
    await lock_nodes(
        connection, {node_id for reservation in stored for node_id in reservation.node_ids}
    )


async def quarantine(connection: Connection, stored: Reservation, reason: str) -> None:
    """Grant the devices to no other, and have their nodes stop whatever runs on them."""
    holdings = await holding_rows.quarantine(connection, stored.reservation_id)
    await stage_device_events(connection, DeviceQuarantined, holdings, stored, reason)
    nodes = {holding.node_id for holding in holdings}
    if stored.cluster is not None and await cluster_rows.quarantine(
        connection, stored.reservation_id
    ):
        nodes.add(stored.cluster.cluster_id)
    for node_id in sorted(nodes):
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

    A reservation in its release is released with its last device. What it has of a cluster is given
    back as a whole.
    """
    if only_node is not None and only_node not in stored.node_ids:
        return stored
    if stored.cluster is not None:
        await cluster_rows.release(connection, [stored.reservation_id])
    holdings = await holding_rows.list_held_by(connection, stored.reservation_id)
    freed = [
        h
        for h in holdings
        if (only is None or h.device_no in only) and only_node in (None, h.node_id)
    ]
    quarantined = [h for h in freed if h.quarantined]
    await stage_device_events(connection, DeviceFreed, quarantined, stored, reason)
    await holding_rows.release(connection, [stored.reservation_id], [h.device_no for h in freed])
    if stored.holds_host:
        await holding_rows.release_hosts(connection, [stored.reservation_id])
    if stored.state is ReservationState.RELEASING and len(freed) == len(holdings):
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
    reason += f", {PREEMPTION_CAUSES[stored.preempted_by]}"
    ended = await end(connection, stored, ReservationState.PREEMPTED, now, reason=reason)
    await quarantine(connection, ended, reason)


async def stage_device_events(
    connection: Connection,
    event: type[DeviceEvent],
    holdings: Sequence[OpenHolding],
    stored: Reservation | None,
    reason: str,
) -> int:
    """Stage one event for each of several devices; return the last revision, 0 without a device."""
    if not holdings:
        return 0
    now = await reservation_rows.database_now(connection)
    staged: list[Event] = []
    revision = 0
    for holding in sorted(holdings, key=lambda holding: holding.node_id):
        revision = await node_rows.next_revision(connection, holding.node_id)
        staged.append(
            event(
                message_id=new_id(),
                occurred_at=now,
                revision=revision,
                node_id=holding.node_id,
                device_uuid=holding.uuid,
                reservation_id=stored.reservation_id if stored is not None else None,
                reason=reason,
            )
        )
    await stage(connection, *staged)
    return revision


def device_grants(
    placed: Placed, cells: Mapping[int, Sequence[Range]] = NO_CELLS
) -> tuple[DeviceGrant, ...]:
    """Placed devices as their holder sees them, best first. `cells` of those that are shared, by
    number.
    """
    return tuple(
        DeviceGrant(
            node_id=device.node_id,
            uuid=device.uuid,
            index=device.index,
            name=device.name,
            memory_total_mb=device.total_mb,
            simulated=device.simulated,
            mig_profile=device.mig_profile,
            link_groups=device.link_groups,
            score=round(scored.score, 6),
            memory_free_mb=device.reading.memory_free_mb if device.reading else None,
            utilization_percent=device.reading.utilization_percent if device.reading else None,
            share=_share(
                node, device, placed.parts.get(device.number), cells.get(device.number, ())
            ),
        )
        for node in placed.nodes
        for scored in node.devices
        for device in (scored.device,)
    )


def _share(
    node: PlacedNode, device: Device, hundredths: int | None, cells: Sequence[Range]
) -> DeviceShare | None:
    """Return the share granted of a device; None for a whole one."""
    if hundredths is None:
        return None
    total, is_enforced = device.total_mb, node.share_kind is ShareKind.MPS
    memory_mb = total * hundredths // WHOLE if total is not None else None
    base = device.number * CELLS_PER_DEVICE
    return DeviceShare(
        kind=node.share_kind,
        compute_percent=float(hundredths) if is_enforced else None,
        memory_mb=memory_mb if is_enforced else None,
        shares=hundredths / WHOLE,
        reserved_memory_mb=memory_mb,
        cells=tuple(CellRange(first=b - base, end=e - base) for b, e in cells),
    )
