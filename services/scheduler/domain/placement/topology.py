"""How near the GPUs of a node are to each other.

A device's `link_groups` name its group at each of `_KINDS`, by the lowest index in it: the GPUs
that links of this kind or nearer ones join, directly or over others. So each group lies within one
of the next level. Empty where nothing is known of a device.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple, Self

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.device_grant import DeviceGrant
from schemas.telemetry.readings import DeviceFacts, GpuLink, HealthState, LinkKind
from services.scheduler.domain.model.fleet import Device

# Nearest first. NVLink counts twice: within a NUMA node, then anywhere.
_KINDS: Final = (LinkKind.NVLINK, *(kind for kind in LinkKind if kind is not LinkKind.SYS))
FAR: Final = len(_KINDS)
_LEVEL: Final = {kind: level for level, kind in enumerate(_KINDS)} | {LinkKind.SYS: FAR}

Groups = tuple[int, ...]
Fit = tuple[int, ...]


def link_groups(
    devices: Sequence[DeviceFacts], links: Iterable[GpuLink]
) -> dict[DeviceUuid, Groups]:
    """The groups of a node's GPUs. Of MIG instances none are known."""
    gpus = {device.uuid: device for device in devices if device.parent_uuid is None}
    joined: list[tuple[int, DeviceUuid, DeviceUuid]] = []
    for link in links:
        first, second = gpus.get(link.first_uuid), gpus.get(link.second_uuid)
        if first is not None and second is not None:
            within = link.kind is LinkKind.NVLINK and first.numa_node == second.numa_node
            joined.append((0 if within else _LEVEL[link.kind], first.uuid, second.uuid))
    of_numa: dict[int, DeviceUuid] = {}
    for uuid, gpu in gpus.items():
        if gpu.numa_node is not None:
            joined.append((FAR - 1, of_numa.setdefault(gpu.numa_node, uuid), uuid))
    linked = {uuid for _, *pair in joined for uuid in pair}
    group = {uuid: gpu.index for uuid, gpu in gpus.items()}
    groups_by_device: dict[DeviceUuid, Groups] = dict.fromkeys(linked, ())
    for level in range(FAR):
        for first_uuid, second_uuid in ((a, b) for at, a, b in joined if at == level):
            low, high = sorted((group[first_uuid], group[second_uuid]))
            group = {uuid: low if name == high else name for uuid, name in group.items()}
        groups_by_device = {
            uuid: (*groups, group[uuid]) for uuid, groups in groups_by_device.items()
        }
    return groups_by_device


class _Group(NamedTuple):
    """Two or more GPUs, by the bits of their indices. `around`: it and the groups it lies in."""

    level: int
    members: int
    around: tuple[int, ...]


class Closeness(NamedTuple):
    """How well a set of GPUs lies, less is better.

    `distance` orders nodes: 0 for one NVLink island or one GPU, 1 for one NUMA node, else 2.
    `fit` does within a node, and between nodes that are as full: the level of the group that the
    set lies in, then how many are free in it and in those around it, as what is left of a small
    group is less of a loss.
    """

    distance: int
    fit: Fit


class Topology:
    """The groups of a node's GPUs, and which GPUs are free."""

    __slots__ = ("_free", "groups")

    def __init__(self, groups: tuple[_Group, ...], free: int) -> None:
        self.groups = groups
        self._free = free

    @classmethod
    def of(cls, devices: Sequence[Device]) -> Self | "Topology":
        """Build the topology of all devices of a node."""
        layout = tuple((d.index, d.link_groups) for d in devices if d.link_groups)
        groups = _groups(layout) if layout else ()
        if not groups:
            return FLAT
        free = sum(
            1 << device.index
            for device in devices
            if device.holder is None and device.health is HealthState.OK and not device.cordoned
        )
        return cls(groups, free)

    def closeness(self, devices: Sequence[Device]) -> Closeness:
        """Return the closeness of the smallest group that contains all of these devices."""
        members = members_of(devices)
        for group in self.groups:
            if members & group.members == members:
                return self.closeness_in(group, len(devices))
        return ALONE if len(devices) == 1 else APART

    def closeness_in(self, group: _Group, gpus: int) -> Closeness:
        """Return the closeness of this many GPUs that lie in this group and in none within it."""
        level = 0 if gpus == 1 else group.level
        fit = (level, *((self._free & around).bit_count() for around in group.around))
        return Closeness(_distance(level), fit)


FLAT: Final = Topology((), 0)
ALONE: Final = Closeness(0, (0,))
APART: Final = Closeness(2, (FAR,))


def members_of(devices: Iterable[Device]) -> int:
    """Their indices as bits."""
    members = 0
    for device in devices:
        members |= 1 << device.index
    return members


def nearness(devices: Sequence[DeviceGrant]) -> LinkKind | None:
    """The farthest link that GPUs of one node have to use; None for one, or if it is unknown."""
    of_nodes: dict[NodeId, list[Groups]] = {}
    for device in devices:
        of_nodes.setdefault(device.node_id, []).append(device.link_groups)
    several = [groups for groups in of_nodes.values() if len(groups) > 1]
    if not several or not all(all(groups) for groups in several):
        return None
    farthest = 0
    for groups in several:
        shared_levels = (
            level for level, names in enumerate(zip(*groups, strict=True)) if len({*names}) < 2
        )
        farthest = max(farthest, next(shared_levels, FAR))
    return (*_KINDS, LinkKind.SYS)[farthest]


def memory_balance(devices: Sequence[DeviceGrant]) -> float | None:
    """The smallest free memory over the largest, as the grant was chosen; None for one device, of
    shares, or if one is unknown.
    """
    free = [device.memory_free_mb for device in devices if device.share is None]
    known_free = [free_mb for free_mb in free if free_mb is not None]
    if len(known_free) < max(2, len(devices)) or not max(known_free):
        return None
    return round(min(known_free) / max(known_free), 3)


def _distance(level: int) -> int:
    if level < _LEVEL[LinkKind.INTERNAL]:
        return 0
    return 1 if level < FAR else 2


@lru_cache(maxsize=4096)
def _groups(layout: tuple[tuple[int, Groups], ...]) -> tuple[_Group, ...]:
    """Nearest first, of one level in order of their indices; each at its nearest level only."""
    members: dict[tuple[int, int], int] = {}
    for index, names in layout:
        for level, name in enumerate(names):
            members[level, name] = members.get((level, name), 0) | 1 << index
    nearest: dict[int, int] = {}
    for level, name in sorted(members):
        nearest.setdefault(members[level, name], level)
    several = [(level, members) for members, level in nearest.items() if members.bit_count() > 1]
    return tuple(
        _Group(level, members, tuple(other for _, other in several if other & members == members))
        for level, members in several
    )
