"""Devices of dynamic resource allocation: what drivers publish, and what claims were given."""

from typing import Any

from shared.kubernetes.objects.common import ApiObject, Metadata


class Attribute(ApiObject, frozen=True):
    """One of them is set."""

    string: str | None = None


class Capacity(ApiObject, frozen=True):
    value: str = "0"


class CounterConsumption(ApiObject, frozen=True):
    counter_set: str = ""
    counters: dict[str, Capacity] = {}


class DeviceTaint(ApiObject, frozen=True):
    effect: str = ""


class BasicDevice(ApiObject, frozen=True):
    attributes: dict[str, Attribute] = {}


class Device(ApiObject, frozen=True):
    """With `allow_multiple_allocations` several claims may be given it, each a part.

    `basic` is what the API of Kubernetes 1.32 (v1beta1) wraps all of it in.
    """

    name: str = ""
    allow_multiple_allocations: bool | None = None
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, Capacity] = {}
    consumes_counters: tuple[CounterConsumption, ...] = ()
    node_name: str | None = None
    taints: tuple[DeviceTaint, ...] = ()
    basic: BasicDevice | None = None


class CounterSet(ApiObject, frozen=True):
    name: str = ""
    counters: dict[str, Capacity] = {}


class Pool(ApiObject, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class ResourceSliceSpec(ApiObject, frozen=True):
    driver: str = ""
    pool: Pool = Pool()
    node_name: str | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ApiObject, frozen=True):
    metadata: Metadata = Metadata()
    spec: ResourceSliceSpec = ResourceSliceSpec()


class AllocationResult(ApiObject, frozen=True):
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None


class DeviceAllocation(ApiObject, frozen=True):
    results: tuple[AllocationResult, ...] = ()


class Allocation(ApiObject, frozen=True):
    devices: DeviceAllocation = DeviceAllocation()


class Consumer(ApiObject, frozen=True):
    resource: str = ""
    uid: str = ""


class ResourceClaimStatus(ApiObject, frozen=True):
    allocation: Allocation | None = None
    reserved_for: tuple[Consumer, ...] = ()


class ResourceClaim(ApiObject, frozen=True):
    metadata: Metadata
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceClassSpec(ApiObject, frozen=True):
    selectors: tuple[Any, ...] = ()


class DeviceClass(ApiObject, frozen=True):
    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()
