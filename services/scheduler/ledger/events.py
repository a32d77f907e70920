"""The events of the ledger, built where every field is checked by its type."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict
from uuid import UUID, uuid5

from msgspec.structs import replace

from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.scheduler.drifts import DriftEvent
from schemas.scheduler.idle import (
    ReservationExempted,
    ReservationFoundActive,
    ReservationFoundIdle,
    ReservationMadePreemptible,
)
from schemas.scheduler.reservations import (
    RESERVATION_ENDS,
    RequestReservation,
    ReservationActivated,
    ReservationEnded,
    ReservationGranted,
    ReservationPreempting,
    ReservationQueued,
    ReservationRejected,
    ReservationTimedOut,
)
from services.scheduler.domain.drift.lifecycle import Drift
from services.scheduler.domain.idle import Warned
from services.scheduler.domain.placement.decisions import Preempt
from services.scheduler.ledger.rows.reservation_rows import QueuedTimes, Reservation
from shared.ids import new_id

_END_EVENTS = {event.state: event for event in RESERVATION_ENDS}


class _Common(TypedDict):
    message_id: UUID
    occurred_at: datetime
    revision: int
    reservation_id: UUID
    namespace: str
    holder: str
    requester: str


def _common(of: Reservation | RequestReservation, revision: int, now: datetime) -> _Common:
    return {
        "message_id": new_id(),
        "occurred_at": now,
        "revision": revision,
        "reservation_id": of.reservation_id,
        "namespace": of.namespace,
        "holder": of.holder,
        "requester": of.requester,
    }


def queued(command: RequestReservation, times: QueuedTimes, position: int) -> ReservationQueued:
    """A request was stored, at this place of the queue."""
    return ReservationQueued(
        **_common(command, 1, times.requested_at),
        request=command.request,
        position=position,
        wait_deadline_at=times.wait_deadline_at,
    )


def granted(
    before: Reservation,
    now: datetime,
    epoch: int,
    devices: Sequence[DeviceGrant] = (),
    cluster: ClusterPlacement | None = None,
) -> ReservationGranted:
    """A queued reservation holds these devices, or GPUs of a cluster, from now on."""
    node_ids = tuple(dict.fromkeys(device.node_id for device in devices))
    if cluster is not None:
        node_ids = (cluster.cluster_id,)
    return ReservationGranted(
        **_common(before, before.revision + 1, now),
        epoch=epoch,
        node_id=node_ids[0],
        node_ids=node_ids,
        devices=tuple(devices),
        lease_ttl_seconds=before.lease_ttl_seconds,
        waited_seconds=max(0.0, (now - before.requested_at).total_seconds()),
        cluster=cluster,
        forecast_start_at=before.forecast_start_at,
    )


def activated(after: Reservation, now: datetime, epoch: int) -> ReservationActivated:
    """The holder has confirmed its start."""
    return ReservationActivated(
        **_common(after, after.revision, now), epoch=epoch, node_id=after.node_id or ""
    )


def preempting(
    before: Reservation, now: datetime, epoch: int, decision: Preempt
) -> ReservationPreempting:
    """The holder has to stop by the decision's `until_at`."""
    return ReservationPreempting(
        **_common(before, before.revision + 1, now),
        epoch=epoch,
        node_id=before.node_id or "",
        grace_seconds=max(0.0, (decision.until_at - now).total_seconds()),
        preempted_for=decision.for_reservation_id,
        cause=decision.cause,
    )


def found_idle(after: Reservation, found: Warned, now: datetime) -> ReservationFoundIdle:
    """Its holder is warned."""
    return ReservationFoundIdle(
        **_common(after, after.revision, now),
        since_at=found.since_at,
        action=found.action,
        acts_at=found.acts_at,
    )


def made_preemptible(
    after: Reservation, since_at: datetime, now: datetime
) -> ReservationMadePreemptible:
    """It was warned and stayed idle."""
    return ReservationMadePreemptible(**_common(after, after.revision, now), since_at=since_at)


def found_active(after: Reservation, now: datetime) -> ReservationFoundActive:
    """Its warning is over."""
    return ReservationFoundActive(**_common(after, after.revision, now))


def exempted(
    after: Reservation, reason: str, until_at: datetime, now: datetime
) -> ReservationExempted:
    """It counts as used until then."""
    return ReservationExempted(
        **_common(after, after.revision, now), reason=reason, until_at=until_at
    )


def ended(after: Reservation, now: datetime) -> ReservationEnded:
    """The event of its end, of the type that belongs to its state."""
    event = _END_EVENTS[after.state](
        **_common(after, after.revision, now),
        epoch=after.epoch,
        node_id=after.node_id,
        devices=after.devices,
        reason=after.reason,
    )
    if isinstance(event, ReservationRejected | ReservationTimedOut):
        return replace(event, reasons=after.reasons)
    return event


def drift(event: type[DriftEvent], of: Drift, revision: int, now: datetime) -> DriftEvent:
    """A drift has begun or ended. Made again, it is the same message."""
    found = of.finding
    return event(
        message_id=uuid5(of.drift_id, event.__name__),
        occurred_at=now,
        revision=revision,
        node_id=found.node_id,
        drift=found.kind,
        device_uuid=found.device_uuid,
        reservation_id=found.reservation_id,
        detail=found.detail,
        drift_id=of.drift_id,
        since_at=of.since_at,
        action=found.action,
        pids=found.pids,
    )
