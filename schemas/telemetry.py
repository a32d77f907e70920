"""What node agents report: samples, inventory, health.

A field that could not be read is None, never 0.
"""

from enum import StrEnum
from typing import ClassVar
from uuid import UUID

from msgspec import Struct

from schemas.base import (
    Command,
    Count,
    DeviceUuid,
    Event,
    Kind,
    Mebibytes,
    Message,
    NodeId,
    PositiveSeconds,
    Query,
    Seconds,
    UtcDatetime,
)


class Source(StrEnum):
    """Where readings come from.

    `none`: the host has no GPU that could be read; the agent reports no devices.
    """

    NVML = "nvml"
    NVIDIA_SMI = "nvidia-smi"
    AMD = "amd"
    DCGM = "dcgm"
    SIMULATED = "simulated"
    NONE = "none"


class HealthState(StrEnum):
    """A device's health as its agent sees it; only `ok` devices are granted."""

    OK = "ok"
    LOST = "lost"  # no longer answers, or fell off the bus
    HUNG = "hung"  # the probe did not return within its deadline
    FAILING = "failing"  # uncorrectable errors, or an XID whose action is drain or reset


class GpuProcess(Struct, frozen=True, array_like=True, gc=False):
    """A process with memory on a GPU.

    `reservation_id` comes from `GPUSTEWARD_RESERVATION` in its environment, else from its
    container's label.
    """

    pid: int
    name: str | None = None
    memory_used_mb: Mebibytes | None = None
    container_id: str | None = None
    reservation_id: UUID | None = None


class GpuReading(Struct, frozen=True, array_like=True, gc=False):
    """One GPU at one tick. Fields are only ever appended: the wire form is positional."""

    uuid: DeviceUuid
    index: Count
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
    ecc_corrected: Count | None = None
    ecc_uncorrected: Count | None = None
    processes: tuple[GpuProcess, ...] | None = None
    name: str | None = None


class GpuSampled(Message, frozen=True, kw_only=True, array_like=True, tag="telemetry.gpu_sampled"):
    """All GPUs of a node at one tick, ordered by index. Identity: node, boot id, sequence.

    `sequence` grows by one per tick within a boot of the agent, so a gap is countable.
    `observed_at` is the node's clock.
    """

    kind: ClassVar[Kind] = Kind.EVENT
    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    boot_id: UUID
    sequence: Count
    observed_at: UtcDatetime
    interval_seconds: PositiveSeconds
    source: Source
    gpus: tuple[GpuReading, ...]

    @property
    def simulated(self) -> bool:
        """Whether these readings were made up by the simulated source."""
        return self.source is Source.SIMULATED


class DeviceFacts(Struct, frozen=True, kw_only=True):
    """What does not change while a device is in its node, and its present health."""

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


class HostFacts(Struct, frozen=True, kw_only=True):
    """The node around the GPUs."""

    hostname: str
    cpu_count: Count | None = None
    memory_total_mb: Mebibytes | None = None
    driver_version: str | None = None
    cuda_driver_version: str | None = None
    operating_system: str | None = None


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
    labels: dict[str, str] = {}


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
    ECC_UNCORRECTED = "ecc_uncorrected"


class HealthChanged(Event, frozen=True, kw_only=True, tag="telemetry.health_changed"):
    """A change of health. `device_uuid` None means the whole agent."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    boot_id: UUID
    change: HealthKind
    device_uuid: DeviceUuid | None = None
    detail: str = ""
    xid: int | None = None


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
    """Sample faster for a while."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    interval_seconds: PositiveSeconds
    duration_seconds: Seconds
    experiment_id: UUID | None = None


class SetPowerLimit(Command, frozen=True, kw_only=True, tag="telemetry.set_power_limit"):
    """Cap a device's power; None restores the default."""

    key_field: ClassVar[str | None] = "node_id"
    node_id: NodeId
    device_uuid: DeviceUuid
    power_limit_w: float | None
    reservation_id: UUID | None = None
