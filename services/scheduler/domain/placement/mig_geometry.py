"""How GPUs are divided for requests that wait for MIG instances which nobody has made yet.

By each GPU's own table of places. Only what its agent made, and nothing holds or is about to get,
gives way to another.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.gpu_request import GpuRequest, ReasonCode
from schemas.mig import MigInstance, MigLayout, MigOption
from schemas.telemetry import HealthState
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, Device, Fleet, ReadingState
from services.scheduler.domain.placement.eligibility import blocks, host_blocks
from services.scheduler.domain.placement.mig_options import to_be_made

# What a first reading ends; until then nobody else needs one made.
_SOON: Final = frozenset(
    {
        ReasonCode.NO_READING,
        ReasonCode.STALE_READING,
        ReasonCode.AWAITING_SNAPSHOT,
        ReasonCode.UTILIZATION_UNKNOWN,
        ReasonCode.MEMORY_UNKNOWN,
    }
)


class Division(Struct, frozen=True, kw_only=True):
    """To make an instance of `profile` at `start` of a GPU, in place of those in `remove`."""

    gpu: Device
    profile: str
    start: int
    remove: tuple[MigInstance, ...] = ()

    @property
    def removed_uuids(self) -> frozenset[DeviceUuid]:
        return frozenset(uuid for each in self.remove for uuid in each.device_uuids)


def divisions(
    requests: Sequence[GpuRequest],
    fleet: Fleet,
    under_way: Mapping[DeviceUuid, str],
    refused: Collection[DeviceUuid] = (),
) -> list[Division]:
    """What is to be made now for these requests, in the order in which they are served.

    `under_way` are GPUs that are being changed, with the profile that they get; `refused` those
    that have just refused. A GPU is changed by one division at a time.
    """
    coming = list(under_way.items())
    changing = {*under_way, *refused}
    spared: set[DeviceUuid] = set()
    missing: list[GpuRequest] = []
    # First all that there is: what anybody waits for is removed for nobody.
    for request in requests:
        found = next(_ready(fleet, request, spared), None)
        if found is None:
            missing.append(request)
        else:
            spared.add(found.uuid)
    decided: list[Division] = []
    for request in missing:
        expected = next(
            (each for each in coming if _is_for(fleet, request, *each)),
            None,
        )
        if expected is not None:
            coming.remove(expected)
            continue
        best = min(_possible(fleet, request, changing, spared), key=_cost, default=None)
        if best is not None:
            decided.append(best)
            changing.add(best.gpu.uuid)
            spared |= best.removed_uuids
    return decided


def _ready(fleet: Fleet, request: GpuRequest, taken: set[DeviceUuid]) -> Iterator[Device]:
    """Instances that the request gets as soon as they are read."""
    for node_id, device in _devices(fleet):
        if device.parent_uuid is None or device.uuid in taken:
            continue
        if _SOON.issuperset(blocks(device, request, fleet.node(node_id))):
            yield device


def _is_for(fleet: Fleet, request: GpuRequest, uuid: DeviceUuid, profile: str) -> bool:
    return profile == request.mig_profile and any(
        device.uuid == uuid
        and ReasonCode.MIG_NOT_MADE in (codes := set(blocks(device, request, fleet.node(node_id))))
        and len(codes) == 1
        for node_id, device in _devices(fleet)
    )


def _possible(
    fleet: Fleet, request: GpuRequest, changing: set[DeviceUuid], spared: set[DeviceUuid]
) -> Iterator[Division]:
    for node_id, gpu in _devices(fleet):
        layout, node = gpu.mig_layout, fleet.node(node_id)
        if layout is None or gpu.uuid in changing or to_be_made(gpu, request) is None:
            continue
        if gpu.reading_state is not ReadingState.FRESH:  # its agent is silent
            continue
        if set(blocks(gpu, request, node)) != {ReasonCode.MIG_NOT_MADE}:
            continue
        if next(host_blocks(fleet.host(node_id), request, NO_HOST_RESOURCES), None) is not None:
            continue
        devices = {each.uuid: each for each in fleet.nodes[node_id]}
        leaving = {each for each in layout.instances if _may_leave(each, devices, spared)}
        option = next(each for each in layout.options if each.profile == request.mig_profile)
        if any(each.profile == option.profile for each in leaving):
            continue  # one is there and does not serve it, so that a second would not either
        for start in option.starts:
            removed = tuple(e for e in layout.instances if _overlaps(e, start, option.size))
            if leaving.issuperset(removed) and _is_below_limit(layout, option, removed):
                yield Division(gpu=gpu, profile=option.profile, start=start, remove=removed)


def _may_leave(
    instance: MigInstance, devices: Mapping[DeviceUuid, Device], spared: set[DeviceUuid]
) -> bool:
    """Whether the agent made it and nothing uses it; what is not known is used."""
    return instance.made_by_agent and all(
        uuid not in spared
        and (device := devices.get(uuid)) is not None
        and device.holder is None
        and not device.cordoned
        and not device.foreign_pids
        and device.health is HealthState.OK
        for uuid in instance.device_uuids
    )


def _is_below_limit(layout: MigLayout, option: MigOption, removed: tuple[MigInstance, ...]) -> bool:
    there = sum(each.profile == option.profile for each in layout.instances if each not in removed)
    return there < option.limit


def _cost(division: Division) -> tuple[int, int, NodeId, int, int]:
    """Least first: what is removed, then the room that others lose by it."""
    layout = division.gpu.mig_layout or MigLayout()
    staying = [each for each in layout.instances if each not in division.remove]
    size = next(each.size for each in layout.options if each.profile == division.profile)
    made = MigInstance(profile=division.profile, start=division.start, size=size)
    return (
        sum(each.size for each in division.remove),
        _room(layout.options, staying) - _room(layout.options, [*staying, made]),
        division.gpu.node_id,
        division.gpu.index,
        division.start,
    )


def _room(options: Sequence[MigOption], instances: Sequence[MigInstance]) -> int:
    """The slices of all that could be made instead of each other."""
    return sum(
        option.size
        for option in options
        for start in option.starts
        if not any(_overlaps(each, start, option.size) for each in instances)
    )


def _overlaps(instance: MigInstance, start: int, size: int) -> bool:
    return instance.start < start + size and start < instance.start + instance.size


def _devices(fleet: Fleet) -> Iterator[tuple[NodeId, Device]]:
    for node_id, devices in fleet.nodes.items():
        for device in devices:
            yield node_id, device
