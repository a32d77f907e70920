"""What the decision engine knows: fleet, leases and queue, by applying one input after another."""

import heapq
from collections.abc import Iterator
from datetime import datetime
from itertools import repeat
from operator import attrgetter
from typing import Final, assert_never
from uuid import UUID

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpus.gpu_request import WHOLE
from services.scheduler.domain.model.demand import Demand
from services.scheduler.domain.model.fleet import (
    Device,
    Fleet,
    Host,
    HostResources,
    Node,
    Part,
    by_index,
)
from services.scheduler.domain.model.inputs import (
    CPU_PARTS,
    DemandSeen,
    DeviceGone,
    DeviceSeen,
    FleetComplete,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    NodeSeen,
    QueuedRequest,
    QuotaSet,
    RequestEnded,
    RequestQueued,
    UseSeen,
)
from services.scheduler.domain.model.inverses import inverses_of
from services.scheduler.domain.model.namespaces import NO_QUOTA, NO_USE, NOTHING, Held, Quota

SPARE_ENDS: Final = 64  # outdated ones that there may be beside as many as are current


class State:
    """Fleet, leases and queue.

    `touched` are the nodes that changed since it was last cleared: the one signal by which every
    index learns what is outdated, so whatever changes a node, its devices or the leases on it goes
    through `_touch`. A device that a lease names is held by that lease, whatever its own `holder`
    says, also if the device is reported after the lease.
    """

    def __init__(self) -> None:
        self.complete = False
        self.demand: Demand | None = None
        self.nodes: dict[NodeId, Node] = {}
        self.devices: dict[int, Device] = {}
        self.leases: dict[UUID, Lease] = {}
        self.queue: dict[UUID, QueuedRequest] = {}
        self.preemptible: dict[int, dict[UUID, None]] = {}  # by priority: may be preempted
        self.preempting: set[UUID] = set()  # leases that are being
        self.quotas: dict[str, Quota] = {}
        self.has_guarantees = False
        self.use = NO_USE
        self._held_by: dict[str, list[int]] = {}  # by namespace
        self._host_capacity: tuple[int, int] | None = None  # until a node changes
        self.touched: set[NodeId] = set()
        self.changes = 0  # that were applied
        self.is_recording = False  # of inverses, for a what-if to take changes back
        self._inverses: list[Input] = []
        self._ends: list[tuple[datetime, UUID]] = []
        self._overdue: set[UUID] = set()
        self._numbers: dict[NodeId, set[int]] = {}
        self._held: dict[int, UUID] = {}
        self._shared: dict[int, dict[UUID, int]] = {}  # hundredths by lease
        self._devices_on: dict[NodeId, tuple[Device, ...]] = {}
        self._hosts: dict[NodeId, Host] = {}
        self._leases_on: dict[NodeId, list[Lease]] = {}

    def record_inverses(self) -> None:
        """Record the inverse of each change from now on."""
        self._inverses, self.is_recording = [], True

    def take_inverses(self) -> list[Input]:
        """Stop recording; return the inverses, of which the last is to be applied first."""
        inverses, self._inverses, self.is_recording = self._inverses, [], False
        return inverses

    def apply(self, change: Input) -> None:  # noqa: C901  # one case per input
        """Apply one change; in a what-if its inverse is recorded first."""
        self.changes += 1
        if self.is_recording:
            self._inverses += inverses_of(change, self.queue, self.leases)
        match change:
            case NodeSeen(node=node):
                self.nodes[node.node_id] = node
                self._host_capacity = None
                self._touch(node.node_id)
            case NodeGone(node_id=node_id):
                self._remove_node(node_id)
            case DeviceSeen(device=device):
                self._put_device(device)
            case DeviceGone(number=number):
                self._remove(number)
            case RequestQueued(entry=entry):
                self.queue[entry.reservation_id] = entry
            case RequestEnded(reservation_id=reservation_id):
                self.queue.pop(reservation_id, None)
            case LeaseHeld(lease=lease):
                self._hold(lease)
            case LeaseEnded(reservation_id=reservation_id):
                self._end(reservation_id)
            case QuotaSet(quota=quota):
                self.quotas[quota.namespace] = quota
                self.has_guarantees = any(quota.guaranteed for quota in self.quotas.values())
            case FleetComplete(complete=complete):
                self.complete = complete
            case DemandSeen(demand=demand):
                self.demand = demand
            case UseSeen(use=use):
                self.use = use
            case _:
                assert_never(change)

    def inputs(self) -> Iterator[Input]:
        """The inputs from which an empty state becomes this one."""
        yield FleetComplete(complete=self.complete)
        if self.demand is not None:
            yield DemandSeen(demand=self.demand)
        if self.use is not NO_USE:
            yield UseSeen(use=self.use)
        for node_id in sorted(self.nodes):
            yield NodeSeen(node=self.nodes[node_id])
        for namespace in sorted(self.quotas):
            yield QuotaSet(quota=self.quotas[namespace])
        for number in sorted(self.devices):
            yield DeviceSeen(device=self.devices[number])
        for reservation_id in sorted(self.leases):
            yield LeaseHeld(lease=self.leases[reservation_id])
        for entry in sorted(self.queue.values(), key=lambda entry: entry.arrival):
            yield RequestQueued(entry=entry)

    def over_limit(self, namespace: str, hundredths: int) -> Quota | None:
        """The quota that forbids the namespace to hold so much more; None if none does."""
        quota = self.quotas.get(namespace)
        if quota is None or quota.limit is None:
            return None
        return quota if self.held_by(namespace).hundredths + hundredths > quota.limit else None

    def held_by(self, namespace: str) -> Held:
        """Return what the namespace's leases hold."""
        amounts = self._held_by.get(namespace)
        if amounts is None:
            return NOTHING
        return Held(hundredths=amounts[0], cpu_milli=amounts[1], memory_mb=amounts[2])

    def quota(self, namespace: str) -> Quota:
        """Return the namespace's quota; unless set: no limit, no guarantee, weight 1."""
        return self.quotas.get(namespace, NO_QUOTA)

    def capacity(self) -> Held:
        """The sum of all known GPUs and hosts."""
        if self._host_capacity is None:
            nodes = self.nodes.values()
            self._host_capacity = (
                round(sum(node.cpu_count or 0 for node in nodes) * CPU_PARTS),
                sum(node.memory_total_mb or 0 for node in nodes),
            )
        cpu_milli, memory_mb = self._host_capacity
        return Held(hundredths=WHOLE * len(self.devices), cpu_milli=cpu_milli, memory_mb=memory_mb)

    def devices_on(self, node_id: NodeId) -> tuple[Device, ...]:
        """A node's devices, in order of their index."""
        node_devices = self._devices_on.get(node_id)
        if node_devices is None:
            devices = (self.devices[number] for number in self._numbers.get(node_id, ()))
            node_devices = self._devices_on[node_id] = by_index(devices)
        return node_devices

    def host(self, node_id: NodeId) -> Host:
        """A node and what leases hold of it beside GPUs."""
        host = self._hosts.get(node_id)
        if host is None:
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            in_use = HostResources.sum(HostResources.of(o.request) for o in self.leases_on(node_id))
            host = self._hosts[node_id] = Host(node=node, held_resources=in_use)
        return host

    def fleet(self) -> Fleet:
        return Fleet(
            nodes={node_id: self.devices_on(node_id) for node_id in sorted(self._numbers)},
            complete=self.complete,
            hosts={node_id: self.host(node_id) for node_id in self._numbers.keys() | self.nodes},
        )

    def free_at(self, number: int) -> datetime | None:
        """Return when all leases on a held device are expected to have ended; None if unknown."""
        holder = self._held.get(number)
        if holder is not None:
            return self.end_of(self.leases[holder])
        ends = [
            self.end_of(self.leases[reservation_id])
            for reservation_id in self._shared.get(number, ())
        ]
        known_ends = [end for end in ends if end is not None]
        return max(known_ends) if known_ends and len(known_ends) == len(ends) else None

    def leases_on(self, node_id: NodeId) -> list[Lease]:
        """Leases that hold devices of a node, in order of their ids."""
        leases = self._leases_on.get(node_id)
        if leases is None:
            holder_ids, shared, numbers = self._held, self._shared, self._numbers.get(node_id, ())
            ids = {holder_ids[number] for number in numbers if number in holder_ids}
            if shared:
                ids.update(*(shared[number] for number in numbers if number in shared))
            leases = self._leases_on[node_id] = [
                self.leases[reservation_id] for reservation_id in sorted(ids, key=attrgetter("int"))
            ]
        return leases

    def nodes_of(self, lease: Lease) -> set[NodeId]:
        """Nodes of a lease's devices, as far as they are known."""
        return {self.devices[n].node_id for n in lease.numbers if n in self.devices}

    def end_of(self, lease: Lease) -> datetime | None:
        """Return when a lease is expected to end; None if unknown.

        A lease that has outlived its expectation may end any time or never, and so may one that is
        being preempted.
        """
        if lease.preempting_until is not None or lease.reservation_id in self._overdue:
            return None
        return lease.expected_end_at

    def pass_time(self, now: datetime) -> None:
        """Leases that should have ended by now promise no end any more; their nodes are touched."""
        while self._ends and self._ends[0][0] <= now:
            at, reservation_id = heapq.heappop(self._ends)
            lease = self.leases.get(reservation_id)
            if lease is not None and lease.expected_end_at == at:
                self._overdue.add(reservation_id)
                for node_id in self.nodes_of(lease):
                    self._touch(node_id)

    def next_end(self, now: datetime) -> datetime | None:
        """The next moment at which a lease is to end, by itself or by preemption."""
        ends = [self.leases[reservation_id].preempting_until for reservation_id in self.preempting]
        while self._ends and not self._is_current(*self._ends[0]):
            heapq.heappop(self._ends)
        ends += [end for end, _ in self._ends[:1]]
        return min((end for end in ends if end is not None and end > now), default=None)

    def _trim_ends(self) -> None:
        """Drop outdated ends: each update of a lease pushes its end again."""
        if len(self._ends) > 2 * len(self.leases) + SPARE_ENDS:
            self._ends = [
                (lease.expected_end_at, lease.reservation_id)
                for lease in self.leases.values()
                if lease.expected_end_at is not None and lease.reservation_id not in self._overdue
            ]
            heapq.heapify(self._ends)

    def _is_current(self, at: datetime, reservation_id: UUID) -> bool:
        lease = self.leases.get(reservation_id)
        return lease is not None and lease.expected_end_at == at

    def _touch(self, node_id: NodeId) -> None:
        self.touched.add(node_id)
        self._devices_on.pop(node_id, None)
        self._hosts.pop(node_id, None)
        self._leases_on.pop(node_id, None)

    def _put_device(self, device: Device) -> None:
        device_before = self.devices.get(device.number)
        if device_before is not None and device_before.node_id != device.node_id:
            self._remove(device.number)
        holder, parts = self._held.get(device.number), self._parts(device.number)
        if parts:
            holder = parts[0].holder
        if holder is not None and (device.holder, device.parts) != (holder, parts):
            device = replace(device, holder=holder, parts=parts)
        self.devices[device.number] = device
        self._numbers.setdefault(device.node_id, set()).add(device.number)
        self._touch(device.node_id)

    def _remove(self, number: int) -> None:
        device = self.devices.pop(number, None)
        if device is None:
            return
        numbers = self._numbers[device.node_id]
        numbers.discard(number)
        if not numbers:
            del self._numbers[device.node_id]
        self._touch(device.node_id)

    def _remove_node(self, node_id: NodeId) -> None:
        for number in tuple(self._numbers.get(node_id, ())):
            self._remove(number)
        self.nodes.pop(node_id, None)
        self._host_capacity = None
        self._touch(node_id)

    def _hold(self, lease: Lease) -> None:
        previous = self.leases.get(lease.reservation_id)
        places = lease.numbers, lease.parts
        if previous is not None and (previous.numbers, previous.parts) != places:
            self._end(lease.reservation_id)
        if lease.reservation_id not in self.leases:
            self._count_held(lease, 1)
        self.leases[lease.reservation_id] = lease
        self._overdue.discard(lease.reservation_id)
        if lease.expected_end_at is not None:
            heapq.heappush(self._ends, (lease.expected_end_at, lease.reservation_id))
            self._trim_ends()
        self._drop_preemptible(previous or lease)
        if lease.request.preemptible and lease.preempting_until is None:
            same_priority = self.preemptible.setdefault(lease.request.priority, {})
            same_priority[lease.reservation_id] = None
        if lease.preempting_until is not None:
            self.preempting.add(lease.reservation_id)
        else:
            self.preempting.discard(lease.reservation_id)
        self.queue.pop(lease.reservation_id, None)
        parts = lease.parts or repeat(WHOLE, len(lease.numbers))
        for number, part in zip(lease.numbers, parts, strict=True):
            if part < WHOLE:
                self._shared.setdefault(number, {})[lease.reservation_id] = part
            else:
                self._held[number] = lease.reservation_id
            self._set_holder(number, lease.reservation_id)

    def _end(self, reservation_id: UUID) -> None:
        lease = self.leases.pop(reservation_id, None)
        if lease is None:
            return
        self._count_held(lease, -1)
        self._overdue.discard(reservation_id)
        self._drop_preemptible(lease)
        self.preempting.discard(reservation_id)
        for number in lease.numbers:
            shared = self._shared.get(number, {})
            if shared.pop(reservation_id, None) is not None:
                if not shared:
                    del self._shared[number]
            elif self._held.get(number) == reservation_id:
                del self._held[number]
            else:
                continue
            device = self.devices.get(number)
            if device is not None:
                self._set_holder(number, device.holder if device.quarantined else None)

    def _count_held(self, lease: Lease, sign: int) -> None:
        amounts = self._held_by.setdefault(lease.namespace, [0, 0, 0])
        amounts[0] += sign * lease.hundredths
        amounts[1] += sign * lease.cpu_milli
        amounts[2] += sign * lease.memory_mb

    def _drop_preemptible(self, lease: Lease) -> None:
        same_priority = self.preemptible.get(lease.request.priority, {})
        same_priority.pop(lease.reservation_id, None)
        if not same_priority:
            self.preemptible.pop(lease.request.priority, None)

    def _parts(self, number: int) -> tuple[Part, ...]:
        shared = self._shared.get(number)
        if not shared:
            return ()
        return tuple(
            Part(reservation_id, shared[reservation_id])
            for reservation_id in sorted(shared, key=attrgetter("int"))
        )

    def _set_holder(self, number: int, holder: UUID | None) -> None:
        """The holder of the whole device; of a shared one by its leases."""
        device = self.devices.get(number)
        if device is None:
            return
        parts = self._parts(number)
        holder = parts[0].holder if parts else holder
        if (device.holder, device.parts) != (holder, parts):
            self.devices[number] = replace(device, holder=holder, parts=parts)
        self._touch(device.node_id)
