"""Which containers of pods have which GPUs, from the names that kubelet gives devices."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from schemas.gpus.kinds import GpuKind
from schemas.gpus.vgpu import (
    VGPU_CORE_RESOURCE,
    VGPU_CORES,
    VGPU_MEMORY_RESOURCE,
    VGPU_MEMORY_UNIT_MB,
)
from schemas.telemetry.readings import DeviceFacts, GpuPod, GpuProcess, GpuReading, PodUse

# A share of a device is its name, then `::` and a number. GKE calls devices nvidia0, or nvidia0/gi1
# for an instance and nvidia0/vgpu1 for a share; an index alone is NVIDIA's `deviceIDStrategy`.
_SHARE: Final = "::"
_GKE_SHARE: Final = "/vgpu"
_INDEX: Final = re.compile(r"(?:nvidia)?(\d+)(?:/vgpu\d+)?")
_INSTANCE: Final = re.compile(r"nvidia(\d+)/gi(\d+)(?:/vgpu\d+)?")
# GPU-Manager's units stand for no GPU by their names; its admission notes the GPUs' indices.
WHOLE_PERCENT: Final = 100


class ClaimedDevice(NamedTuple):
    """A device as Dynamic Resource Allocation names it."""

    driver: str
    pool: str
    device: str


class PodDevices(Struct, frozen=True, kw_only=True):
    """What one container was given: ids by a device plugin, and devices by claims.

    `resources` names the extended resource of each id, in their order; empty: not known.
    """

    pod: GpuPod
    device_ids: tuple[str, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()
    resources: tuple[str, ...] = ()


class PodFacts(Struct, frozen=True, kw_only=True):
    """What the cluster knows of a pod; `gpu_indices` are by container's number, where noted."""

    uid: str
    owner: str = ""
    reservation_id: str = ""
    gpu_indices: dict[int, tuple[int, ...]] = {}


class NodeFacts(Struct, frozen=True, kw_only=True):
    """What is known of a node beside what its pods have.

    `share_counts` has how many ids there are of each device that is given in shares, by resource
    and the device's name.
    """

    pods: Mapping[tuple[str, str], PodFacts] = {}
    share_counts: Mapping[tuple[str, str], int] = {}
    share_kind: GpuKind = GpuKind.TIME_SLICE


class _Allotment(NamedTuple):
    pod: GpuPod
    kind: GpuKind
    memory_mb: int | None


class _Part(NamedTuple):
    """A device by its name, and how much of it was given; None is unknown."""

    name: str
    kind: GpuKind
    percent: float | None
    memory_mb: int | None = None


def pods_of_devices(
    containers: Iterable[PodDevices],
    devices: Iterable[DeviceFacts],
    claimed_ids: Mapping[ClaimedDevice, str],
    node: NodeFacts | None = None,
) -> dict[str, tuple[GpuPod, ...]]:
    """Return the pods of each device by its UUID; `claimed_ids` has UUIDs or PCI bus ids.

    Names that are none of this node's GPUs, as those of network cards, are left out.
    """
    node = node or NodeFacts()
    facts = tuple(devices)
    uuids = _uuids_by_name(facts)
    instances = frozenset(device.uuid for device in facts if device.parent_uuid is not None)
    uses: dict[str, dict[_Allotment, float | None]] = {}
    for container in containers:
        for name, kind, percent, memory_mb in _parts_of(container, claimed_ids, node):
            if (uuid := uuids.get(_plain(name))) is None:
                continue
            is_instance = kind is GpuKind.PGPU and uuid in instances
            key = _Allotment(container.pod, GpuKind.MIG if is_instance else kind, memory_mb)
            uses_of_device = uses.setdefault(uuid, {})
            percent_before = uses_of_device.get(key, 0.0)
            uses_of_device[key] = (
                None if percent is None or percent_before is None else percent_before + percent
            )
    return {
        uuid: tuple(sorted(_pod(use, percent, node) for use, percent in uses_of_device.items()))
        for uuid, uses_of_device in uses.items()
    }


def _parts_of(
    container: PodDevices, claimed_ids: Mapping[ClaimedDevice, str], node: NodeFacts
) -> Iterable[_Part]:
    resources = container.resources or ("",) * len(container.device_ids)
    vgpu_units = Counter[str]()
    for resource, device_id in zip(resources, container.device_ids, strict=True):
        if resource in {VGPU_CORE_RESOURCE, VGPU_MEMORY_RESOURCE}:
            vgpu_units[resource] += 1
            continue
        name = device_of(device_id)
        if name == device_id:
            yield _Part(name, GpuKind.PGPU, WHOLE_PERCENT)
        else:
            count = node.share_counts.get((resource, name))
            yield _Part(name, node.share_kind, WHOLE_PERCENT / count if count else None)
    for claimed in container.claimed:
        yield _Part(claimed_ids.get(claimed, ""), GpuKind.PGPU, WHOLE_PERCENT)
    yield from _vgpus(container.pod, vgpu_units, node)


def _vgpus(pod: GpuPod, units: Mapping[str, int], node: NodeFacts) -> Iterable[_Part]:
    facts = node.pods.get((pod.namespace, pod.pod))
    if not units or facts is None or len(facts.gpu_indices) != 1:
        return  # with several containers that have some nothing tells whose number is whose
    [indices] = facts.gpu_indices.values()
    cores, memory = units.get(VGPU_CORE_RESOURCE, 0), units.get(VGPU_MEMORY_RESOURCE, 0)
    for index in map(str, indices):
        if cores >= VGPU_CORES:
            yield _Part(index, GpuKind.PGPU, WHOLE_PERCENT)
        else:
            yield _Part(index, GpuKind.VGPU, cores, memory * VGPU_MEMORY_UNIT_MB or None)


def _pod(use: _Allotment, percent: float | None, node: NodeFacts) -> GpuPod:
    pod = use.pod
    facts = node.pods.get((pod.namespace, pod.pod)) or PodFacts(uid="")
    return replace(
        pod,
        kind=use.kind.value,
        percent=None if percent is None else min(WHOLE_PERCENT, round(percent)),
        memory_mb=use.memory_mb,
        uid=facts.uid,
        reservation_id=facts.reservation_id,
        owner=facts.owner,
    )


def device_of(device_id: str) -> str:
    """Return the device that a share's id is of; a whole device is its own."""
    return device_id.partition(_SHARE)[0].partition(_GKE_SHARE)[0]


def share_counts(ids: Iterable[tuple[str, str]]) -> dict[tuple[str, str], int]:
    """Return how many shares each device has, of all ids that a node can give, by resource."""
    return Counter(
        (resource, name) for resource, unit_id in ids if (name := device_of(unit_id)) != unit_id
    )


def with_uses(gpu: GpuReading) -> GpuReading:
    """Return the reading with what each of several pods uses, as far as processes tell."""
    uids = {pod.uid for pod in gpu.pods or ()}
    if len(uids) < 2 or "" in uids or gpu.processes is None:
        return gpu
    return replace(gpu, pod_uses=pod_uses(sorted(uids), gpu.processes))


def pod_uses(uids: Sequence[str], processes: Sequence[GpuProcess]) -> tuple[PodUse, ...]:
    """Return what each of the pods of these UIDs uses.

    A pod without a process uses nothing, but that is unknown while it is not known of every process
    in which pod it runs.
    """
    of_pod: dict[str, list[GpuProcess]] = {uid: [] for uid in uids}
    for process in processes:
        if process.pod_uid in of_pod:
            of_pod[process.pod_uid].append(process)
    is_told = all(_is_elsewhere(process, of_pod.keys()) for process in processes)
    return tuple(
        PodUse(uid, _memory_mb(processes_of_pod), _utilization(processes_of_pod))
        if processes_of_pod or is_told
        else PodUse(uid)
        for uid, processes_of_pod in of_pod.items()
    )


def _is_elsewhere(process: GpuProcess, uids: AbstractSet[str]) -> bool:
    """Tell whether a process is known to run in one of the pods, or in none."""
    return process.pod_uid in uids or process.name is not None


def _memory_mb(processes: Iterable[GpuProcess]) -> int | None:
    used = [process.memory_used_mb for process in processes]
    return None if None in used else sum(amount for amount in used if amount is not None)


def _utilization(processes: Iterable[GpuProcess]) -> float | None:
    used = [process.utilization_percent for process in processes]
    return (
        None
        if None in used
        else min(100.0, sum(percent for percent in used if percent is not None))
    )


def _uuids_by_name(devices: Iterable[DeviceFacts]) -> dict[str, str]:
    device_facts = tuple(devices)
    indices = {facts.uuid: facts.index for facts in device_facts}
    uuids: dict[str, str] = {}
    for facts in device_facts:
        if facts.parent_uuid is None:
            uuids[str(facts.index)] = facts.uuid
            if facts.pci_bus_id is not None:
                uuids[_plain(facts.pci_bus_id)] = facts.uuid
        elif facts.gpu_instance_id is not None and facts.parent_uuid in indices:
            uuids[f"{indices[facts.parent_uuid]}/{facts.gpu_instance_id}"] = facts.uuid
    return uuids | {facts.uuid.lower(): facts.uuid for facts in device_facts}


def _plain(name: str) -> str:
    """Return one spelling of an index, an instance, a UUID or a PCI bus id."""
    if index := _INDEX.fullmatch(name):
        return index[1]
    if instance := _INSTANCE.fullmatch(name):
        return f"{instance[1]}/{instance[2]}"
    domain, colon, address = name.lower().partition(":")
    # NVML writes a bus id's domain with eight digits, sysfs and AMD's plugin with four.
    return f"{domain[-4:]}:{address}" if colon else domain
