"""What node agents report: samples, inventory, health.

A field that could not be read is None, never 0.
"""

from enum import StrEnum
from typing import Annotated, ClassVar
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Command,
    Count,
    DeviceUuid,
    Event,
    Line,
    Mebibytes,
    NodeId,
    PositiveInt,
    PositiveSeconds,
    Query,
    Sample,
    UtcDatetime,
)
from schemas.gpus.mig import MigLayout

BurstSeconds = Annotated[float, Meta(ge=0.1, le=60)]
# As the driver says it, without a bound: one that a reader cannot hold is left out there, and the
# rest of its sample counts.
DriverInteger = Annotated[int, Meta(ge=0)]


class Source(StrEnum):
    """Where readings come from.

    `none`: the host has no GPU that could be read; the agent reports no devices. `kubernetes` is a
    cluster, whose nodes' GPUs are read there.
    """

    NVML = "nvml"
    NVIDIA_SMI = "nvidia-smi"
    AMD = "amd"
    DCGM = "dcgm"
    SIMULATED = "simulated"
    NONE = "none"
    KUBERNETES = "kubernetes"


class HealthState(StrEnum):
    """A device's health as its agent sees it; only `ok` devices are granted."""

    OK = "ok"
    LOST = "lost"  # no longer answers, or fell off the bus
    HUNG = "hung"  # the probe did not return within its deadline
    FAILING = "failing"  # needs repair by its own word: a row of memory could not be remapped


class HealthAction(StrEnum):
    """What an operator does about a fault; `drain` and `reset` take the device out of service."""

    IGNORE = "ignore"
    RESTART_APPLICATION = "restart_application"
    DRAIN = "drain"
    RESET = "reset"


class BufferedMetric(StrEnum):
    """What the driver samples by itself between two ticks."""

    UTILIZATION_PERCENT = "utilization_percent"
    POWER_DRAW_W = "power_draw_w"


class Buffered(Struct, frozen=True, array_like=True, gc=False):
    """The driver's own samples of one metric since the last tick, in brief.

    `first_at_us` and `last_at_us` are the driver's timestamps: microseconds since the epoch, by its
    clock.
    """

    metric: BufferedMetric
    count: Count
    minimum: float
    maximum: float
    mean: float
    first_at_us: Count
    last_at_us: Count


class GpuPod(Struct, frozen=True, array_like=True, gc=False, order=True):
    """A container of a Kubernetes pod to which a GPU, or a share of it, was given.

    `kind` is a `GpuKind`, empty from an older agent; `percent` is how much of the device it was
    given, and `memory_mb` the memory, None where nothing tells. `uid`, `reservation_id` and
    `owner`, such as Deployment/llama, are the cluster's own word, empty where it was not asked.
    """

    namespace: str
    pod: str
    container: str
    kind: str = ""
    percent: int | None = None
    memory_mb: Mebibytes | None = None
    uid: str = ""
    reservation_id: str = ""
    owner: str = ""  # last: a stored condition of pods is known by a text at its end


class PodUse(Struct, frozen=True, array_like=True, gc=False):
    """What the processes of one of several pods on a GPU use of it; None is unknown."""

    uid: str
    memory_used_mb: Mebibytes | None = None
    utilization_percent: float | None = None


class GpuProcess(Struct, frozen=True, array_like=True, gc=False):
    """A process with memory on a GPU.

    `reservation_id` comes from `GPUSTEWARD_RESERVATION` in its environment, else from its
    container's label. `pod_uid` is Kubernetes' own id of the pod it runs in. `utilization_percent`
    is read only where processes of several pods are on one GPU.
    """

    pid: int
    name: str | None = None
    memory_used_mb: Mebibytes | None = None
    container_id: str | None = None
    reservation_id: UUID | None = None
    pod_uid: str | None = None
    utilization_percent: float | None = None


class GpuReading(Struct, frozen=True, array_like=True, gc=False):
    """One GPU at one tick. Fields are only ever appended: the wire form is positional.

    `ecc_*` count since the driver was loaded. `nvlinks_up` has the state of each link, by the
    link's number. `performance_state` 0 is the fastest (P0). `memory_utilization_percent` is the
    share of time in which memory was read or written, `buffered` what the driver saw between ticks.
    `pods` are the containers that kubelet gave it to; None where no kubelet was asked. `pod_uses`
    is what each of several pods uses, as far as their processes tell; one alone uses what is read.
    """

    uuid: DeviceUuid
    index: Count
    utilization_percent: float | None = None
    memory_total_mb: DriverInteger | None = None
    memory_used_mb: DriverInteger | None = None
    memory_free_mb: DriverInteger | None = None
    temperature_c: float | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    energy_mj: DriverInteger | None = None
    sm_clock_mhz: DriverInteger | None = None
    memory_clock_mhz: DriverInteger | None = None
    throttle_reasons: tuple[str, ...] | None = None
    ecc_corrected: DriverInteger | None = None
    ecc_uncorrected: DriverInteger | None = None
    processes: tuple[GpuProcess, ...] | None = None
    name: str | None = None
    performance_state: DriverInteger | None = None
    fan_percent: float | None = None
    memory_utilization_percent: float | None = None
    encoder_percent: float | None = None
    decoder_percent: float | None = None
    pcie_generation: DriverInteger | None = None
    pcie_width: DriverInteger | None = None
    retired_pages: DriverInteger | None = None
    retired_pages_pending: bool | None = None
    remapped_rows_corrected: DriverInteger | None = None
    remapped_rows_uncorrected: DriverInteger | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    nvlinks_up: tuple[bool, ...] | None = None
    buffered: tuple[Buffered, ...] | None = None
    pods: tuple[GpuPod, ...] | None = None
    pod_uses: tuple[PodUse, ...] | None = None


class GpuSampled(Sample, frozen=True, kw_only=True, array_like=True, tag="telemetry.gpu_sampled"):
    """All GPUs of a node at one tick, ordered by index. Identity: node, boot id, sequence.

    `sequence` grows by one per tick within a boot of the agent, so a gap is countable.
    `observed_at` is the node's clock.
    """

    boot_id: UUID
    sequence: Count
    observed_at: UtcDatetime
    interval_seconds: PositiveSeconds
    source: Source
    gpus: tuple[GpuReading, ...]

    @property
    def simulated(self) -> bool:
        """True if the simulated source made these readings up."""
        return self.source is Source.SIMULATED


class FaultSeen(Struct, frozen=True, kw_only=True):
    """A fault of a device that an agent published as an event, repeated for consumers that missed
    it.

    `event_id` is the `message_id` of that event.
    """

    event_id: UUID
    occurred_at: UtcDatetime
    change: "HealthKind"
    action: HealthAction
    xid: int | None = None
    detail: str = ""


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """What does not change while a device is in its node, and its present health.

    `index` is unique in the node; MIG instances are numbered after the whole GPUs, and
    `parent_uuid`, `mig_profile` (`1g.10gb`) and the instance ids say what they are. A GPU in MIG
    mode is listed beside its instances. Power limits are what the device allows, not what is set.
    `recent_faults` are the newest eight of this boot of the agent, oldest first. `mig_layout` is
    that of a GPU in MIG mode whose agent may make instances.
    """

    uuid: DeviceUuid
    index: Count
    name: str
    memory_total_mb: Mebibytes | None = None
    pci_bus_id: str | None = None
    serial: str | None = None
    compute_capability: str | None = None
    numa_node: int | None = None
    mig_enabled: bool | None = None
    parent_uuid: DeviceUuid | None = None
    simulated: bool = False
    health: HealthState = HealthState.OK
    health_detail: str | None = None
    mig_profile: str | None = None
    gpu_instance_id: Count | None = None
    compute_instance_id: Count | None = None
    power_limit_default_w: float | None = None
    power_limit_min_w: float | None = None
    power_limit_max_w: float | None = None
    pcie_generation_max: Count | None = None
    pcie_width_max: Count | None = None
    recent_faults: tuple[FaultSeen, ...] = ()
    multiprocessor_count: Count | None = None
    mig_layout: MigLayout | None = None


class LinkKind(StrEnum):
    """How two GPUs are connected, nearest first; the words of `nvidia-smi topo -m`."""

    NVLINK = "nvlink"  # or AMD's xGMI
    INTERNAL = "internal"  # on one board
    PIX = "pix"  # one PCIe switch
    PXB = "pxb"  # several PCIe switches
    PHB = "phb"  # one PCIe host bridge
    NODE = "node"  # one NUMA node
    SYS = "sys"  # across NUMA nodes


class GpuLink(Struct, frozen=True, kw_only=True):
    """The connection of two GPUs, reported once per pair. `nvlinks` counts direct NVLinks."""

    first_uuid: DeviceUuid
    second_uuid: DeviceUuid
    kind: LinkKind
    nvlinks: Count = 0


class HostFacts(Struct, frozen=True, kw_only=True):
    """The node around the GPUs. `release` is the agent's, of GPU Steward."""

    hostname: str
    cpu_count: Count | None = None
    memory_total_mb: Mebibytes | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    operating_system: str | None = None
    release: str | None = None


class InventoryReported(Event, frozen=True, kw_only=True, tag="telemetry.inventory_reported"):
    """The full inventory and health of a node: at the agent's start, at every change, and every 30
    s.

    `revision` grows within one boot id; another boot id replaces what came before.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    boot_id: UUID
    source: Source
    interval_seconds: PositiveSeconds
    host: HostFacts
    devices: tuple[DeviceFacts, ...]
    labels: dict[Line, Line] = {}
    links: tuple[GpuLink, ...] = ()


class HealthKind(StrEnum):
    """What happened to a device or to the agent."""

    AGENT_STARTED = "agent_started"
    AGENT_STOPPED = "agent_stopped"
    PROBE_HUNG = "probe_hung"
    PROBE_RECOVERED = "probe_recovered"
    GPU_LOST = "gpu_lost"
    GPU_RECOVERED = "gpu_recovered"
    SOURCE_FAILED = "source_failed"
    SOURCE_RECOVERED = "source_recovered"
    XID = "xid"
    SXID = "sxid"  # a fatal error of an NVSwitch, told for each GPU of its node
    ECC_UNCORRECTED = "ecc_uncorrected"
    ECC_STORM = "ecc_storm"  # corrected errors grow faster than the agent's limit
    ROW_REMAP_PENDING = "row_remap_pending"
    ROW_REMAP_FAILED = "row_remap_failed"
    MIG_CHANGED = "mig_changed"
    POWER_LIMIT_CHANGED = "power_limit_changed"
    POWER_LIMIT_RESTORED = "power_limit_restored"
    SM_CLOCK_LOCKED = "sm_clock_locked"
    SM_CLOCK_RESTORED = "sm_clock_restored"
    DISK_FULL = "disk_full"  # of the agent's data directory; `detail` has the room that is left
    DISK_HAS_ROOM = "disk_has_room"  # again


class HealthChanged(Event, frozen=True, kw_only=True, tag="telemetry.health_changed"):
    """A change of health. `device_uuid` None means the whole agent.

    `action` is what to do about it and `action_source` where that advice comes from. The changes of
    power limit and locked clock carry the new one and the reservation it was asked for.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    boot_id: UUID
    change: HealthKind
    device_uuid: DeviceUuid | None = None
    detail: str = ""
    xid: int | None = None
    action: HealthAction | None = None
    action_source: str | None = None
    reservation_id: UUID | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: Count | None = None


class GetSnapshot(Query, frozen=True, kw_only=True, tag="telemetry.snapshot"):
    """Asks a node for a reading; answered by `GpuSampled`.

    `use_cache` accepts a reading up to 5 s old. `released_reservation_id`: the reading must not
    include load of this reservation any more; a source that models load from grants drops it first,
    a real source just reads.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    use_cache: bool = False
    released_reservation_id: UUID | None = None


class SetBurst(Command, frozen=True, kw_only=True, tag="telemetry.burst"):
    """Sample faster for a while. The fastest of several bursts counts until it ends."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    interval_seconds: BurstSeconds
    duration_seconds: Annotated[float, Meta(gt=0, le=86_400)]
    experiment_id: UUID | None = None


class SetPowerLimit(Command, frozen=True, kw_only=True, tag="telemetry.set_power_limit"):
    """Cap a device's power, lock its SM clock, or both; one that is None stays as it is.

    With neither, both are as before the first of them; a driver does not tell the clock that was
    locked before, so the device then sets its own. With `reservation_id` that happens when that
    reservation ends, and always when the agent stops. Refused with what the device allows, or with
    what the agent may not do.
    """

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    device_uuid: DeviceUuid
    power_limit_w: Annotated[float, Meta(gt=0)] | None
    reservation_id: UUID | None = None
    sm_clock_mhz: PositiveInt | None = None
