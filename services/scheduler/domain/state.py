"""What the engine knows: fleet, leases and queue, kept by one input after another."""

import heapq
from collections.abc import Iterator
from datetime import datetime
from typing import Final, assert_never
from uuid import UUID

from msgspec.structs import replace

from schemas.base import NodeId
from services.scheduler.domain.fleet import Device, Fleet, Host, Node, Room
from services.scheduler.domain.inputs import (
    DeviceGone,
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    NodeSeen,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
    Settled,
)

SPARE_ENDS: Final = 64  # outdated ones that there may be beside as many as are current


class State:
    """Fleet, leases and queue. `touched` are the nodes that changed since it was last cleared.

    A device that a lease names is held by that lease, whatever else was told of it, also if the
    device is told after the lease.
    """

    def __init__(self) -> None:
        self.settled = False
        self.nodes: dict[NodeId, Node] = {}
        self.devices: dict[int, Device] = {}
        self.leases: dict[UUID, Lease] = {}
        self.queue: dict[UUID, QueuedRequest] = {}
        self.preemptible: dict[int, dict[UUID, None]] = {}  # by priority: may be told to stop
        self.preempting: set[UUID] = set()  # leases that were
        self.touched: set[NodeId] = set()
        self._ends: list[tuple[datetime, UUID]] = []
        self._overdue: set[UUID] = set()
        self._numbers: dict[NodeId, set[int]] = {}
        self._held: dict[int, UUID] = {}
        self._groups: dict[NodeId, tuple[Device, ...]] = {}
        self._hosts: dict[NodeId, Host] = {}
        self._leases_on: dict[NodeId, list[Lease]] = {}

    def apply(self, change: Input) -> None:
        """Take over one change."""
        match change:
            case NodeSeen(node=node):
                self.nodes[node.node_id] = node
                self._touch(node.node_id)
            case NodeGone(node_id=node_id):
                self._remove_node(node_id)
            case DeviceSeen(device=device):
                self._see(device)
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
            case Settled(settled=settled):
                self.settled = settled
            case _:
                assert_never(change)

    def inputs(self) -> Iterator[Input]:
        """The inputs from which an empty state becomes this one."""
        yield Settled(settled=self.settled)
        for node_id in sorted(self.nodes):
            yield NodeSeen(node=self.nodes[node_id])
        for number in sorted(self.devices):
            yield DeviceSeen(device=self.devices[number])
        for reservation_id in sorted(self.leases):
            yield LeaseHeld(lease=self.leases[reservation_id])
        for entry in sorted(self.queue.values(), key=lambda entry: entry.arrival):
            yield RequestQueued(entry=entry)

    def group(self, node_id: NodeId) -> tuple[Device, ...]:
        """A node's devices, in order of their index."""
        found = self._groups.get(node_id)
        if found is None:
            devices = (self.devices[number] for number in self._numbers.get(node_id, ()))
            found = self._groups[node_id] = tuple(sorted(devices, key=lambda d: (d.index, d.uuid)))
        return found

    def host(self, node_id: NodeId) -> Host:
        """A node and what leases hold of it beside GPUs."""
        found = self._hosts.get(node_id)
        if found is None:
            node = self.nodes.get(node_id) or Node(node_id=node_id)
            found = self._hosts[node_id] = Host(node=node, held=self._room(node_id))
        return found

    def node_ids(self) -> list[NodeId]:
        """Nodes that have devices, in order."""
        return sorted(self._numbers)

    def fleet(self) -> Fleet:
        """All of it as it is now."""
        return Fleet(
            nodes={node_id: self.group(node_id) for node_id in self.node_ids()},
            settled=self.settled,
            hosts={node_id: self.host(node_id) for node_id in self._numbers.keys() | self.nodes},
        )

    def lease_of(self, number: int) -> Lease | None:
        """The lease that holds a device."""
        holder = self._held.get(number)
        return self.leases[holder] if holder is not None else None

    def leases_on(self, node_id: NodeId) -> list[Lease]:
        """Leases that hold devices of a node, in order of their ids."""
        found = self._leases_on.get(node_id)
        if found is None:
            held = self._held
            ids = {held[number] for number in self._numbers.get(node_id, ()) if number in held}
            found = [self.leases[reservation_id] for reservation_id in sorted(ids, key=_number)]
            self._leases_on[node_id] = found
        return found

    def nodes_of(self, lease: Lease) -> set[NodeId]:
        """Nodes of a lease's devices, as far as they are known."""
        return {self.devices[n].node_id for n in lease.numbers if n in self.devices}

    def end_of(self, lease: Lease) -> datetime | None:
        """When a lease is expected to end; None if nobody can tell.

        One that has outlived its expectation may end any time or never, and so may one that was
        told to stop.
        """
        if lease.preempting_until is not None or lease.reservation_id in self._overdue:
            return None
        return lease.expected_end_at

    def pass_time(self, now: datetime) -> None:
        """Expect nothing more of leases that should have ended by now."""
        while self._ends and self._ends[0][0] <= now:
            at, reservation_id = heapq.heappop(self._ends)
            lease = self.leases.get(reservation_id)
            if lease is not None and lease.expected_end_at == at:
                self._overdue.add(reservation_id)
                for node_id in self.nodes_of(lease):
                    self._touch(node_id)

    def next_end(self, now: datetime) -> datetime | None:
        """The next moment at which a lease is to end, by itself or because it was told to."""
        ends = [self.leases[each].preempting_until for each in self.preempting]
        while self._ends and not self._is_current(*self._ends[0]):
            heapq.heappop(self._ends)
        ends += [end for end, _ in self._ends[:1]]
        return min((end for end in ends if end is not None and end > now), default=None)

    def _trim_ends(self) -> None:
        """Leases are told again and again; of each one end is enough."""
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

    def _room(self, node_id: NodeId) -> Room:
        cpu_count, memory_mb = 0.0, 0
        for lease in self.leases_on(node_id):
            cpu_count += lease.request.cpu_count or 0.0
            memory_mb += lease.request.host_memory_mb or 0
        return Room(cpu_count=cpu_count, memory_mb=memory_mb)

    def _touch(self, node_id: NodeId) -> None:
        self.touched.add(node_id)
        self._groups.pop(node_id, None)
        self._hosts.pop(node_id, None)
        self._leases_on.pop(node_id, None)

    def _see(self, device: Device) -> None:
        before = self.devices.get(device.number)
        if before is not None and before.node_id != device.node_id:
            self._remove(device.number)
        holder = self._held.get(device.number)
        if holder is not None and device.holder != holder:
            device = replace(device, holder=holder)
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
        self._touch(node_id)

    def _hold(self, lease: Lease) -> None:
        before = self.leases.get(lease.reservation_id)
        if before is not None and before.numbers != lease.numbers:
            self._end(lease.reservation_id)
        self.leases[lease.reservation_id] = lease
        self._overdue.discard(lease.reservation_id)
        if lease.expected_end_at is not None:
            heapq.heappush(self._ends, (lease.expected_end_at, lease.reservation_id))
            self._trim_ends()
        self._forget_preemptible(before or lease)
        if lease.request.preemptible and lease.preempting_until is None:
            alike = self.preemptible.setdefault(lease.request.priority, {})
            alike[lease.reservation_id] = None
        if lease.preempting_until is not None:
            self.preempting.add(lease.reservation_id)
        else:
            self.preempting.discard(lease.reservation_id)
        self.queue.pop(lease.reservation_id, None)
        for number in lease.numbers:
            self._held[number] = lease.reservation_id
            self._set_holder(number, lease.reservation_id)

    def _end(self, reservation_id: UUID) -> None:
        lease = self.leases.pop(reservation_id, None)
        if lease is None:
            return
        self._overdue.discard(reservation_id)
        self._forget_preemptible(lease)
        self.preempting.discard(reservation_id)
        for number in lease.numbers:
            if self._held.get(number) != reservation_id:
                continue
            del self._held[number]
            device = self.devices.get(number)
            if device is not None and not device.quarantined:
                self._set_holder(number, None)
            elif device is not None:
                self._touch(device.node_id)

    def _forget_preemptible(self, lease: Lease) -> None:
        alike = self.preemptible.get(lease.request.priority, {})
        alike.pop(lease.reservation_id, None)
        if not alike:
            self.preemptible.pop(lease.request.priority, None)

    def _set_holder(self, number: int, holder: UUID | None) -> None:
        device = self.devices.get(number)
        if device is None:
            return
        if device.holder != holder:
            self.devices[number] = replace(device, holder=holder)
        self._touch(device.node_id)


def _number(reservation_id: UUID) -> int:
    return reservation_id.int
