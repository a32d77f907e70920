"""Which containers of pods have which GPUs, from the names that kubelet gives devices."""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from schemas.telemetry.readings import DeviceFacts, GpuPod

# A share of a device is its name, then `::` and a number. GKE calls devices nvidia0, or nvidia0/gi1
# for an instance and nvidia0/vgpu1 for a share; an index alone is NVIDIA's `deviceIDStrategy`.
_SHARE: Final = "::"
_INDEX: Final = re.compile(r"(?:nvidia)?(\d+)(?:/vgpu\d+)?")
_INSTANCE: Final = re.compile(r"nvidia(\d+)/gi(\d+)(?:/vgpu\d+)?")


class ClaimedDevice(NamedTuple):
    """A device as Dynamic Resource Allocation names it."""

    driver: str
    pool: str
    device: str


class PodDevices(Struct, frozen=True, kw_only=True):
    """What one container was given: ids by a device plugin, and devices by claims."""

    pod: GpuPod
    device_ids: tuple[str, ...] = ()
    claimed: tuple[ClaimedDevice, ...] = ()


def pods_of_devices(
    containers: Iterable[PodDevices],
    devices: Iterable[DeviceFacts],
    claimed_ids: Mapping[ClaimedDevice, str],
) -> dict[str, tuple[GpuPod, ...]]:
    """By the UUID of each device that some pod has; `claimed_ids` has UUIDs or PCI bus ids.

    Names that are none of this node's GPUs, as those of network cards, are left out.
    """
    uuids = _uuids_by_name(devices)
    found: dict[str, dict[GpuPod, None]] = {}
    for container in containers:
        names = [each.partition(_SHARE)[0] for each in container.device_ids]
        names += [claimed_ids.get(each, "") for each in container.claimed]
        for name in names:
            if (uuid := uuids.get(_plain(name))) is not None:
                found.setdefault(uuid, {})[container.pod] = None
    return {uuid: tuple(sorted(pods)) for uuid, pods in found.items()}


def _uuids_by_name(devices: Iterable[DeviceFacts]) -> dict[str, str]:
    found = tuple(devices)
    indices = {facts.uuid: facts.index for facts in found}
    uuids: dict[str, str] = {}
    for facts in found:
        if facts.parent_uuid is None:
            uuids[str(facts.index)] = facts.uuid
            if facts.pci_bus_id is not None:
                uuids[_plain(facts.pci_bus_id)] = facts.uuid
        elif facts.gpu_instance_id is not None and facts.parent_uuid in indices:
            uuids[f"{indices[facts.parent_uuid]}/{facts.gpu_instance_id}"] = facts.uuid
    return uuids | {facts.uuid.lower(): facts.uuid for facts in found}


def _plain(name: str) -> str:
    """One spelling of an index, an instance, a UUID or a PCI bus id."""
    if index := _INDEX.fullmatch(name):
        return index[1]
    if instance := _INSTANCE.fullmatch(name):
        return f"{instance[1]}/{instance[2]}"
    domain, colon, rest = name.lower().partition(":")
    # NVML writes a bus id's domain with eight digits, sysfs and AMD's plugin with four.
    return f"{domain[-4:]}:{rest}" if colon else domain
