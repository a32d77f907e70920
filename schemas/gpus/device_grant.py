"""What a reservation is handed: devices, parts of devices, GPUs of a cluster."""

from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta, Struct

from schemas.base import Count, DeviceUuid, Mebibytes, NodeId, PositiveInt
from schemas.cluster.nodes import GpuSupply
from schemas.gpus.gpu_request import GpuCount, Shares


class ShareKind(StrEnum):
    """How a device is divided between holders: `cooperative` ones keep to their parts themselves,
    nothing enforces it.
    """

    MPS = "mps"
    COOPERATIVE = "cooperative"


CELLS_PER_DEVICE: Final = 10_000


class CellRange(Struct, frozen=True, kw_only=True):
    """Cells of a device, from `first` to before `end`."""

    first: Annotated[int, Meta(ge=0, lt=CELLS_PER_DEVICE)]
    end: Annotated[int, Meta(gt=0, le=CELLS_PER_DEVICE)]


WHOLE_DEVICE: Final = (CellRange(first=0, end=CELLS_PER_DEVICE),)


class DeviceShare(Struct, frozen=True, kw_only=True):
    """A part of a device: of its multiprocessors, and of its memory.

    `compute_percent` and `memory_mb` are the bounds that are enforced; None means that this is not
    bounded. `shares` of the device are held, and with them `reserved_memory_mb`, enforced or not.
    `cells` are which of its 10,000, so that a node fences what had the same ones; empty: an older
    release, which does not say.
    """

    kind: ShareKind
    compute_percent: Annotated[float, Meta(gt=0, le=100)] | None = None
    memory_mb: Mebibytes | None = None
    shares: Shares | None = None
    reserved_memory_mb: Mebibytes | None = None
    cells: tuple[CellRange, ...] = ()


class DeviceGrant(Struct, frozen=True, kw_only=True):
    """A device handed to a reservation.

    `uuid` is what counts: the GPU's or MIG instance's; `index` was its node's. Without `share` all
    of it is granted. `score`, `memory_free_mb` and `utilization_percent` are what it was chosen by.
    """

    node_id: NodeId
    uuid: DeviceUuid
    index: Count
    name: str
    memory_total_mb: Mebibytes | None = None
    simulated: bool = False
    score: float | None = None
    mig_profile: str | None = None
    share: DeviceShare | None = None
    memory_free_mb: Mebibytes | None = None
    utilization_percent: float | None = None
    link_groups: tuple[Count, ...] = ()  # lowest index of each of its groups, nearest first

    @property
    def cells(self) -> tuple[CellRange, ...]:
        """The granted part of the device; all cells where the grant does not say."""
        return self.share.cells if self.share and self.share.cells else WHOLE_DEVICE


class ClusterNodeName(Struct, frozen=True, kw_only=True):
    """A node of a cluster by its name, and by its label `kubernetes.io/hostname`."""

    node_name: str
    hostname: str


class ClusterPlacement(Struct, frozen=True, kw_only=True):
    """Where in a Kubernetes cluster a reservation's GPUs are, of which no devices are named.

    `gpus` are those of each node: the first, and as many on each of `other_nodes`, by rank.
    `node_name` None: the cluster's own scheduler chooses, for the reason in `message`. `hostname`
    is the node's label `kubernetes.io/hostname`. Without `resource` it is the cluster's to say.
    `units` of it, and `memory_units` of the memory that belongs to it, are a part of one GPU; None:
    whole ones, or as many of what the resource counts.
    `gpu_model` is what the node's labels call its GPUs. Where the cluster's own scheduler chooses,
    `avoided_hostnames` are nodes on which a unit of `resource` is not what is asked for.
    """

    cluster_id: NodeId
    gpus: GpuCount
    node_name: str | None = None
    hostname: str | None = None
    resource: str | None = None
    supply: GpuSupply = GpuSupply.DEVICE_PLUGIN
    message: str = ""
    units: PositiveInt | None = None
    memory_units: PositiveInt | None = None
    gpu_model: str | None = None
    avoided_hostnames: tuple[str, ...] = ()
    other_nodes: tuple[ClusterNodeName, ...] = ()

    @property
    def total_gpus(self) -> int:
        """The GPUs of all its nodes."""
        return self.gpus * (1 + len(self.other_nodes))
