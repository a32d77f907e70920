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


def queued_event(
    command: RequestReservation, times: QueuedTimes, position: int
) -> ReservationQueued:
    """A request was stored, at this place of the queue."""
    return ReservationQueued(
        **_common(command, 1, times.requested_at),
        request=command.request,
        position=position,
        wait_deadline_at=times.wait_deadline_at,
    )


def granted_event(
    stored: Reservation,
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
        **_common(stored, stored.revision + 1, now),
        epoch=epoch,
        node_id=node_ids[0],
        node_ids=node_ids,
        devices=tuple(devices),
        lease_ttl_seconds=stored.lease_ttl_seconds,
        waited_seconds=max(0.0, (now - stored.requested_at).total_seconds()),
        cluster=cluster,
        forecast_start_at=stored.forecast_start_at,
    )


def activated_event(stored: Reservation, now: datetime, epoch: int) -> ReservationActivated:
    """The holder has confirmed its start."""
    return ReservationActivated(
        **_common(stored, stored.revision, now), epoch=epoch, node_id=stored.node_id or ""
    )


def preempting(
    stored: Reservation, now: datetime, epoch: int, decision: Preempt
) -> ReservationPreempting:
    """The holder has to stop by the decision's `until_at`."""
    return ReservationPreempting(
        **_common(stored, stored.revision + 1, now),
        epoch=epoch,
        node_id=stored.node_id or "",
        grace_seconds=max(0.0, (decision.until_at - now).total_seconds()),
        preempted_for=decision.for_reservation_id,
        cause=decision.cause,
    )


def idle_event(stored: Reservation, warning: Warned, now: datetime) -> ReservationFoundIdle:
    """Make the event that warns a holder of its idle reservation."""
    return ReservationFoundIdle(
        **_common(stored, stored.revision, now),
        since_at=warning.since_at,
        action=warning.action,
        acts_at=warning.acts_at,
    )


def made_preemptible(
    stored: Reservation, since_at: datetime, now: datetime
) -> ReservationMadePreemptible:
    """Say that it was warned and stayed idle."""
    return ReservationMadePreemptible(**_common(stored, stored.revision, now), since_at=since_at)


def active_event(stored: Reservation, now: datetime) -> ReservationFoundActive:
    """Make the event that ends a warning."""
    return ReservationFoundActive(**_common(stored, stored.revision, now))


def exempted_event(
    stored: Reservation, reason: str, until_at: datetime, now: datetime
) -> ReservationExempted:
    """Say that it counts as used until then."""
    return ReservationExempted(
        **_common(stored, stored.revision, now), reason=reason, until_at=until_at
    )


def ended_event(stored: Reservation, now: datetime) -> ReservationEnded:
    """The event of its end, of the type that belongs to its state."""
    event = _END_EVENTS[stored.state](
        **_common(stored, stored.revision, now),
        epoch=stored.epoch,
        node_id=stored.node_id,
        devices=stored.devices,
        reason=stored.reason,
    )
    if isinstance(event, ReservationRejected | ReservationTimedOut):
        return replace(event, reasons=stored.reasons)
    return event


def drift(event: type[DriftEvent], of: Drift, revision: int, now: datetime) -> DriftEvent:
    """A drift has begun or ended. Made again, it is the same message."""
    finding = of.finding
    return event(
        message_id=uuid5(of.drift_id, event.__name__),
        occurred_at=now,
        revision=revision,
        node_id=finding.node_id,
        drift=finding.kind,
        device_uuid=finding.device_uuid,
        reservation_id=finding.reservation_id,
        detail=finding.detail,
        drift_id=of.drift_id,
        since_at=of.since_at,
        action=finding.action,
        pids=finding.pids,
    )
