"""What NVML reports of a device once: identity, capabilities, links to other devices."""

from typing import Final

import pynvml

from schemas.telemetry.readings import DeviceFacts, GpuLink, LinkKind
from services.telemetry.domain.mig_profiles import mig_profile
from services.telemetry.sources.nvml.child.calls import Handle, try_call

MEBIBYTE: Final = 1 << 20
_NEARNESS: Final = {
    pynvml.NVML_TOPOLOGY_INTERNAL: LinkKind.INTERNAL,
    pynvml.NVML_TOPOLOGY_SINGLE: LinkKind.PIX,
    pynvml.NVML_TOPOLOGY_MULTIPLE: LinkKind.PXB,
    pynvml.NVML_TOPOLOGY_HOSTBRIDGE: LinkKind.PHB,
    pynvml.NVML_TOPOLOGY_NODE: LinkKind.NODE,
    pynvml.NVML_TOPOLOGY_SYSTEM: LinkKind.SYS,
}


def uuid_of(handle: Handle) -> str | None:
    return try_call(pynvml.nvmlDeviceGetUUID, handle)


def mig_enabled(handle: Handle) -> bool | None:
    """Return whether MIG is on; None where the device has no such mode."""
    mode = try_call(pynvml.nvmlDeviceGetMigMode, handle)  # the current one and the pending one
    return None if mode is None else bool(mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def mig_handles(handle: Handle) -> list[Handle]:
    """Return the handles of the present MIG instances."""
    count = try_call(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0
    handles = (
        try_call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, place)
        for place in range(count)
    )
    return [instance for instance in handles if instance is not None]


def gpu_facts(uuid: str, index: int, handle: Handle) -> DeviceFacts:
    bus_id = _pci_bus_id(handle)
    limits = try_call(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, handle)
    default_mw = try_call(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, handle)
    return DeviceFacts(
        uuid=uuid,
        index=index,
        name=try_call(pynvml.nvmlDeviceGetName, handle) or "unknown",
        memory_total_mb=_memory_mb(handle),
        pci_bus_id=bus_id,
        serial=try_call(pynvml.nvmlDeviceGetSerial, handle) or None,
        compute_capability=_compute_capability(handle),
        numa_node=_numa_node(handle, bus_id),
        mig_enabled=mig_enabled(handle),
        power_limit_default_w=_watts(default_mw),
        power_limit_min_w=_watts(limits[0] if limits else None),
        power_limit_max_w=_watts(limits[1] if limits else None),
        pcie_generation_max=try_call(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_width_max=try_call(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )


def instance_facts(uuid: str, index: int, handle: Handle, parent: DeviceFacts) -> DeviceFacts:
    """A MIG instance; what it shares with its GPU is the GPU's."""
    name = try_call(pynvml.nvmlDeviceGetName, handle)
    attributes = try_call(pynvml.nvmlDeviceGetAttributes, handle)
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
            gpu_slices=attributes.gpuInstanceSliceCount if attributes else None,
            compute_slices=attributes.computeInstanceSliceCount if attributes else None,
            memory_mb=attributes.memorySizeMB if attributes else None,
            parent_memory_mb=parent.memory_total_mb,
        ),
        gpu_instance_id=try_call(pynvml.nvmlDeviceGetGpuInstanceId, handle),
        compute_instance_id=try_call(pynvml.nvmlDeviceGetComputeInstanceId, handle),
    )


def _pci_bus_id(handle: Handle) -> str | None:
    """Return the address as NVML writes it, with eight digits of domain."""
    pci = try_call(pynvml.nvmlDeviceGetPciInfo, handle)
    return None if pci is None else str(pci.busId) or None


def links_between(gpus: dict[str, Handle]) -> tuple[GpuLink, ...]:
    """Return each pair of whole GPUs once, as far as the driver knows how they are connected."""
    names = list(gpus)
    remotes = {uuid: _remote_bus_ids(handle) for uuid, handle in gpus.items()}
    places = {uuid: _pci_bus_id(handle) for uuid, handle in gpus.items()}
    links = []
    for place, first in enumerate(names):
        for second in names[place + 1 :]:
            direct = sum(end == places[second] for end in remotes[first])
            kind = _kind(gpus[first], gpus[second], direct)
            if kind is not None:
                links.append(
                    GpuLink(first_uuid=first, second_uuid=second, kind=kind, nvlinks=direct)
                )
    return tuple(links)


def _kind(first: Handle, second: Handle, direct: int) -> LinkKind | None:
    """NVLink may also lead through a switch, where no link is direct."""
    status = try_call(
        pynvml.nvmlDeviceGetP2PStatus, first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    )
    if direct or status == pynvml.NVML_P2P_STATUS_OK:
        return LinkKind.NVLINK
    level = try_call(pynvml.nvmlDeviceGetTopologyCommonAncestor, first, second)
    return None if level is None else _NEARNESS.get(level)


def _remote_bus_ids(handle: Handle) -> list[str]:
    """The other ends of the NVLinks that are up."""
    bus_ids = []
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = try_call(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if state is None:
            break
        pci = try_call(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link) if state else None
        if pci is not None:
            bus_ids.append(str(pci.busId))
    return bus_ids


def _memory_mb(handle: Handle) -> int | None:
    memory = try_call(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else memory.total // MEBIBYTE


def _compute_capability(handle: Handle) -> str | None:
    version = try_call(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
    return None if version is None else f"{version[0]}.{version[1]}"


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _numa_node(handle: Handle, bus_id: str | None) -> int | None:
    """NVML's where it has one, else the kernel's, where -1 means unknown."""
    node = try_call(pynvml.nvmlDeviceGetNumaNodeId, handle)
    if node is None and bus_id is not None:
        # NVML writes eight digits of PCI domain, sysfs four.
        path = f"/sys/bus/pci/devices/{bus_id.lower()[-12:]}/numa_node"
        try:
            with open(path) as file:  # noqa: PTH123  # pathlib is not worth its memory here
                node = int(file.read())
        except (OSError, ValueError):
            return None
    return node if node is not None and 0 <= node < 1 << 31 else None
