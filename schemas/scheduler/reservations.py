"""Reservations: the scheduler's commands, and what becomes of them."""

from enum import StrEnum
from typing import Annotated, ClassVar, Final
from uuid import UUID

from schemas.audit import CommandRecorded
from schemas.base import (
    Command,
    Epoch,
    Event,
    Namespace,
    NodeId,
    Person,
    PositiveInt,
    ScopedCommand,
    Seconds,
    UtcDatetime,
    line,
)
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuRequest, LeaseTtlSeconds
from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason

SetBy = Annotated[str, line(max_length=100)]
Holder = Annotated[str, line(max_length=200)]
_EXPERIMENT: Final = "experiment/"


def experiment_holder(experiment_id: UUID, task_name: str, ordinal: int) -> str:
    """The `holder` of an experiment's reservation: `experiment/<id>/<task's name>#<ordinal>`."""
    return f"{_EXPERIMENT}{experiment_id}" + (f"/{task_name}#{ordinal}" if task_name else "")


def experiment_of_holder(holder: str) -> str:
    """The experiment's id in its reservation's `holder`; empty for what holds for something else.

    Releases before the task's name was added end with the id.
    """
    return holder.removeprefix(_EXPERIMENT).split("/")[0] if holder.startswith(_EXPERIMENT) else ""


def holder_name(holder: str) -> str:
    """Return a `holder` as people know it: `task#3`, `exec/alice`."""
    if not holder.startswith(_EXPERIMENT):
        return holder
    return holder.removeprefix(_EXPERIMENT).partition("/")[2] or holder


class ReservationState(StrEnum):
    """queued -> granted -> active -> releasing -> released, or one of the other ends."""

    QUEUED = "queued"
    GRANTED = "granted"  # devices are held, the holder has not confirmed its start
    ACTIVE = "active"  # the holder runs on them
    RELEASING = "releasing"  # cancelled or given up; devices wait for the confirmed stop
    RELEASED = "released"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    EXPIRED = "expired"
    PREEMPTED = "preempted"
    LOST = "lost"


HOLDING_STATES = (ReservationState.GRANTED, ReservationState.ACTIVE)
LIVE_STATES = frozenset(
    {ReservationState.GRANTED, ReservationState.ACTIVE, ReservationState.RELEASING}
)
OPEN_STATES = LIVE_STATES | {ReservationState.QUEUED}
# Ends of what may have held devices: a rejected or timed out request never did.
PAST_HOLDING_STATES = (
    frozenset(ReservationState)
    - OPEN_STATES
    - {ReservationState.REJECTED, ReservationState.TIMED_OUT}
)


class RequestReservation(Command, frozen=True, kw_only=True, tag="scheduler.request_reservation"):
    """Ask for GPUs. Accepted means stored; the grant, rejection or time-out follows as an event.

    The sender chooses `reservation_id`. `holder` says for what, for people (`exec/<user>`, or
    what `experiment_holder` makes), `requester` who asks: the gateway fills it in.
    """

    speaker_field: ClassVar[str | None] = "namespace"
    reservation_id: UUID
    namespace: Namespace = "default"
    holder: Holder = ""
    request: GpuRequest = GpuRequest()
    requester: Person = ""


class RenewReservation(ScopedCommand, frozen=True, kw_only=True, tag="scheduler.renew_reservation"):
    """Keep a lease. `activate`: the holder is about to start; granted becomes active.

    Refused with `lease_lost` or `stale_epoch`, after which the holder stops.
    """

    reservation_id: UUID
    epoch: Epoch
    activate: bool = False


class ReleaseReservation(
    ScopedCommand, frozen=True, kw_only=True, tag="scheduler.release_reservation"
):
    """Give the devices back.

    `stopped`: nothing of it runs any more; False sends the devices into quarantine first.
    """

    reservation_id: UUID
    epoch: Epoch
    stopped: bool = True
    reason: str = ""


class CancelReservation(
    ScopedCommand, frozen=True, kw_only=True, tag="scheduler.cancel_reservation"
):
    """End a reservation in any state, or of `expected_revision` alone; what it was granted is freed
    once its node confirmed the stop.
    """

    reservation_id: UUID
    reason: str = ""
    expected_revision: PositiveInt | None = None


class ReservationEvent(Event, frozen=True, kw_only=True):
    """What all reservation facts carry. `requester` is empty where no person is known."""

    key_field: ClassVar[str | None] = "reservation_id"
    reservation_id: UUID
    namespace: Namespace
    holder: str
    requester: str = ""


class ReservationQueued(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_queued"
):
    """Stored and waiting. `position` counts from 1 at that moment."""

    request: GpuRequest
    position: PositiveInt
    wait_deadline_at: UtcDatetime


class ReservationGranted(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_granted"
):
    """Devices are held for this reservation under `epoch` until the lease ends without renewal.

    `node_id` is the first of `node_ids`; more than one is a gang. With `cluster` there are no
    `devices`, `node_id` is the cluster's. `forecast_start_at`: as its wait began; None: unknown.
    """

    epoch: Epoch
    node_id: NodeId
    devices: tuple[DeviceGrant, ...]
    lease_ttl_seconds: LeaseTtlSeconds
    waited_seconds: Seconds
    node_ids: tuple[NodeId, ...] = ()
    cluster: ClusterPlacement | None = None
    forecast_start_at: UtcDatetime | None = None


class ReservationActivated(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_activated"
):
    """The holder confirmed that it starts."""

    epoch: Epoch
    node_id: NodeId


class ReservationEnded(ReservationEvent, frozen=True, kw_only=True):
    """What all ends carry; epoch, node and devices are None and empty if it never was granted.

    `state` is the reservation's state from then on; each end has its own.
    """

    state: ClassVar[ReservationState]
    epoch: Epoch | None = None
    node_id: NodeId | None = None
    devices: tuple[DeviceGrant, ...] = ()
    reason: str = ""


class ReservationReleased(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_released"
):
    """Given back, stop confirmed."""

    state: ClassVar[ReservationState] = ReservationState.RELEASED


class ReservationRejected(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_rejected"
):
    """Can never fit on this fleet."""

    state: ClassVar[ReservationState] = ReservationState.REJECTED
    reasons: tuple[Reason, ...] = ()


class ReservationCancelled(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_cancelled"
):
    """Ended on request."""

    state: ClassVar[ReservationState] = ReservationState.CANCELLED


class ReservationTimedOut(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_timed_out"
):
    """Queued longer than its wait timeout; `reasons` are those of the last decision."""

    state: ClassVar[ReservationState] = ReservationState.TIMED_OUT
    reasons: tuple[Reason, ...] = ()


class ReservationExpired(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_expired"
):
    """The lease ran out; the devices are quarantined until the node confirms the stop."""

    state: ClassVar[ReservationState] = ReservationState.EXPIRED


class ReservationPreempting(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_preempting"
):
    """Another request will take these devices; the holder has `grace_seconds` to stop."""

    epoch: Epoch
    node_id: NodeId
    grace_seconds: Seconds
    preempted_for: UUID | None = None
    cause: PreemptionCause = PreemptionCause.PRIORITY


class ReservationPreempted(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_preempted"
):
    """Ended for another request."""

    state: ClassVar[ReservationState] = ReservationState.PREEMPTED


class ReservationLost(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_lost"
):
    """A device or its node failed."""

    state: ClassVar[ReservationState] = ReservationState.LOST


class SchedulerCommandRecorded(
    CommandRecorded, frozen=True, kw_only=True, tag="scheduler.command_recorded"
):
    """Of the scheduler's commands."""


RESERVATION_ENDS: tuple[type[ReservationEnded], ...] = (
    ReservationReleased,
    ReservationRejected,
    ReservationCancelled,
    ReservationTimedOut,
    ReservationExpired,
    ReservationPreempted,
    ReservationLost,
)
