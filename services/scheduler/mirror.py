"""The ledger and the readings as the engine was last told them: what differs becomes its inputs."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from schemas.scheduler import ReservationState
from schemas.telemetry import HostFacts
from services.scheduler.changes import Rows
from services.scheduler.domain.decisions import Decision, Grant, Preempt
from services.scheduler.domain.fleet import Device, Node
from services.scheduler.domain.inputs import (
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeSeen,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
    Settled,
)
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.readings import DeviceKey
from services.scheduler.store import Row
from shared.database import from_json


@dataclass(slots=True)
class Mirror:
    """What of the ledger and the readings has been told.

    A held device's reading is its holder's use and is not told before the device is free.
    """

    reader: FleetReader
    _devices: dict[int, Row] = field(default_factory=dict)
    _numbers: dict[DeviceKey, int] = field(default_factory=dict)
    _by_node: defaultdict[NodeId, set[int]] = field(default_factory=lambda: defaultdict(set))
    _told: dict[int, Device] = field(default_factory=dict)
    _settle_at: dict[NodeId, float] = field(default_factory=dict)
    _is_fresh: dict[NodeId, bool] = field(default_factory=dict)
    _queued: set[UUID] = field(default_factory=set)
    _leased: set[UUID] = field(default_factory=set)
    _is_settled: bool | None = None

    def take(self, rows: Rows) -> Iterator[Input]:
        """What rows of the ledger tell anew. Leases come before the devices that they free."""
        for row in rows.nodes:
            self._settle_at[row["node_id"]] = self.reader.settles_at(row)
            yield NodeSeen(node=node_from(row))
        for row in rows.reservations:
            yield from self._reservation(row)
        for row in rows.devices:
            number = row["device_no"]
            self._devices[number] = row
            self._numbers[(row["node_id"], row["uuid"])] = number
            self._by_node[row["node_id"]].add(number)
        self.reader.ask_for_released(rows.devices)
        for row in rows.devices:
            yield from self._device(row["device_no"])

    def refresh(self, changed: Iterable[DeviceKey]) -> Iterator[Input]:
        """What newer readings, and silence, tell anew."""
        numbers = {self._numbers[key] for key in changed if key in self._numbers}
        for node_id, devices in self._by_node.items():
            is_fresh = self.reader.readings.is_fresh(node_id)
            if self._is_fresh.get(node_id) is not is_fresh:
                self._is_fresh[node_id] = is_fresh
                numbers |= devices
        for number in sorted(numbers):
            if self._devices[number]["reservation_id"] is None:
                yield from self._device(number)
        is_settled = self.reader.is_settled(
            self._settle_at.values(), has_devices=bool(self._devices)
        )
        if is_settled is not self._is_settled:
            self._is_settled = is_settled
            yield Settled(settled=is_settled)

    def has_free(self, keys: Iterable[DeviceKey]) -> bool:
        """Whether nobody holds one of these devices."""
        numbers = (self._numbers[key] for key in keys if key in self._numbers)
        return any(self._devices[number]["reservation_id"] is None for number in numbers)

    def follow(self, decisions: Iterable[Decision]) -> None:
        """Take over what the engine has decided, once it is committed."""
        for decision in decisions:
            if not isinstance(decision, Preempt):
                self._queued.discard(decision.reservation_id)
            if isinstance(decision, Grant):
                self._leased.add(decision.reservation_id)
                for number in decision.placed.numbers:
                    held = {**self._devices[number], "reservation_id": decision.reservation_id}
                    self._devices[number] = held
                    self._told.pop(number, None)

    def _device(self, number: int) -> Iterator[Input]:
        device = self.reader.device(self._devices[number])
        if self._told.get(number) != device:
            self._told[number] = device
            yield DeviceSeen(device=device)

    def _reservation(self, row: Row) -> Iterator[Input]:
        reservation_id = row["reservation_id"]
        if row["state"] == ReservationState.QUEUED:
            self._queued.add(reservation_id)
            yield RequestQueued(entry=queued_from(row))
            return
        if reservation_id in self._queued:
            self._queued.discard(reservation_id)
            yield RequestEnded(reservation_id=reservation_id)
        if row["numbers"]:
            self._leased.add(reservation_id)
            yield LeaseHeld(lease=lease_from(row))
        elif reservation_id in self._leased:
            self._leased.discard(reservation_id)
            yield LeaseEnded(reservation_id=reservation_id)


def node_from(row: Row) -> Node:
    """A node from its row."""
    host = from_json(row["host"], HostFacts) if row["host"] is not None else None
    return Node(
        node_id=row["node_id"],
        labels=from_json(row["labels"], dict[str, str]),
        cpu_count=float(host.cpu_count) if host and host.cpu_count is not None else None,
        memory_total_mb=host.memory_total_mb if host else None,
        cuda_driver_version=host.cuda_driver_version if host else None,
        lost=row["lost"],
    )


def queued_from(row: Row) -> QueuedRequest:
    """A request that waits, from its row."""
    return QueuedRequest(
        reservation_id=row["reservation_id"],
        request=from_json(row["request"], GpuRequest),
        arrival=row["arrival"],
        wait_deadline_at=row["wait_deadline_at"],
        queued_at=row["requested_at"],
    )


def lease_from(row: Row) -> Lease:
    """What a reservation holds, from its row.

    One that is over and waits for its confirmed stop gives way to nobody and ends at no known time.
    """
    request = from_json(row["request"], GpuRequest)
    lives = row["state"] in {ReservationState.GRANTED, ReservationState.ACTIVE}
    seconds = request.expected_duration_seconds if lives else None
    return Lease(
        reservation_id=row["reservation_id"],
        request=request if lives else replace(request, preemptible=False),
        numbers=tuple(row["numbers"]),
        granted_at=row["granted_at"],
        expected_end_at=row["granted_at"] + timedelta(seconds=seconds) if seconds else None,
        preempting_until=row["preempting_until"] if lives else None,
        preempting_for=row["preempted_for"] if lives else None,
    )
