"""The fleet of one moment: every device with its ledger state and its reading."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import reduce
from typing import Final, Self
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.gpu_request import WHOLE, GpuRequest
from schemas.gpus.mig import MigLayout
from schemas.scheduler.devices import CordonState
from schemas.telemetry.readings import HealthState


class ReadingState(StrEnum):
    """Whether a device's reading may be decided on; only `fresh` may."""

    FRESH = "fresh"
    ABSENT = "absent"
    STALE = "stale"
    AWAITING = "awaiting"  # the device was just released, its reading is from before that


class Reading(Struct, frozen=True, kw_only=True, gc=False):
    """What a grant depends on. None is unknown, and unknown never counts as free."""

    utilization_percent: float | None
    memory_total_mb: int | None
    memory_free_mb: int | None


def sum_used_mb(reading: Reading | None, total_mb: int | None) -> int | None:
    """Return the memory in use; None if a part of the sum is unknown."""
    if reading is None or reading.memory_free_mb is None or total_mb is None:
        return None
    return max(0, total_mb - reading.memory_free_mb)


class Node(Struct, frozen=True, kw_only=True):
    """A machine without its GPUs. None is unknown; nothing is granted on `lost` nodes, on those
    not `admitted` yet, and on those of a Kubernetes cluster, which gives out their GPUs itself.
    """

    node_id: NodeId
    labels: dict[str, str] = {}
    cpu_count: float | None = None
    memory_total_mb: int | None = None
    cuda_driver_version: str | None = None
    lost: bool = False
    admitted: bool = True
    cluster: str | None = None


class HostResources(Struct, frozen=True, kw_only=True):
    """CPUs and host memory of a node, held or reserved."""

    cpu_count: float = 0.0
    memory_mb: int = 0

    @classmethod
    def of(cls, request: GpuRequest) -> Self:
        """Return what the request holds of each of its nodes besides GPUs."""
        return cls(cpu_count=request.cpu_count or 0.0, memory_mb=request.host_memory_mb or 0)

    @classmethod
    def sum(cls, parts: "Iterable[HostResources]") -> "HostResources":
        return reduce(HostResources.plus, parts, NO_HOST_RESOURCES)

    def plus(self, other: "HostResources") -> "HostResources":
        return HostResources(
            cpu_count=self.cpu_count + other.cpu_count, memory_mb=self.memory_mb + other.memory_mb
        )

    def minus(self, other: "HostResources") -> "HostResources":
        return HostResources(
            cpu_count=self.cpu_count - other.cpu_count, memory_mb=self.memory_mb - other.memory_mb
        )


NO_HOST_RESOURCES: Final = HostResources()


class Host(Struct, frozen=True, kw_only=True):
    """A node, and the host resources that leases hold of it."""

    node: Node
    held_resources: HostResources = NO_HOST_RESOURCES


class Part(Struct, frozen=True):
    """What a reservation holds of a device that is shared, in hundredths."""

    holder: UUID
    hundredths: int


class Device(Struct, frozen=True, kw_only=True):
    """One whole GPU. `holder` is the reservation whose holding is open, quarantined or not; of a
    shared one the first of `parts`, which are in order of their holders.

    `foreign_pids` are processes on it that no live reservation explains; where they cannot be
    listed, `unlisted_mb` is its memory in use if that is more than an idle GPU's.
    `parent_uuid` is set for a MIG instance; a GPU whose `mig_enabled` is True is granted only by
    its instances, which its agent makes where it has a `mig_layout` with options.
    `cordon` is why it is out of service, for people. `link_groups`: see placement/topology.py.
    """

    number: int
    node_id: NodeId
    uuid: DeviceUuid
    index: int
    name: str
    memory_total_mb: int | None = None
    simulated: bool = False
    health: HealthState = HealthState.OK
    health_detail: str | None = None
    cordoned: bool = False
    holder: UUID | None = None
    quarantined: bool = False
    reading_state: ReadingState = ReadingState.ABSENT
    reading: Reading | None = None
    compute_capability: str | None = None
    numa_node: int | None = None
    link_groups: tuple[int, ...] = ()
    mig_enabled: bool | None = None
    parent_uuid: str | None = None
    mig_profile: str | None = None
    mig_layout: MigLayout | None = None
    foreign_pids: tuple[int, ...] = ()
    unlisted_mb: int | None = None
    cordon: CordonState | None = None
    parts: tuple[Part, ...] = ()

    @property
    def free_hundredths(self) -> int:
        """The hundredths that no lease holds."""
        if self.parts:
            return WHOLE - sum(part.hundredths for part in self.parts)
        return 0 if self.holder is not None else WHOLE

    @property
    def total_mb(self) -> int | None:
        """Total memory by its inventory, else by its reading."""
        if self.memory_total_mb is not None:
            return self.memory_total_mb
        return self.reading.memory_total_mb if self.reading is not None else None

    def when_idle(self) -> "Device":
        """The device as it will be when its lease has ended."""
        total = self.total_mb
        return replace(
            self,
            holder=None,
            parts=(),
            reading_state=ReadingState.FRESH,
            reading=Reading(utilization_percent=0.0, memory_total_mb=total, memory_free_mb=total),
        )


def by_index(devices: Iterable[Device]) -> tuple[Device, ...]:
    """A node's devices, in order of their index."""
    return tuple(sorted(devices, key=lambda device: (device.index, device.uuid)))


class Fleet(Struct, frozen=True, kw_only=True):
    """All devices by node, in order of their index.

    `hosts` are the nodes themselves; of one that is missing nothing is known. `complete`: every
    known node has reported its inventory, so that what cannot fit now never will.
    """

    nodes: Mapping[NodeId, tuple[Device, ...]]
    complete: bool = True
    hosts: Mapping[NodeId, Host] = {}

    @classmethod
    def of(cls, devices: Iterable[Device], *, complete: bool = True) -> Self:
        """A fleet of these devices, in any order."""
        nodes: dict[NodeId, list[Device]] = {}
        for device in devices:
            nodes.setdefault(device.node_id, []).append(device)
        ordered = {node_id: by_index(nodes[node_id]) for node_id in sorted(nodes)}
        return cls(nodes=ordered, complete=complete)

    def host(self, node_id: NodeId) -> Host:
        """A node; one without attributes if it never reported any."""
        return self.hosts.get(node_id) or Host(node=Node(node_id=node_id))

    def node(self, node_id: NodeId) -> Node:
        return self.host(node_id).node

    @property
    def is_empty(self) -> bool:
        """True if no node has a device."""
        return not any(self.nodes.values())
