"""What NVML tells once about a device: who it is, what it can, how it is connected."""

from ctypes import byref, c_int, c_uint
from typing import Any, Final

import pynvml

from schemas.telemetry import DeviceFacts, GpuLink, LinkKind
from services.telemetry.domain.mig import mig_profile
from services.telemetry.nvml_library import (
    Function,
    Handle,
    demanded,
    filled,
    function,
    number,
    numbers,
    refused,
    text,
)

MEBIBYTE: Final = 1 << 20
_NEARNESS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: LinkKind.INTERNAL,
    pynvml.NVML_TOPOLOGY_SINGLE: LinkKind.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: LinkKind.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkKind.PHB,
    pynvml.NVML_TOPOLOGY_NODE: LinkKind.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: LinkKind.SYS,
}


def handle_at(index: int) -> Handle:
    """A handle of a whole GPU. Raises GpuLostError or NVMLError."""
    handle = pynvml.c_nvmlDevice_t()
    demanded(function("nvmlDeviceGetHandleByIndex_v2")(c_uint(index), byref(handle)))
    return handle


def uuid_of(handle: Handle) -> str | None:
    """What the device is known by; unknown, it cannot be spoken of."""
    return text(function("nvmlDeviceGetUUID"), handle)


def is_divided(mode: list[int] | None) -> bool | None:
    """Whether MIG is on, of its present and its coming mode; None where there is no such thing."""
    return None if mode is None else mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def mig_handles(handle: Handle) -> list[Handle]:
    """Handles of the MIG instances that there are now."""
    count = number(function("nvmlDeviceGetMaxMigDeviceCount"), handle)() or 0
    ask = function("nvmlDeviceGetMigDeviceHandleByIndex")
    found = []
    for place in range(count):
        instance = pynvml.c_nvmlDevice_t()
        status = ask(handle, c_uint(place), byref(instance))
        if status:
            refused(status)
        else:
            found.append(instance)
    return found


def gpu_facts(uuid: str, index: int, handle: Handle) -> DeviceFacts:
    """A whole GPU."""
    bus_id = pci_bus_id(handle)
    limits = numbers(function("nvmlDeviceGetPowerManagementLimitConstraints"), handle, 2)()
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=text(function("nvmlDeviceGetName"), handle) or "unknown",
        memory_total_mb=_memory_mb(handle),
        pci_bus_id=bus_id,
        serial=text(function("nvmlDeviceGetSerial"), handle, 30),
        compute_capability=_compute_capability(handle),
        numa_node=_numa_node(handle, bus_id),
        mig_enabled=is_divided(numbers(function("nvmlDeviceGetMigMode"), handle, 2)()),
        power_limit_default_w=_watts(
            number(function("nvmlDeviceGetPowerManagementDefaultLimit"), handle)()
        ),
        power_limit_min_w=_watts(limits[0] if limits else None),
        power_limit_max_w=_watts(limits[1] if limits else None),
        pcie_generation_max=number(function("nvmlDeviceGetMaxPcieLinkGeneration"), handle)(),
        pcie_width_max=number(function("nvmlDeviceGetMaxPcieLinkWidth"), handle)(),
    )


def instance_facts(uuid: str, index: int, handle: Handle, parent: DeviceFacts) -> DeviceFacts:
    """A MIG instance; what it shares with its GPU is told as its GPU's."""
    name = text(function("nvmlDeviceGetName"), handle)
    attributes = pynvml.c_nvmlDeviceAttributes()
    known = filled(
        function("nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes"), handle, attributes
    )
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=name or parent.name,
        memory_total_mb=_memory_mb(handle),
        pci_bus_id=parent.pci_bus_id,
        compute_capability=parent.compute_capability,
        numa_node=parent.numa_node,
        parent_uuid=parent.uuid,
        mig_profile=mig_profile(
            name,
            gpu_slices=attributes.gpuInstanceSliceCount if known else None,
            compute_slices=attributes.computeInstanceSliceCount if known else None,
            memory_mb=attributes.memorySizeMB if known else None,
            parent_memory_mb=parent.memory_total_mb,
        ),
        gpu_instance_id=number(function("nvmlDeviceGetGpuInstanceId"), handle)(),
        compute_instance_id=number(function("nvmlDeviceGetComputeInstanceId"), handle)(),
    )


def pci_bus_id(handle: Handle) -> str | None:
    """As NVML writes it, with eight digits of domain."""
    pci = pynvml.nvmlPciInfo_t()
    if not filled(function("nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2"), handle, pci):
        return None
    return str(pci.busId) or None


def links_between(gpus: dict[str, Handle]) -> tuple[GpuLink, ...]:
    """Each pair of whole GPUs once, as far as the driver knows how they are connected."""
    names = list(gpus)
    remotes = {uuid: _remote_bus_ids(handle) for uuid, handle in gpus.items()}
    places = {uuid: pci_bus_id(handle) for uuid, handle in gpus.items()}
    found = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            direct = sum(end == places[second] for end in remotes[first])
            kind = _kind(gpus[first], gpus[second], direct)
            if kind is not None:
                found.append(
                    GpuLink(first_uuid=first, second_uuid=second, kind=kind, nvlinks=direct)
                )
    return tuple(found)


def _kind(first: Handle, second: Handle, direct: int) -> LinkKind | None:
    """NVLink may also lead through a switch, where no link is direct."""
    p2p = _between(
        function("nvmlDeviceGetP2PStatus"), first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    )
    if direct or p2p == pynvml.NVML_P2P_STATUS_OK:
        return LinkKind.NVLINK
    level = _between(function("nvmlDeviceGetTopologyCommonAncestor"), first, second)
    return None if level is None else _NEARNESS.get(level)


def _between(call: Function, first: Handle, second: Handle, *arguments: int) -> int | None:
    cell = c_uint()
    status = call(first, second, *arguments, byref(cell))
    if status:
        refused(status)
        return None
    return cell.value


def _remote_bus_ids(handle: Handle) -> list[str]:
    """The other ends of the NVLinks that are up."""
    ask = function("nvmlDeviceGetNvLinkRemotePciInfo_v2")
    is_up = function("nvmlDeviceGetNvLinkState")
    found = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        up, pci = c_uint(), pynvml.nvmlPciInfo_t()
        status = is_up(handle, link, byref(up))
        if status:
            refused(status)
            break
        if up.value and not ask(handle, link, byref(pci)):
            found.append(str(pci.busId))
    return found


def _memory_mb(handle: Handle) -> int | None:
    memory: Any = pynvml.c_nvmlMemory_t()
    known = filled(function("nvmlDeviceGetMemoryInfo"), handle, memory)
    return memory.total // MEBIBYTE if known else None


def _compute_capability(handle: Handle) -> str | None:
    major, minor = c_int(), c_int()
    status = function("nvmlDeviceGetCudaComputeCapability")(handle, byref(major), byref(minor))
    if status:
        refused(status)
        return None
    return f"{major.value}.{minor.value}"


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _numa_node(handle: Handle, bus_id: str | None) -> int | None:
    """NVML's word where it has one, else the kernel's, whose -1 means that it does not know."""
    node = number(function("nvmlDeviceGetNumaNodeId"), handle)()
    if node is None and bus_id is not None:
        # NVML writes eight digits of PCI domain, sysfs four.
        path = f"/sys/bus/pci/devices/{bus_id.lower()[-12:]}/numa_node"
        try:
            with open(path) as file:  # noqa: PTH123  # pathlib is not worth its memory here
                node = int(file.read())
        except (OSError, ValueError):
            return None
    return node if node is not None and 0 <= node < 1 << 31 else None
