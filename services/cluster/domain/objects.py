"""The parts of a cluster's objects that are read, as the API writes them."""

from typing import Any

import msgspec
from msgspec import Struct

Quantities = dict[str, str]


class _Object(Struct, frozen=True, rename="camel"):
    """What the API leaves out is empty here."""


class Metadata(_Object, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] = {}


class NodeMetadata(Metadata, frozen=True):
    """Beside it annotations, by which plugins register GPUs."""

    annotations: dict[str, str] = {}


class Taint(_Object, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class Condition(_Object, frozen=True):
    type: str = ""
    status: str = ""


class NodeSpec(_Object, frozen=True):
    unschedulable: bool = False
    taints: list[Taint] = []


class NodeStatus(_Object, frozen=True):
    capacity: Quantities = {}
    allocatable: Quantities = {}
    conditions: list[Condition] = []


class Node(_Object, frozen=True):
    metadata: NodeMetadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(_Object, frozen=True):
    requests: Quantities = {}
    limits: Quantities = {}


class ContainerPort(_Object, frozen=True):
    name: str = ""
    container_port: int = 0


class Container(_Object, frozen=True):
    """`restart_policy` Always makes an init container one that runs beside the others."""

    name: str = ""
    resources: Resources = Resources()
    restart_policy: str = ""
    ports: list[ContainerPort] = []


class PodSpec(_Object, frozen=True):
    """`resources` are of the pod as a whole, in place of its containers' sum; `overhead` is what
    its runtime class adds.
    """

    node_name: str = ""
    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Quantities = {}
    resources: Resources | None = None


class RequestMapping(_Object, frozen=True):
    resource_name: str = ""


class ExtendedResourceClaim(_Object, frozen=True):
    """The claim by which devices of a driver stand for an extended resource."""

    request_mappings: list[RequestMapping] = []


class PodStatus(_Object, frozen=True):
    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    extended_resource_claim_status: ExtendedResourceClaim | None = None


class Pod(_Object, frozen=True):
    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class Attribute(_Object, frozen=True):
    """One of them is set."""

    string: str | None = None


class Capacity(_Object, frozen=True):
    value: str = "0"


class CounterConsumption(_Object, frozen=True):
    counter_set: str = ""
    counters: dict[str, Capacity] = {}


class DeviceTaint(_Object, frozen=True):
    effect: str = ""


class Device(_Object, frozen=True):
    """With `allow_multiple_allocations` several claims may be given it, each a part."""

    name: str = ""
    allow_multiple_allocations: bool | None = None
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: list[CounterConsumption] = []
    node_name: str | None = None
    taints: list[DeviceTaint] = []


class CounterSet(_Object, frozen=True):
    name: str = ""
    counters: dict[str, Capacity] = {}


class Pool(_Object, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(_Object, frozen=True):
    driver: str = ""
    pool: Pool = Pool()
    node_name: str | None = None
    devices: list[Device] = []
    shared_counters: list[CounterSet] = []


class ResourceSlice(_Object, frozen=True):
    metadata: Metadata
    spec: ResourceSliceSpec = ResourceSliceSpec()


class AllocationResult(_Object, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class DeviceAllocation(_Object, frozen=True):
    results: list[AllocationResult] = []


class Allocation(_Object, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()


class Consumer(_Object, frozen=True):
    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(_Object, frozen=True):
    allocation: Allocation | None = None
    reserved_for: list[Consumer] = []


class ResourceClaim(_Object, frozen=True):
    metadata: Metadata
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(_Object, frozen=True):
    selectors: list[Any] = []


class DeviceClass(_Object, frozen=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()
