"""How GPUs are divided for requests that wait for MIG instances which do not exist yet.

By each GPU's own table of places. Only what its agent made, and nothing holds or is about to get,
gives way to another.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.gpu_request import GpuRequest
from schemas.gpus.mig import MigInstance, MigLayout, MigOption
from schemas.scheduler.reasons import ReasonCode
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import NO_HOST_RESOURCES, Device, Fleet, ReadingState
from services.scheduler.domain.placement.eligibility import blocks, host_blocks
from services.scheduler.domain.placement.request_shape import Shape, shape_of

MAX_AT_ONCE: Final = 32

# What a first reading ends; until then no other request needs one made.
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
        return frozenset(uuid for instance in self.remove for uuid in instance.device_uuids)


def divisions(
    requests: Sequence[GpuRequest],
    fleet: Fleet,
    under_way: Mapping[DeviceUuid, str],
    refused: Collection[DeviceUuid] = (),
) -> list[Division]:
    """Return the divisions to make now for these requests, in the order in which they are served.

    `under_way` are GPUs that are being changed, with the profile that they get; `refused` those
    that have just refused. A GPU is changed by one division at a time, and of many divisions the
    first `MAX_AT_ONCE` are decided.
    """
    coming = list(under_way.items())
    changing = {*under_way, *refused}
    # First all that there is: what a request waits for is removed for no other.
    missing, spared = _missing(requests, fleet)
    gpus = {
        gpu.uuid: gpu
        for gpu in _devices(fleet)
        if gpu.mig_layout is not None and gpu.reading_state is ReadingState.FRESH
    }
    decided: list[Division] = []
    hopeless: set[Shape] = set()  # what is possible only becomes less
    for request in missing:
        if len(decided) == MAX_AT_ONCE:
            break
        if (shape := shape_of(request)) in hopeless:
            continue
        expected = next(
            (change for change in coming if _is_for(gpus, fleet, request, *change)), None
        )
        if expected is not None:
            coming.remove(expected)
            continue
        choice = [gpu for uuid, gpu in gpus.items() if uuid not in changing]
        best = min(_possible(choice, fleet, request, spared), key=_cost, default=None)
        if best is None:
            hopeless.add(shape)
            continue
        decided.append(best)
        changing.add(best.gpu.uuid)
        spared |= best.removed_uuids
    return decided


def _missing(
    requests: Sequence[GpuRequest], fleet: Fleet
) -> tuple[list[GpuRequest], set[DeviceUuid]]:
    """The requests that no instance serves as soon as it is read, and instances of the others."""
    free: dict[str, list[Device]] = {}
    for device in _devices(fleet):
        if device.mig_profile is not None and device.holder is None:
            free.setdefault(device.mig_profile, []).append(device)
    missing: list[GpuRequest] = []
    spared: set[DeviceUuid] = set()
    for request in requests:
        candidates = free.get(request.mig_profile or "", [])
        node_of = fleet.node
        suitable_device = next(
            (d for d in candidates if _SOON.issuperset(blocks(d, request, node_of(d.node_id)))),
            None,
        )
        if suitable_device is None:
            missing.append(request)
        else:
            candidates.remove(suitable_device)
            spared.add(suitable_device.uuid)
    return missing, spared


def _is_for(
    gpus: Mapping[DeviceUuid, Device],
    fleet: Fleet,
    request: GpuRequest,
    uuid: DeviceUuid,
    profile: str,
) -> bool:
    gpu = gpus.get(uuid)
    return (
        gpu is not None
        and profile == request.mig_profile
        and set(blocks(gpu, request, fleet.node(gpu.node_id))) == {ReasonCode.MIG_NOT_MADE}
    )


def _possible(
    gpus: Iterable[Device], fleet: Fleet, request: GpuRequest, spared: set[DeviceUuid]
) -> Iterator[Division]:
    for gpu in gpus:
        layout, node_id = gpu.mig_layout or MigLayout(), gpu.node_id
        if set(blocks(gpu, request, fleet.node(node_id))) != {ReasonCode.MIG_NOT_MADE}:
            continue
        if next(host_blocks(fleet.host(node_id), request, NO_HOST_RESOURCES), None) is not None:
            continue
        devices = {device.uuid: device for device in fleet.nodes[node_id]}
        leaving = {
            instance for instance in layout.instances if _may_leave(instance, devices, spared)
        }
        option = next(option for option in layout.options if option.profile == request.mig_profile)
        if any(instance.profile == option.profile for instance in leaving):
            continue  # one is there and does not serve it, so that a second would not either
        if sum(instance.profile == option.profile for instance in layout.instances) >= option.limit:
            continue
        for start in option.starts:
            removed = tuple(e for e in layout.instances if _overlaps(e, start, option.size))
            if leaving.issuperset(removed):
                yield Division(gpu=gpu, profile=option.profile, start=start, remove=removed)


def _may_leave(
    instance: MigInstance, devices: Mapping[DeviceUuid, Device], spared: set[DeviceUuid]
) -> bool:
    """True if the agent made the instance and nothing uses it; what is unknown counts as used."""
    return instance.made_by_agent and all(
        uuid not in spared
        and (device := devices.get(uuid)) is not None
        and device.holder is None
        and not device.cordoned
        and not device.foreign_pids
        and device.unlisted_mb is None
        and device.health is HealthState.OK
        for uuid in instance.device_uuids
    )


def _cost(division: Division) -> tuple[int, int, NodeId, int, int]:
    """Least first: what is removed, then the room that others lose by it."""
    layout = division.gpu.mig_layout or MigLayout()
    staying = tuple((e.start, e.size) for e in layout.instances if e not in division.remove)
    size = next(option.size for option in layout.options if option.profile == division.profile)
    with_it = (*staying, (division.start, size))
    return (
        sum(instance.size for instance in division.remove),
        _room(layout.options, staying) - _room(layout.options, with_it),
        division.gpu.node_id,
        division.gpu.index,
        division.start,
    )


@lru_cache(maxsize=4096)
def _room(options: tuple[MigOption, ...], occupied: tuple[tuple[int, int], ...]) -> int:
    """The slices of all that could be made instead of each other."""
    return sum(
        option.size
        for option in options
        for start in option.starts
        if not any(at < start + option.size and start < at + size for at, size in occupied)
    )


def _overlaps(instance: MigInstance, start: int, size: int) -> bool:
    return instance.start < start + size and start < instance.start + instance.size


def _devices(fleet: Fleet) -> Iterator[Device]:
    for devices in fleet.nodes.values():
        yield from devices
