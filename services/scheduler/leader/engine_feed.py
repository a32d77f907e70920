"""Diffs ledger rows and readings against what the engine was last given, and yields engine inputs.

Why the engine stays a correct copy of the ledger:
- It starts from one snapshot of the database. Triggers record every later change of what decisions
  depend on, and each poll yields those that were not visible in the snapshot of the one before.
- Rows are read after the poll, so they may be newer than it; they then come again with the next
  poll, and applying a row twice changes nothing.
- Its own decisions are applied when their transaction has committed, and polls leave that
  transaction out. If the commit fails, or may have, the engine is discarded and loaded anew.
- It is also discarded after a gap in polling that is long enough for recorded changes to have been
  deleted.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from msgspec.structs import replace

from schemas.base import NodeId
from schemas.scheduler.reservations import ReservationState
from services.scheduler.domain.labels import CLUSTER_LABEL
from services.scheduler.domain.model.fleet import Device, Node
from services.scheduler.domain.model.inputs import (
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
)
from services.scheduler.domain.placement.decisions import Decision, Grant, Preempt
from services.scheduler.leader.fleet_reader import FleetReader
from services.scheduler.ledger.change_feed import DeviceRow, NodeRow, ReservationRow, Rows
from services.scheduler.ledger.transitions import HELD_ON_LEASE
from services.scheduler.observations.latest_readings import DeviceKey
from shared.accelerator_rules.cuda_versions import cuda_of_driver


@dataclass(slots=True)
class EngineFeed:
    """What the engine was given of the ledger and of the readings.

    A held device's reading is its holder's use; the engine gets none before the device is free,
    and of a shared one only how old it is.
    Queued requests for GPUs of clusters are separate, and never given to it.
    """

    reader: FleetReader
    _devices: dict[int, DeviceRow] = field(default_factory=dict)
    _numbers: dict[DeviceKey, int] = field(default_factory=dict)
    _by_node: defaultdict[NodeId, set[int]] = field(default_factory=lambda: defaultdict(set))
    _devices_applied: dict[int, Device] = field(default_factory=dict)
    _complete_at: dict[NodeId, float] = field(default_factory=dict)
    _is_fresh: dict[NodeId, bool] = field(default_factory=dict)
    _queued: set[UUID] = field(default_factory=set)
    _leased: set[UUID] = field(default_factory=set)
    _of_clusters: set[UUID] = field(default_factory=set)
    _is_complete: bool | None = None

    def apply_rows(self, rows: Rows) -> Iterator[Input]:
        """Yield what is new in rows of the ledger. Leases come before the devices that they
        free.
        """
        for node in rows.nodes:
            if not node.removed:
                self._complete_at[node.node_id] = self.reader.complete_at(node)
                yield NodeSeen(node=node_from(node))
        yield from (QuotaSet(quota=quota) for quota in rows.quotas)
        for reservation in rows.reservations:
            yield from self._reservation(reservation)
        present = [device for device in rows.devices if not device.removed]
        for device in present:
            self._devices[device.device_no] = device
            self._numbers[device.node_id, device.uuid] = device.device_no
            self._by_node[device.node_id].add(device.device_no)
        self.reader.snapshots.request(present)
        for device in present:
            yield from self._device(device.device_no)
        for device in rows.devices:
            if device.removed:
                yield from self._forget(device)
        for node in rows.nodes:
            if node.removed:
                self._complete_at.pop(node.node_id, None)
                yield NodeGone(node_id=node.node_id)

    def apply_readings(self, changed: Iterable[DeviceKey]) -> Iterator[Input]:
        """Yield what is new in these devices' readings, and by the silence of nodes."""
        numbers = {self._numbers[key] for key in changed if key in self._numbers}
        for node_id, devices in self._by_node.items():
            is_fresh = self.reader.readings.is_fresh(node_id)
            if self._is_fresh.get(node_id) is not is_fresh:
                self._is_fresh[node_id] = is_fresh
                numbers |= devices
        for number in sorted(numbers):
            device = self._devices[number]
            if device.reservation_id is None or device.parts:
                yield from self._device(number)
        is_complete = self.reader.is_complete(
            self._complete_at.values(), has_devices=bool(self._devices)
        )
        if is_complete is not self._is_complete:
            self._is_complete = is_complete
            yield FleetComplete(complete=is_complete)

    def apply_decisions(self, decisions: Iterable[Decision]) -> None:
        """Record what the engine has decided and applied itself, once it is committed."""
        for decision in decisions:
            if not isinstance(decision, Preempt):
                self._queued.discard(decision.reservation_id)
            if isinstance(decision, Grant):
                self._leased.add(decision.reservation_id)
                parts = decision.placed.parts
                for number in decision.placed.numbers:
                    self._devices[number] = self._devices[number].with_holding(
                        decision.reservation_id, parts.get(number)
                    )
                    self._devices_applied.pop(number, None)

    @property
    def awaits_cluster(self) -> bool:
        """Return True if a request for GPUs of a cluster is queued."""
        return bool(self._of_clusters)

    def has_free(self, keys: Iterable[DeviceKey]) -> bool:
        """Return True if one of these devices is held by no reservation."""
        numbers = (self._numbers[key] for key in keys if key in self._numbers)
        return any(
            self._devices[number].reservation_id is None or self._devices[number].parts
            for number in numbers
        )

    def _device(self, number: int) -> Iterator[Input]:
        device = self.reader.device(self._devices[number])
        if self._devices_applied.get(number) != device:
            self._devices_applied[number] = device
            yield DeviceSeen(device=device)

    def _forget(self, device: DeviceRow) -> Iterator[Input]:
        number = device.device_no
        if self._devices.pop(number, None) is None:
            return
        self._devices_applied.pop(number, None)
        del self._numbers[device.node_id, device.uuid]
        self._by_node[device.node_id].discard(number)
        yield DeviceGone(number=number)

    def _reservation(self, row: ReservationRow) -> Iterator[Input]:
        reservation_id = row.reservation_id
        if row.request.cluster is not None:
            is_queued = row.state is ReservationState.QUEUED
            (self._of_clusters.add if is_queued else self._of_clusters.discard)(reservation_id)
            return
        if row.state is ReservationState.QUEUED:
            self._queued.add(reservation_id)
            yield RequestQueued(entry=queued_request(row))
            return
        if reservation_id in self._queued:
            self._queued.discard(reservation_id)
            yield RequestEnded(reservation_id=reservation_id)
        if row.numbers:
            self._leased.add(reservation_id)
            yield LeaseHeld(lease=lease_from(row))
        elif reservation_id in self._leased:
            self._leased.discard(reservation_id)
            yield LeaseEnded(reservation_id=reservation_id)


def node_from(row: NodeRow) -> Node:
    host = row.host
    return Node(
        node_id=row.node_id,
        labels=row.labels,
        cpu_count=float(host.cpu_count) if host and host.cpu_count is not None else None,
        memory_total_mb=host.memory_total_mb if host else None,
        cuda_driver_version=(
            host.cuda_driver_version or cuda_of_driver(host.driver_version) if host else None
        ),
        lost=row.lost,
        admitted=row.admitted,
        cluster=row.labels.get(CLUSTER_LABEL),
    )


def queued_request(row: ReservationRow) -> QueuedRequest:
    return QueuedRequest(
        reservation_id=row.reservation_id,
        request=row.request,
        arrival=row.arrival,
        wait_deadline_at=row.wait_deadline_at,
        queued_at=row.requested_at,
        namespace=row.namespace,
        has_reclaimed=row.has_reclaimed,
    )


def lease_from(row: ReservationRow) -> Lease:
    """Return what a reservation holds, from its row.

    A reservation that is over and waits for its confirmed stop cannot be preempted and ends at no
    known time.
    """
    is_live = row.state in HELD_ON_LEASE
    seconds = row.request.expected_duration_seconds if is_live else None
    granted_at = row.granted_at or row.requested_at
    return Lease(
        reservation_id=row.reservation_id,
        request=row.request if is_live else replace(row.request, preemptible=False),
        numbers=row.numbers,
        parts=row.parts,
        namespace=row.namespace,
        granted_at=granted_at,
        expected_end_at=granted_at + timedelta(seconds=seconds) if seconds else None,
        preempting_until=row.preempting_until if is_live else None,
        preempting_for=row.preempted_for if is_live else None,
        is_over=not is_live,
    )
