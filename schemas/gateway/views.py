"""What the gateway itself publishes and the shapes that only people's clients see.

`/ws/metrics` sends `GpuMetrics` and `executor.AttemptProgressed`, distinguished by `type`;
`/ws/events` sends `StoredEvent`.
"""

from typing import Annotated, Any, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    DeviceUuid,
    Epoch,
    Event,
    GivenDeviceUuid,
    GivenReason,
    ListView,
    Mebibytes,
    Namespace,
    NodeId,
    Person,
    PositiveInt,
    Seconds,
    Token,
    UtcDatetime,
    View,
)
from schemas.executor.attempts import RuntimeOffer
from schemas.gpus.checks import ResourceDefinition
from schemas.gpus.gpu_request import GpuRequest
from schemas.orchestrator.views import ExperimentView
from schemas.results.measurements import GpuMemoryTrend, GpuMonitoring
from schemas.results.series import WhoseReading
from schemas.scheduler.devices import CordonState, DeviceState
from schemas.scheduler.idle import ExemptionReason
from schemas.scheduler.namespaces import GpuAmount, Weight
from schemas.scheduler.nodes import LabelChanges
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import Holder, SetBy
from schemas.scheduler.views import DeviceHolder, Explanation, NodeAllocation
from schemas.task.benchmark import BenchmarkMetrics, BenchmarkResult
from schemas.task.dataset import DatasetUse
from schemas.task.trace import TraceUse
from schemas.telemetry.readings import (
    BurstSeconds,
    FaultSeen,
    GpuLink,
    HealthState,
    HostFacts,
    Source,
)

DaySeconds = Annotated[float, Meta(gt=0, le=86_400)]


class CustomEvent(Event, frozen=True, kw_only=True, tag="gateway.custom"):
    """An event that a user published through the API."""

    speaker_field: ClassVar[str | None] = "namespace"
    key_field: ClassVar[str | None] = "name"
    name: Token
    namespace: Namespace
    data: dict[str, Any]


class StoredEvent(Struct, frozen=True, kw_only=True):
    """An event in the gateway's log. `cursor` only grows; a client resumes after the last seen."""

    cursor: int
    subject: str
    type: str
    message_id: UUID
    occurred_at: UtcDatetime
    event: dict[str, Any]


class MeasuredMetrics(BenchmarkMetrics, frozen=True, kw_only=True):
    """An experiment's aggregate with what its GPUs did meanwhile."""

    gpu_monitoring: GpuMonitoring | None = None


class ExperimentDetail(ExperimentView, frozen=True, kw_only=True, tag="orchestrator.experiment"):
    """An experiment joined to its measurements, and while it waits to the reasons why.

    `benchmark`, `explanation` and `failure_memory` are those of one experiment; lists leave them
    out. `failure_memory`: what its GPUs' memory did before its last attempt failed for want of it.
    `image_digest` is of the container image that it was measured with, else of its newest attempt
    that had one; `dataset` what its prompts were of, `trace` its requests. `missing` names services
    whose part is not there because they did not answer.
    """

    metrics: MeasuredMetrics | None = None
    benchmark: BenchmarkResult | None = None
    explanation: Explanation | None = None
    missing: tuple[str, ...] = ()
    failure_memory: tuple[GpuMemoryTrend, ...] = ()
    image_digest: str | None = None
    dataset: DatasetUse | None = None
    trace: TraceUse | None = None


class ExperimentDetails(ListView, frozen=True, kw_only=True, tag="orchestrator.experiments"):
    """Experiments, newest task first, then by ordinal."""

    experiments: tuple[ExperimentDetail, ...]


class GpuProcessView(Struct, frozen=True, kw_only=True):
    """A process with memory on a GPU."""

    pid: int
    name: str | None = None
    memory_used_mb: Mebibytes | None = None
    container_id: str | None = None
    reservation_id: UUID | None = None
    pod_uid: str | None = None


class GpuPodView(Struct, frozen=True, kw_only=True):
    """A container of a Kubernetes pod that was given the GPU, or a share of it.

    `kind`, `percent` and `owner` are as telemetry's `GpuPod` has them, `memory_given_mb` what of
    the GPU's memory it was given; None: nothing tells. `memory_used_mb` and `utilization_percent`
    are what its pod uses, by all of its containers: with `reading` `own` the pod has the device
    alone, or its processes told; with `gpu` they are the whole GPU's, which others have as well.
    None: an older gateway.
    """

    namespace: str
    pod: str
    container: str
    kind: str = ""
    percent: int | None = None
    memory_given_mb: Mebibytes | None = None
    owner: str = ""
    reading: WhoseReading | None = None
    memory_used_mb: Mebibytes | None = None
    utilization_percent: float | None = None


class GpuView(View, frozen=True, kw_only=True, tag="gateway.gpu"):
    """A GPU: its last reading joined to the scheduler's ledger. None is unknown, never 0.

    Without `fresh` later readings should have come. `availability_score` is 0.6 x free memory share
    + 0.4 x idle share, None if one of them is unknown. `state`, `reservation_id`, `namespace` and
    `holder` are None while the scheduler does not know the device. `holders` are all that hold it,
    with their shares; the first is `holder`. `reasons` say why it would not be granted now, as
    `DeviceAllocation` has them.
    """

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    source: Source
    simulated: bool
    observed_at: UtcDatetime | None = None
    age_seconds: Seconds | None = None
    fresh: bool = False
    stale: bool = True  # not `fresh`; for readers of before, nothing of ours reads it
    availability_score: float | None = None
    processes: tuple[GpuProcessView, ...] | None = None
    pods: tuple[GpuPodView, ...] | None = None
    # Of the reading, as telemetry's `GpuReading`.
    utilization_percent: float | None = None
    memory_total_mb: Mebibytes | None = None
    memory_used_mb: Mebibytes | None = None
    memory_free_mb: Mebibytes | None = None
    temperature_c: float | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    energy_mj: Count | None = None
    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    throttle_reasons: tuple[str, ...] | None = None
    performance_state: Count | None = None
    fan_percent: float | None = None
    memory_utilization_percent: float | None = None
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    pcie_generation: Count | None = None
    pcie_width: Count | None = None
    ecc_corrected: Count | None = None
    ecc_uncorrected: Count | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    # Of the device, as telemetry's `DeviceFacts`.
    health: HealthState = HealthState.OK
    health_detail: str | None = None
    pci_bus_id: str | None = None
    numa_node: int | None = None
    mig_enabled: bool | None = None
    mig_profile: str | None = None
    parent_uuid: DeviceUuid | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    recent_faults: tuple[FaultSeen, ...] = ()
    # Of the ledger.
    state: DeviceState | None = None
    reservation_id: UUID | None = None
    namespace: Namespace | None = None
    holder: str | None = None
    holders: tuple[DeviceHolder, ...] = ()
    reasons: tuple[Reason, ...] = ()
    cordon: CordonState | None = None


class GpuList(ListView, frozen=True, kw_only=True, tag="gateway.gpus"):
    """GPUs by node and index."""

    gpus: tuple[GpuView, ...]


class NodeView(View, frozen=True, kw_only=True, tag="gateway.node"):
    """A node as its agents report it. `runtimes` is empty while no executor runs there.

    `cordon` is that of the whole node; its GPUs have theirs. `reasons` count the GPUs that would
    not be granted now, though nobody holds them. One that is not `admitted` waits for an
    administrator. `links` between its GPUs are there where one node is asked for.
    """

    node_id: NodeId
    source: Source
    simulated: bool
    fresh: bool
    gpus_total: Count
    gpus_free: Count = 0
    last_seen_at: UtcDatetime | None = None
    host: HostFacts | None = None
    labels: dict[str, str] = {}
    runtimes: tuple[RuntimeOffer, ...] = ()
    cordon: CordonState | None = None
    reasons: dict[ReasonCode, PositiveInt] = {}
    admitted: bool = True
    links: tuple[GpuLink, ...] = ()


class ClusterDevice(Struct, frozen=True, kw_only=True):
    """A custom device that a Kubernetes cluster's ConfigMaps define."""

    cluster_id: NodeId
    definition: ResourceDefinition


class ClusterDeviceList(ListView, frozen=True, kw_only=True, tag="gateway.cluster_devices"):
    """Custom devices by cluster and key, as the clusters' executors offer them."""

    devices: tuple[ClusterDevice, ...]


class NodeList(ListView, frozen=True, kw_only=True, tag="gateway.nodes"):
    """Nodes by id."""

    nodes: tuple[NodeView, ...]


class GpuMetrics(View, frozen=True, kw_only=True, tag="gateway.gpu_metrics"):
    """A node's reading, as `/ws/metrics` sends it: a slow client gets only the newest.

    `age_seconds` is how long it has been here, `skipped` how many of the node's readings came since
    the last one that this client was sent.
    """

    node_id: NodeId
    sequence: Count
    observed_at: UtcDatetime
    simulated: bool
    gpus: tuple[GpuView, ...]
    age_seconds: Seconds = 0.0
    skipped: Count = 0


class GpuAllocMap(View, frozen=True, kw_only=True, tag="scheduler.allocation_map_view"):
    """A node's part of the allocation map, and the held share of each device, "0.00" to "1.00"."""

    nodes: tuple[NodeAllocation, ...]
    gpu_alloc_map: dict[str, str]


class ReservationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Asks for GPUs. `namespace` absent is the caller's own; `holder` says for what, for people.

    `requester` absent is the caller itself; only an admin names somebody else.
    """

    reservation_id: UUID | None = None
    namespace: Namespace | None = None
    holder: Holder = ""
    request: GpuRequest = GpuRequest()
    requester: Person | None = None


class LeaseRenewal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Keeps a lease; `activate` before anything starts on the devices."""

    epoch: Epoch
    activate: bool = False


class IdleExemption(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Until when a reservation is never idle, and why."""

    until_at: UtcDatetime
    reason: ExemptionReason


class Cause(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why an action is taken, and by whom, for people."""

    reason: GivenReason = ""
    set_by: SetBy = ""


class Withdrawal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Takes a device, or with None the whole node, out of service. `set_by` says who asks."""

    device_uuid: GivenDeviceUuid | None = None
    reason: GivenReason = ""
    set_by: SetBy = ""


class ReturnToService(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Takes a device, or with None the whole node, back into service.

    `confirm_stopped` vouches that nothing runs there any more of what is quarantined.
    """

    device_uuid: GivenDeviceUuid | None = None
    confirm_stopped: bool = False
    reason: GivenReason = ""


class Relabelling(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sets labels of a node; null takes one away. They win over what the node's agent reports."""

    labels: LabelChanges


class NamespaceRules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a namespace may hold at once, in GPUs, and what it is due; null is no limit."""

    gpu_limit: GpuAmount | None = None
    guaranteed_gpus: GpuAmount = 0.0
    weight: Weight = 1


class MonitoringRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Starts watching a node, until it is stopped or `max_seconds` are over."""

    monitoring_id: UUID | None = None
    interval_seconds: BurstSeconds = 1.0
    max_seconds: DaySeconds = 3600.0


class BurstRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Has a node sample faster for a while."""

    interval_seconds: BurstSeconds = 0.1
    duration_seconds: DaySeconds
    experiment_id: UUID | None = None


class PowerLimitRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Caps a device's power, locks its SM clock, or both; None for both takes both back.

    Without a reservation it is an admin's.
    """

    device_uuid: GivenDeviceUuid
    power_limit_w: Annotated[float, Meta(gt=0)] | None
    reservation_id: UUID | None = None
    sm_clock_mhz: PositiveInt | None = None


class CustomEventRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event to publish."""

    name: Token
    namespace: Namespace | None = None
    data: dict[str, Any] = {}


class EventList(View, frozen=True, kw_only=True, tag="gateway.events"):
    """Events in the order of their cursors. `cursor` is the last looked at: ask after it next.

    Those of a node are the newest first: ask before it next.
    """

    events: tuple[StoredEvent, ...]
    cursor: Count


class Published(View, frozen=True, kw_only=True, tag="gateway.published"):
    """A stored event of a user; its cursor follows once it has passed the bus."""

    message_id: UUID
