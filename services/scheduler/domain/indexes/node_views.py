"""A node as searches see it: what is the same for every request is computed once per state."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from schemas.base import DeviceUuid, NodeId
from schemas.gpus.gpu_request import SelectorKey, SelectorOperator
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.model.fleet import Device, HostResources, Node, ReadingState
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.density import Room
from services.scheduler.domain.placement.device_choice import Scored, quality
from services.scheduler.domain.placement.placement import Weights, fill_of, score
from services.scheduler.domain.placement.request_shape import Filter
from services.scheduler.domain.placement.topology import Topology
from shared.gpu.free_memory import DEFAULT_FREE_SHARE

Traits = tuple[object, ...]
LEAST_LOG: Final = 1024


class AvailableDevice(NamedTuple):
    """A free device in service with a fresh reading; whether it suits depends on the request."""

    position: int
    scored: Scored
    used_percent: float
    free_mb: int
    half_mb: float


class _Numbers(dict[Traits, int]):
    """Traits in the order in which they were first asked for: a new one gets the next number."""

    def __missing__(self, traits: Traits) -> int:
        number = self[traits] = len(self)
        return number


class NodeView:
    """One state of a node, immutable: a change makes a new one.

    `traits` are equal for nodes that requests distinguish only by name, uuid or label, and
    `kind` numbers them. `fill` sorts fuller nodes first. A capacity that is None is unknown.
    """

    def __init__(
        self, state: State, node_id: NodeId, weights: Weights, kinds: Mapping[Traits, int]
    ) -> None:
        host, devices = state.host(node_id), state.devices_on(node_id)
        node = host.node
        self.node_id = node_id
        self.node = node
        self.devices = devices
        self.traits: Traits = (node.cuda_driver_version, *map(_traits, devices))
        self.kind = kinds[self.traits]
        self.fill = fill_of(devices)
        self.topology = Topology.of(devices)
        self.open = _open(devices, node, weights)
        cpus, memory = node.cpu_count, node.memory_total_mb
        self.cpu_free = cpus - host.held_resources.cpu_count if cpus is not None else None
        self.memory_free_mb = memory - host.held_resources.memory_mb if memory is not None else None
        self._host = host

    @cached_property
    def room(self) -> Room:
        """Return what is free, which the density alone asks for."""
        return Room.of(self.devices, self._host)

    @property
    def identity(self) -> Traits:
        """Return a key, equal only for the same node with the same devices and labels."""
        uuids = tuple(device.uuid for device in self.devices)
        return self.node_id, self.traits, uuids, tuple(sorted(self.node.labels.items()))

    def has_host_resources(self, needs: HostResources, host_reserved: HostResources) -> bool:
        """Return True if CPUs and memory suffice beside what is reserved."""
        return _suffices(self.cpu_free, host_reserved.cpu_count, needs.cpu_count) and _suffices(
            self.memory_free_mb, host_reserved.memory_mb, needs.memory_mb
        )


class NodeViews:
    """All nodes that have devices, and the log of changes by which indexes catch up.

    `refresh` is the only place that renews views, from `State.touched`. `log` holds the ids of
    changed nodes from number `log_start` on; it is cut now and then, and an index that is further
    behind gets None from `since` and is built anew. `remade` are nodes whose identity changed, not
    only their use: `WaitingGroups.refresh_filters` consumes it.
    """

    def __init__(self, state: State, weights: Weights) -> None:
        self.nodes: dict[NodeId, NodeView] = {}
        self.kinds: dict[int, NodeView] = {}  # one node of each kind that there ever was
        self.log: list[NodeId] = []
        self.log_start = 0
        self.remade: set[NodeId] = set()
        self._state = state
        self._weights = weights
        self._numbers = _Numbers()
        self._places: dict[DeviceUuid, set[NodeId]] = {}  # where a device is or once was

    @property
    def log_end(self) -> int:
        """Number of the next change."""
        return self.log_start + len(self.log)

    def refresh(self) -> tuple[NodeId, ...]:
        """Renew the views of touched nodes; which nodes they were."""
        touched = self._state.touched
        if not touched:
            return ()
        changed = tuple(sorted(touched))
        touched.clear()
        for node_id in changed:
            self._renew(node_id)
        self.log += changed
        if len(self.log) > 4 * len(self.nodes) + LEAST_LOG:
            self.log_start = self.log_end
            self.log.clear()
        return changed

    def since(self, number: int) -> set[NodeId] | None:
        """Nodes that changed from this number on; None if the log does not reach back that far."""
        if number < self.log_start:
            return None
        return set(self.log[number - self.log_start :])

    def candidates(self, filter_: Filter) -> Iterable[NodeView]:
        """Nodes that the filter may let through, by the nodes and uuids that it names."""
        names = _list_accepted(filter_, SelectorKey.NODE, filter_.node_ids)
        uuids = _list_accepted(filter_, SelectorKey.GPU_UUID, filter_.device_uuids)
        if uuids is not None:
            places = {place for uuid in uuids for place in self._places.get(uuid, ())}
            names = places if names is None else names & places
        if names is None:
            return self.nodes.values()
        return [self.nodes[name] for name in sorted(names) if name in self.nodes]

    def _renew(self, node_id: NodeId) -> None:
        if not self._state.devices_on(node_id):
            self.nodes.pop(node_id, None)
            self.remade.add(node_id)
            return
        view_before = self.nodes.get(node_id)
        view = NodeView(self._state, node_id, self._weights, self._numbers)
        self.nodes[node_id] = view
        if view.kind not in self.kinds:
            self.kinds[view.kind] = view
        if view_before is None or not _is_same_node(view_before, view):
            self.remade.add(node_id)
            for device in view.devices:
                self._places.setdefault(device.uuid, set()).add(node_id)


def is_in_service(device: Device, node: Node) -> bool:
    """True if only a holder or its use prevents a grant of the device."""
    return not (
        node.lost
        or not node.admitted
        or node.cluster is not None
        or device.foreign_pids
        or device.unlisted_mb is not None
        or device.health is not HealthState.OK
        or device.cordoned
        or device.quarantined
    )


def _list_accepted(filter_: Filter, key: SelectorKey, names: tuple[str, ...]) -> set[str] | None:
    """The only values that the filter accepts for a key; None if it accepts any."""
    accepted = [names] if names else []
    accepted += [
        selector.values
        for selector in filter_.require
        if selector.key is key and selector.operator is SelectorOperator.IN
    ]
    return set.intersection(*map(set, accepted)) if accepted else None


def _is_same_node(view: NodeView, other: NodeView) -> bool:
    return (
        view.kind == other.kind
        and (view.node is other.node or view.node == other.node)
        and all(a.uuid == b.uuid for a, b in zip(view.devices, other.devices, strict=True))
    )


def _suffices(free: float | None, host_reserved: float, needed: float) -> bool:
    return not needed or (free is not None and free - host_reserved >= needed)


def _traits(device: Device) -> Traits:
    return (
        device.index,
        device.name,
        device.total_mb,
        device.compute_capability,
        device.numa_node,
        device.mig_enabled,
        device.parent_uuid is None,
        device.mig_profile,
        _makes(device),
    )


def _makes(device: Device) -> Traits:
    """The MIG instances that its agent may make."""
    layout = device.mig_layout
    options = layout.options if layout is not None else ()
    return tuple((option.profile, option.memory_mb) for option in options)


def _open(devices: tuple[Device, ...], node: Node, weights: Weights) -> tuple[AvailableDevice, ...]:
    available_devices = []
    for position, device in enumerate(devices):
        reading, total = device.reading, device.total_mb
        if (
            device.holder is None
            and not (device.mig_enabled and device.parent_uuid is None)
            and device.reading_state is ReadingState.FRESH
            and reading is not None
            and (used := reading.utilization_percent) is not None
            and (free := reading.memory_free_mb) is not None
            and total is not None
            and is_in_service(device, node)
        ):
            scored = Scored(device, score(device, weights))
            half = total * DEFAULT_FREE_SHARE
            available_devices.append(AvailableDevice(position, scored, used, free, half))
    return tuple(sorted(available_devices, key=lambda available: quality(available.scored)))
