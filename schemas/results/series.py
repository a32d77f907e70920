"""History of GPUs by device, by node, and of the pods that had them."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

from msgspec import Meta, Struct

from schemas.base import (
    Count,
    DeviceUuid,
    Mebibytes,
    Namespace,
    NodeId,
    Query,
    Seconds,
    UtcDatetime,
    View,
)
from schemas.gpus.kinds import GpuKind


class SeriesMetric(StrEnum):
    """What a history query can show."""

    UTILIZATION_PERCENT = "utilization_percent"
    MEMORY_USED_MB = "memory_used_mb"
    TEMPERATURE_C = "temperature_c"
    POWER_DRAW_W = "power_draw_w"


class SeriesBy(StrEnum):
    """What a series is of.

    A node's are the means of its GPUs added up, of utilization and temperature averaged; a pod's
    are of each GPU that it had, by whole minutes; the fleet's are percentiles over all its GPUs.
    """

    GPU = "gpu"
    NODE = "node"
    POD = "pod"
    FLEET = "fleet"


class WhoseReading(StrEnum):
    """Whose use the readings of a pod are."""

    OWN = "own"  # its own: it had the device alone, or its processes told
    GPU = "gpu"  # for some of the time the whole GPU's, which others had as well


class GetSeries(Query, frozen=True, kw_only=True, tag="results.series"):
    """History of a metric in at most `points` buckets per device. Answered by `SeriesView`.

    `namespace` is one of ours: of the whole minutes in which its reservations, or pods of the
    namespace of its name, had a device. `readable` None: of pods of all namespaces.
    By `pod` or `pod_namespace`, of Kubernetes: of devices in the whole minutes in which containers
    of these pods had them, known once a minute is over. `gpu_model` is a part of the name, in
    which case and separators do not matter. `kind_of_gpu` None: of every kind.
    """

    metric: SeriesMetric
    start_at: UtcDatetime
    end_at: UtcDatetime
    node_id: NodeId | None = None
    device_uuid: DeviceUuid | None = None
    experiment_id: UUID | None = None
    pod_namespace: str | None = None
    pod: str | None = None
    gpu_model: str | None = None
    kind_of_gpu: GpuKind | None = None
    points: Annotated[int, Meta(ge=1, le=5000)] = 300
    by: SeriesBy = SeriesBy.GPU
    namespace: Namespace | None = None
    readable: tuple[str, ...] | None = None


class SeriesPoint(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One bucket: its start, and min, max, mean of the known readings."""

    at: UtcDatetime
    min: float
    max: float
    mean: float


class DeviceSeries(Struct, frozen=True, kw_only=True):
    """One device's history; a bucket without a known reading is absent."""

    node_id: NodeId
    device_uuid: DeviceUuid
    index: Count
    points: tuple[SeriesPoint, ...]
    name: str = ""
    memory_total_mb: Mebibytes | None = None


class NodeSeries(Struct, frozen=True, kw_only=True):
    """The history of a node's GPUs together. `memory_total_mb` is of those of which it is known."""

    node_id: NodeId
    gpus: Count
    memory_total_mb: Mebibytes | None
    points: tuple[SeriesPoint, ...]


class FleetPoint(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """One bucket of all GPUs together: the lowest mean of any, the means that a tenth, a half and
    nine tenths of them do not exceed, the highest, and of how many GPUs a mean is known.
    """

    at: UtcDatetime
    lowest: float
    p10: float
    p50: float
    p90: float
    highest: float
    gpus: Count


class PodSeries(Struct, frozen=True, kw_only=True):
    """The history of a pod on one device.

    `memory_given_mb` is what of its memory it was given; None: nothing tells.
    """

    namespace: str
    pod: str
    owner: str
    node_id: NodeId
    device_uuid: DeviceUuid
    index: Count
    kind: str
    percent: int | None
    memory_given_mb: Mebibytes | None
    reading: WhoseReading
    points: tuple[SeriesPoint, ...]


class SeriesView(View, frozen=True, kw_only=True, tag="results.series_view"):
    """History per device, node or pod, or of the fleet, whichever was asked for; `left_out` pods
    were too many.
    """

    metric: SeriesMetric
    bucket_seconds: Seconds
    devices: tuple[DeviceSeries, ...] = ()
    nodes: tuple[NodeSeries, ...] = ()
    pods: tuple[PodSeries, ...] = ()
    fleet: tuple[FleetPoint, ...] = ()
    left_out: Count = 0


class ListPods(Query, frozen=True, kw_only=True, tag="results.list_pods"):
    """Which pods of Kubernetes had GPUs in a time? Answered by `PodList`.

    Filters are as in `GetSeries`.
    """

    start_at: UtcDatetime
    end_at: UtcDatetime
    node_id: NodeId | None = None
    kind_of_gpu: GpuKind | None = None
    namespace: Namespace | None = None
    readable: tuple[str, ...] | None = None


class PodLine(Struct, frozen=True, kw_only=True):
    """A pod and how many devices it had, or parts of them. `reservation_id` None: Kubernetes placed
    it by itself.
    """

    namespace: str
    pod: str
    owner: str
    node_id: NodeId
    kind: str
    devices: Count
    reservation_id: UUID | None
    first_at: UtcDatetime
    last_at: UtcDatetime


class PodList(View, frozen=True, kw_only=True, tag="results.pods"):
    """By namespace and name; `left_out` were too many."""

    pods: tuple[PodLine, ...]
    left_out: Count = 0
