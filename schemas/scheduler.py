"""Reservations: commands, facts, questions, and the closed set of reasons why a request has to
wait.
"""

from enum import StrEnum
from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Command,
    Count,
    DeviceUuid,
    Epoch,
    Event,
    Mebibytes,
    Namespace,
    NodeId,
    Percent,
    PositiveInt,
    PositiveSeconds,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.telemetry import HealthState, Source

GpuCount = Annotated[int, Meta(ge=1, le=4096)]
LeaseTtlSeconds = Annotated[float, Meta(ge=3, le=3600)]


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


LIVE_STATES = frozenset(
    {ReservationState.GRANTED, ReservationState.ACTIVE, ReservationState.RELEASING}
)
OPEN_STATES = LIVE_STATES | {ReservationState.QUEUED}


class DeviceState(StrEnum):
    """A device in the ledger."""

    FREE = "free"
    HELD = "held"
    QUARANTINED = "quarantined"  # its last holder's stop is not confirmed
    CORDONED = "cordoned"


class ReasonCode(StrEnum):
    """Why a device, a node or the whole fleet does not serve a request now."""

    HELD = "held"
    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    UNHEALTHY = "unhealthy"
    NO_READING = "no_reading"
    STALE_READING = "stale_reading"
    AWAITING_SNAPSHOT = (
        "awaiting_snapshot"  # just released; the first reading after it is under way
    )
    UTILIZATION_UNKNOWN = "utilization_unknown"
    MEMORY_UNKNOWN = "memory_unknown"
    UTILIZATION_ABOVE_LIMIT = "utilization_above_limit"
    INSUFFICIENT_FREE_MEMORY = "insufficient_free_memory"
    INSUFFICIENT_TOTAL_MEMORY = "insufficient_total_memory"
    NODE_MISMATCH = "node_mismatch"
    MODEL_MISMATCH = "model_mismatch"
    UUID_MISMATCH = "uuid_mismatch"
    TOO_FEW_DEVICES = "too_few_devices"
    MEMORY_UNBALANCED = "memory_unbalanced"
    BEHIND_IN_QUEUE = "behind_in_queue"
    NO_GPUS = "no_gpus"  # no node of this installation reports a GPU
    EXCEEDS_LARGEST_NODE = "exceeds_largest_node"
    ENDED = "ended"  # the reservation is over and waits for nothing any more


class Placement(StrEnum):
    """`pack` fills the fullest node that fits, `spread` takes the emptiest."""

    PACK = "pack"
    SPREAD = "spread"


class GpuRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whole GPUs of one node, exclusively.

    Empty selectors match everything. `min_memory_mb` None asks for at least half of the device's
    memory to be free. `lease_ttl_seconds` is how long a grant lives without renewal;
    `wait_timeout_seconds` how long the request may queue.
    """

    gpus: GpuCount = 1
    min_memory_mb: Mebibytes | None = None
    max_utilization_percent: Percent = 50.0
    node_ids: tuple[NodeId, ...] = ()
    device_uuids: tuple[DeviceUuid, ...] = ()
    gpu_models: tuple[str, ...] = ()
    balanced_memory: bool = False
    placement: Placement = Placement.PACK
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    wait_timeout_seconds: PositiveSeconds = 300.0
    lease_ttl_seconds: LeaseTtlSeconds = 30.0
    expected_duration_seconds: PositiveSeconds | None = None
    preemptible: bool = False


class DeviceGrant(Struct, frozen=True, kw_only=True):
    """A device handed to a reservation.

    `index` is the node's at the time of the grant; `uuid` is what counts.
    """

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    memory_total_mb: Mebibytes | None = None
    simulated: bool = False
    score: float | None = None


class Reason(Struct, frozen=True, kw_only=True):
    """One cause of waiting: a code for programs, a sentence for people, and where."""

    code: ReasonCode
    message: str
    node_id: NodeId | None = None
    device_uuid: DeviceUuid | None = None


class RequestReservation(Command, frozen=True, kw_only=True, tag="scheduler.request_reservation"):
    """Ask for GPUs. Accepted means stored; the grant, rejection or time-out follows as an event.

    The requester chooses `reservation_id`. `holder` says for what, for people (`experiment/<id>`,
    `exec/<user>`).
    """

    reservation_id: UUID
    namespace: Namespace = "default"
    holder: Annotated[str, Meta(max_length=200)] = ""
    request: GpuRequest = GpuRequest()


class RenewReservation(Command, frozen=True, kw_only=True, tag="scheduler.renew_reservation"):
    """Keep a lease. `activate`: the holder is about to start; granted becomes active.

    Refused with `lease_lost` or `stale_epoch`, after which the holder stops.
    """

    reservation_id: UUID
    epoch: Epoch
    activate: bool = False


class ReleaseReservation(Command, frozen=True, kw_only=True, tag="scheduler.release_reservation"):
    """Give the devices back.

    `stopped`: nothing of it runs any more; False sends the devices into quarantine first.
    """

    reservation_id: UUID
    epoch: Epoch
    stopped: bool = True
    reason: str = ""


class CancelReservation(Command, frozen=True, kw_only=True, tag="scheduler.cancel_reservation"):
    """End a reservation in whatever state it is; devices already granted are freed once their node
    confirmed the stop.
    """

    reservation_id: UUID
    reason: str = ""


class Cordon(Command, frozen=True, kw_only=True, tag="scheduler.cordon"):
    """Grant nothing new on a device (None: on the whole node)."""

    node_id: NodeId
    device_uuid: DeviceUuid | None = None
    reason: str = ""


class Uncordon(Command, frozen=True, kw_only=True, tag="scheduler.uncordon"):
    """Take a device (None: the whole node) back into service.

    `confirm_stopped` also frees quarantined holdings.
    """

    node_id: NodeId
    device_uuid: DeviceUuid | None = None
    confirm_stopped: bool = False
    reason: str = ""


class Drain(Command, frozen=True, kw_only=True, tag="scheduler.drain"):
    """Cordon a node and end its reservations."""

    node_id: NodeId
    reason: str = ""


class ReservationEvent(Event, frozen=True, kw_only=True):
    """What all reservation facts carry."""

    key_field: ClassVar[str | None] = "reservation_id"
    reservation_id: UUID
    namespace: Namespace
    holder: str


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
    """Devices are held for this reservation under `epoch` until the lease ends without renewal."""

    epoch: Epoch
    node_id: NodeId
    devices: tuple[DeviceGrant, ...]
    lease_ttl_seconds: LeaseTtlSeconds
    waited_seconds: Seconds


class ReservationActivated(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_activated"
):
    """The holder confirmed that it starts."""

    epoch: Epoch
    node_id: NodeId


class ReservationEnded(ReservationEvent, frozen=True, kw_only=True):
    """What all ends carry; epoch, node and devices are None and empty if it never was granted."""

    epoch: Epoch | None = None
    node_id: NodeId | None = None
    devices: tuple[DeviceGrant, ...] = ()
    reason: str = ""


class ReservationReleased(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_released"
):
    """Given back, stop confirmed."""


class ReservationRejected(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_rejected"
):
    """Can never fit on this fleet."""

    reasons: tuple[Reason, ...] = ()


class ReservationCancelled(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_cancelled"
):
    """Ended on request."""


class ReservationTimedOut(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_timed_out"
):
    """Queued longer than its wait timeout; `reasons` are those of the last look."""

    reasons: tuple[Reason, ...] = ()


class ReservationExpired(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_expired"
):
    """The lease ran out; the devices are quarantined until the node confirms the stop."""


class ReservationPreempting(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_preempting"
):
    """Another request will take these devices; the holder has `grace_seconds` to stop."""

    epoch: Epoch
    node_id: NodeId
    grace_seconds: Seconds


class ReservationPreempted(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_preempted"
):
    """Ended for another request."""


class ReservationLost(
    ReservationEnded, frozen=True, kw_only=True, tag="scheduler.reservation_lost"
):
    """A device or its node failed."""


class DeviceEvent(Event, frozen=True, kw_only=True):
    """What all device facts carry."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    device_uuid: DeviceUuid
    reservation_id: UUID | None = None
    reason: str = ""


class DeviceQuarantined(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_quarantined"):
    """Its last holder's stop is not confirmed; not granted until then."""


class DeviceFreed(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_freed"):
    """The stop was confirmed by the node, or by an administrator."""


class DeviceCordoned(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_cordoned"):
    """Taken out of service."""


class DeviceUncordoned(DeviceEvent, frozen=True, kw_only=True, tag="scheduler.device_uncordoned"):
    """Back in service."""


class DriftKind(StrEnum):
    """How reserved, running and physically used disagree."""

    GHOST_RESERVATION = "ghost_reservation"
    ORPHAN_WORKLOAD = "orphan_workload"
    SQUATTER = "squatter"
    UNDERUSE = "underuse"
    STALE_AGENT = "stale_agent"


class DriftEvent(Event, frozen=True, kw_only=True):
    """What drift facts carry."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    drift: DriftKind
    device_uuid: DeviceUuid | None = None
    reservation_id: UUID | None = None
    detail: str = ""


class DriftDetected(DriftEvent, frozen=True, kw_only=True, tag="scheduler.drift_detected"):
    """The ledgers disagree."""


class DriftResolved(DriftEvent, frozen=True, kw_only=True, tag="scheduler.drift_resolved"):
    """They agree again."""


class GetReservation(Query, frozen=True, kw_only=True, tag="scheduler.get_reservation"):
    """Answered by `ReservationView`."""

    reservation_id: UUID


class ListReservations(Query, frozen=True, kw_only=True, tag="scheduler.list_reservations"):
    """Answered by `ReservationList`, newest first. Empty `states` means all."""

    states: tuple[ReservationState, ...] = ()
    namespace: Namespace | None = None
    node_id: NodeId | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class ExplainReservation(Query, frozen=True, kw_only=True, tag="scheduler.explain"):
    """Why does it wait? Answered by `Explanation`."""

    reservation_id: UUID


class GetAvailability(Query, frozen=True, kw_only=True, tag="scheduler.availability"):
    """Could this request be granted now? Answered by `AvailabilityView`; reserves nothing."""

    request: GpuRequest = GpuRequest()


class EstimateRequirements(Query, frozen=True, kw_only=True, tag="scheduler.estimate"):
    """How many GPUs would this task configuration need? Answered by `EstimateView`.

    `task_config` is the free form of the requirements: `model.id_or_path`, `parameters`,
    `parallel_config`.
    """

    task_config: dict[str, Any]


class GetAllocationMap(Query, frozen=True, kw_only=True, tag="scheduler.allocation_map"):
    """What is held on each device? Answered by `AllocationMap`. None: every node."""

    node_id: NodeId | None = None


class SelectNode(Query, frozen=True, kw_only=True, tag="scheduler.select_node"):
    """The best node for an InferenceService. Answered by `NodeSelection`."""

    required_gpus: GpuCount = 1
    utilization_threshold: Percent = 30.0
    memory_threshold: Percent = 50.0


class ReservationView(View, frozen=True, kw_only=True, tag="scheduler.reservation"):
    """A reservation as the ledger has it. `queue_position` counts from 1 while queued."""

    reservation_id: UUID
    namespace: Namespace
    holder: str
    state: ReservationState
    request: GpuRequest
    revision: Count
    requested_at: UtcDatetime
    wait_deadline_at: UtcDatetime | None = None
    queue_position: PositiveInt | None = None
    granted_at: UtcDatetime | None = None
    ended_at: UtcDatetime | None = None
    epoch: Epoch | None = None
    node_id: NodeId | None = None
    devices: tuple[DeviceGrant, ...] = ()
    lease_expires_at: UtcDatetime | None = None
    quarantined: bool = False
    reasons: tuple[Reason, ...] = ()
    reason: str = ""


class ReservationList(View, frozen=True, kw_only=True, tag="scheduler.reservations"):
    """Reservations, newest first."""

    reservations: tuple[ReservationView, ...]


class Explanation(View, frozen=True, kw_only=True, tag="scheduler.explanation"):
    """Every reason that blocks a request; empty if and only if it is granted or active."""

    reservation_id: UUID
    state: ReservationState
    queue_position: PositiveInt | None
    queue_length: Count
    reasons: tuple[Reason, ...]
    summary: str


class AvailabilityView(View, frozen=True, kw_only=True, tag="scheduler.availability_view"):
    """Whether a request would be granted now, on what, and every reason if not."""

    available: bool
    message: str
    devices: tuple[DeviceGrant, ...] = ()
    reasons: tuple[Reason, ...] = ()


class EstimateView(View, frozen=True, kw_only=True, tag="scheduler.estimate_view"):
    """`world_size = tp * pp * max(dp, dcp, cp)`, of the largest combination; memory per GPU by
    model name.
    """

    gpus: PositiveInt
    min_memory_mb: Mebibytes
    world_size: PositiveInt


class DeviceAllocation(Struct, frozen=True, kw_only=True):
    """One device in the allocation map.

    `allocated` is the held share, 0 to 1; None readings are unknown.
    """

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    state: DeviceState
    allocated: float
    health: HealthState
    simulated: bool
    memory_total_mb: Mebibytes | None = None
    reservation_id: UUID | None = None
    namespace: Namespace | None = None
    holder: str | None = None


class NodeAllocation(Struct, frozen=True, kw_only=True):
    """A node with its devices; `fresh` tells whether its readings are recent enough to grant on."""

    node_id: NodeId
    source: Source
    fresh: bool
    devices: tuple[DeviceAllocation, ...]


class AllocationMap(View, frozen=True, kw_only=True, tag="scheduler.allocation_map_view"):
    """The ledger, node by node."""

    nodes: tuple[NodeAllocation, ...]


class NodeSelection(View, frozen=True, kw_only=True, tag="scheduler.node_selection"):
    """The chosen node; None leaves the choice to Kubernetes."""

    node_id: NodeId | None
    message: str = ""
