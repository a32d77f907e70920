"""Questions to the scheduler, and its answers: reservations, explanations, the ledger, drifts."""

from typing import Annotated, Any
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    DeviceUuid,
    Epoch,
    ListQuery,
    ListView,
    Mebibytes,
    Namespace,
    NodeId,
    PositiveInt,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.gpus.device_grant import ClusterPlacement, DeviceGrant
from schemas.gpus.gpu_request import GpuRequest, Shares
from schemas.scheduler.devices import CordonState, DeviceState
from schemas.scheduler.drifts import DriftAction, DriftKind
from schemas.scheduler.idle import IdleAction
from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason, ReasonCode, Suggestion
from schemas.scheduler.reservations import ReservationState
from schemas.telemetry.readings import HealthState, LinkKind, Source


class NamesHolders(Query, frozen=True, kw_only=True):
    """A query whose reasons name the holders of the reservation's namespace, and of `names_of`;
    None: all.
    """

    names_of: tuple[Namespace, ...] | None = ()


class GetReservation(NamesHolders, frozen=True, kw_only=True, tag="scheduler.get_reservation"):
    """Answered by `ReservationView`."""

    reservation_id: UUID


class ListReservations(ListQuery, frozen=True, kw_only=True, tag="scheduler.list_reservations"):
    """Answered by `ReservationList`, newest first. Empty `states` means all; `names_of` as in
    `NamesHolders`.
    """

    states: tuple[ReservationState, ...] = ()
    namespace: Namespace | None = None
    node_id: NodeId | None = None
    names_of: tuple[Namespace, ...] | None = ()


class ExplainReservation(NamesHolders, frozen=True, kw_only=True, tag="scheduler.explain"):
    """Why does it wait? Answered by `Explanation`."""

    reservation_id: UUID


class GetAvailability(NamesHolders, frozen=True, kw_only=True, tag="scheduler.availability"):
    """Could this request be granted now? Answered by `AvailabilityView`; reserves nothing.

    Reasons name no holders in other namespaces than `namespace` and `names_of`; either None: all.
    """

    request: GpuRequest = GpuRequest()
    namespace: str | None = None


class EstimateRequirements(Query, frozen=True, kw_only=True, tag="scheduler.estimate"):
    """How many GPUs would this task configuration need? Answered by `EstimateView`.

    `task_config` is the free form of the requirements: `model.id_or_path`, `parameters`,
    `parallel_config`.
    """

    task_config: dict[str, Any]


class WhatIf(NamesHolders, frozen=True, kw_only=True, tag="scheduler.what_if"):
    """Would a queued reservation be granted now if it had asked for `request` instead?

    Judged at its own place in the queue. Answered by `AvailabilityView`; changes nothing.
    """

    reservation_id: UUID
    request: GpuRequest


class ListDrifts(ListQuery, frozen=True, kw_only=True, tag="scheduler.drifts"):
    """Where reserved, running and physically used disagree. Answered by `DriftList`.

    None: every node. Ended ones are listed for a day with `ended`.
    """

    node_id: NodeId | None = None
    ended: bool = False


class ListDecisions(Query, frozen=True, kw_only=True, tag="scheduler.decisions"):
    """Recorded decisions after `after_id`, oldest first; with `before_id` the newest before it,
    newest first. Answered by `DecisionList`.

    With a `reservation_id` only those that put in or bring out something of it.
    """

    after_id: Count = 0
    reservation_id: UUID | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    before_id: Count | None = None


class ReplayDecisions(Query, frozen=True, kw_only=True, tag="scheduler.replay"):
    """Decide again what was recorded, by the same rules. Answered by `Replay`.

    From `from_id` on, which begins at the keyframe before it; with a `reservation_id` only what
    concerns it is in the answer. Nothing is changed.
    """

    from_id: Count | None = None
    reservation_id: UUID | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class GetAllocationMap(Query, frozen=True, kw_only=True, tag="scheduler.allocation_map"):
    """What is held on each device? Answered by `AllocationMap`. None: every node.

    As many nodes as fit into a message, in order of their ids, those after `after_node_id`.
    """

    node_id: NodeId | None = None
    after_node_id: NodeId | None = None


class Idleness(Struct, frozen=True, kw_only=True):
    """That nothing has used a reservation since `since_at`. `action` follows at `acts_at` unless
    something does; None: nothing follows, or it has: `preemptible`.
    """

    since_at: UtcDatetime
    action: IdleAction
    acts_at: UtcDatetime | None = None
    preemptible: bool = False


class ReservationView(View, frozen=True, kw_only=True, tag="scheduler.reservation"):
    """A reservation as the ledger has it. `queue_position` counts from 1 while queued.

    With `preempting_until` it has to stop by then; `preempted_for` is what it gives way to.
    `idle` None: something uses it, or nothing is known. Until `idle_exempt_until` it is never idle.
    `forecast_start_at`: see `ReservationGranted`. `nearness` is the farthest link that several
    GPUs of a node need to reach each other, `memory_balance` the smallest free memory of the
    granted GPUs over the largest at the grant; None with one GPU, and where it is unknown.
    `summary` is one clause for people about all reasons, of which `reasons` may list some only.
    `requester` is the person who asked; empty: not known.
    """

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
    node_ids: tuple[NodeId, ...] = ()
    devices: tuple[DeviceGrant, ...] = ()
    lease_expires_at: UtcDatetime | None = None
    quarantined: bool = False
    reasons: tuple[Reason, ...] = ()
    reason: str = ""
    preempting_until: UtcDatetime | None = None
    preempted_for: UUID | None = None
    preempted_by: PreemptionCause | None = None
    cluster: ClusterPlacement | None = None
    idle: Idleness | None = None
    idle_exempt_until: UtcDatetime | None = None
    idle_exempt_reason: str = ""
    forecast_start_at: UtcDatetime | None = None
    nearness: LinkKind | None = None
    memory_balance: float | None = None
    summary: str = ""
    requester: str = ""


class ReservationList(ListView, frozen=True, kw_only=True, tag="scheduler.reservations"):
    """Reservations, newest first."""

    reservations: tuple[ReservationView, ...]


class Explanation(View, frozen=True, kw_only=True, tag="scheduler.explanation"):
    """Every reason that blocks a request; empty if and only if it is granted or active.

    `expected_start_at`, on `expected_node_ids`, is worked out from leases and expected durations;
    None if one that matters is unknown. `suggestion` is None if nothing that the request can give
    up would help. On a large fleet only some reasons are listed with their sentence, every
    code among them; `reasons_left_out` counts the rest.
    """

    reservation_id: UUID
    state: ReservationState
    queue_position: PositiveInt | None
    queue_length: Count
    reasons: tuple[Reason, ...]
    summary: str
    expected_start_at: UtcDatetime | None = None
    suggestion: Suggestion | None = None
    reasons_left_out: dict[ReasonCode, PositiveInt] = {}
    expected_node_ids: tuple[NodeId, ...] = ()


class AvailabilityView(View, frozen=True, kw_only=True, tag="scheduler.availability_view"):
    """Whether a request would be granted now, on what, and every reason if not.

    `impossible`: this fleet can never serve it, so that waiting for it is in vain and a reservation
    of it is rejected. `largest_memory_mb` is that of the largest device which could serve it but
    for its memory, told where it is impossible, and of clusters; None: not known. The rest as in
    `Explanation`.
    """

    available: bool
    message: str
    devices: tuple[DeviceGrant, ...] = ()
    reasons: tuple[Reason, ...] = ()
    expected_start_at: UtcDatetime | None = None
    suggestion: Suggestion | None = None
    reasons_left_out: dict[ReasonCode, PositiveInt] = {}
    impossible: bool = False
    largest_memory_mb: Mebibytes | None = None


class EstimateView(View, frozen=True, kw_only=True, tag="scheduler.estimate_view"):
    """`world_size = tp * pp * max(dp, dcp, cp)`, of the largest combination; memory per GPU by
    model name.
    """

    gpus: PositiveInt
    min_memory_mb: Mebibytes
    world_size: PositiveInt


class DeviceHolder(Struct, frozen=True, kw_only=True):
    """A reservation that holds a device, or as much of it as `shares` says."""

    reservation_id: UUID
    shares: Shares
    namespace: Namespace | None = None
    holder: str | None = None
    requester: str = ""


class DeviceAllocation(Struct, frozen=True, kw_only=True):
    """One device in the allocation map.

    `allocated` is what is held of its `capacity`, in shares, by its `holders`; `reservation_id`,
    `namespace` and `holder` are those of the first. `kind` is "gpu" or "mig"; None readings are
    unknown. `reasons` say why it would not be granted now, other than that it is held; their
    sentences leave out the device.
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
    reasons: tuple[Reason, ...] = ()
    cordon: CordonState | None = None
    kind: str = "gpu"
    capacity: float = 1.0
    holders: tuple[DeviceHolder, ...] = ()
    mig_profile: str | None = None


class NodeAllocation(Struct, frozen=True, kw_only=True):
    """A node with its devices; `fresh` says whether its readings are recent enough to grant on.

    `cordon` is that of the whole node; its devices have theirs. `labels` are the agent's, and over
    them the operator's. Nothing is granted before it is `admitted`.
    """

    node_id: NodeId
    source: Source
    fresh: bool
    devices: tuple[DeviceAllocation, ...]
    cordon: CordonState | None = None
    labels: dict[str, str] = {}
    admitted: bool = True


class AllocationMap(View, frozen=True, kw_only=True, tag="scheduler.allocation_map_view"):
    """The ledger, node by node. `next_after_node_id` is set where more nodes follow."""

    nodes: tuple[NodeAllocation, ...]
    next_after_node_id: NodeId | None = None


class Drift(Struct, frozen=True, kw_only=True):
    """A disagreement of the three ledgers; `ended_at` None while it lasts."""

    drift_id: UUID
    drift: DriftKind
    node_id: NodeId
    since_at: UtcDatetime
    age_seconds: Seconds
    action: DriftAction
    detail: str
    device_uuid: DeviceUuid | None = None
    reservation_id: UUID | None = None
    pids: tuple[int, ...] = ()
    ended_at: UtcDatetime | None = None


class DriftList(ListView, frozen=True, kw_only=True, tag="scheduler.drifts_view"):
    """Drifts, oldest first."""

    drifts: tuple[Drift, ...]


class DecisionRecord(Struct, frozen=True, kw_only=True):
    """One recorded turn of the decision engine: what was put in, and what came out.

    `inputs` and `outcomes` are the engine's own JSON; `keyframe` marks a record whose inputs are
    the whole state, from which a replay can begin.
    """

    decision_id: Count
    term: Count
    decided_at: UtcDatetime
    keyframe: bool
    inputs: Any
    outcomes: Any


class DecisionList(View, frozen=True, kw_only=True, tag="scheduler.decisions_view"):
    """Decisions, oldest first. `next_after_id` is set where more follow; of the newest first it is
    `next_before_id`.

    A list ends early where it would not fit into a message; `inputs` that alone do not fit are
    given as their counts by kind.
    """

    decisions: tuple[DecisionRecord, ...]
    next_after_id: Count | None = None
    next_before_id: Count | None = None


class ReplayedDecision(Struct, frozen=True, kw_only=True):
    """A recorded turn decided again. `replayed` is None where it is what was recorded."""

    decision_id: Count
    term: Count
    decided_at: UtcDatetime
    same: bool
    recorded: Any
    replayed: Any = None


class Replay(View, frozen=True, kw_only=True, tag="scheduler.replay_view"):
    """Decisions decided again, oldest first; `keyframe_id` is where that began.

    `checked` counts every decision on the way, also those that are not listed; `different` those of
    them that came out otherwise. `next_from_id` is set where more follow.
    """

    decisions: tuple[ReplayedDecision, ...]
    keyframe_id: Count | None
    checked: Count
    different: Count
    next_from_id: Count | None = None
