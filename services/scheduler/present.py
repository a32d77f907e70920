"""The engine as the leader would have it now, for questions: from the ledger and own readings."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from schemas.scheduler import LIVE_STATES
from schemas.telemetry import HostFacts
from services.scheduler import store
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.fleet import Fleet, Node
from services.scheduler.domain.inputs import (
    DeviceSeen,
    Input,
    Lease,
    LeaseHeld,
    NodeSeen,
    QueuedRequest,
    RequestQueued,
    Settled,
)
from services.scheduler.domain.policy import Policy
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.store import Row
from shared.database import Connection, from_json

_LEASES: Final = """
SELECT r.reservation_id, r.request, r.granted_at, r.preempting_until, r.preempted_for,
    array_agg(h.device_no ORDER BY h.device_no) AS numbers
FROM reservation r JOIN holding h USING (reservation_id)
WHERE h.released_at IS NULL AND r.state = ANY($1)
GROUP BY r.reservation_id
"""
_QUEUE: Final = """
SELECT reservation_id, request, arrival, wait_deadline_at, requested_at FROM reservation
WHERE state = 'queued'
"""


@dataclass(frozen=True, slots=True)
class Moment:
    """What questions are answered from: one state of the ledger, at one time of its clock."""

    now: datetime
    fleet: Fleet
    engine: Engine


@dataclass(frozen=True, slots=True)
class Present:
    """Builds an engine for every question; any scheduler can, whoever leads."""

    reader: FleetReader
    policy: Policy

    async def read(self, connection: Connection) -> Moment:
        """The ledger in this transaction, with this process's readings."""
        fleet = await self.reader.read(connection)
        nodes = await connection.fetch("SELECT node_id, labels, host, lost FROM node")
        leases = await connection.fetch(_LEASES, [state.value for state in LIVE_STATES])
        queue = await connection.fetch(_QUEUE)
        engine = Engine(self.policy)
        engine.apply(Settled(settled=fleet.settled))
        engine.apply(*(NodeSeen(node=_node(row)) for row in nodes))
        engine.apply(*_devices(fleet))
        engine.apply(*(LeaseHeld(lease=_lease(row)) for row in leases))
        engine.apply(*(RequestQueued(entry=_entry(row)) for row in queue))
        return Moment(now=await store.database_now(connection), fleet=engine.fleet, engine=engine)


def _devices(fleet: Fleet) -> Iterator[Input]:
    for devices in fleet.nodes.values():
        for device in devices:
            yield DeviceSeen(device=device)


def _node(row: Row) -> Node:
    host = from_json(row["host"], HostFacts) if row["host"] is not None else None
    node_id: NodeId = row["node_id"]
    return Node(
        node_id=node_id,
        labels=from_json(row["labels"], dict[str, str]),
        cpu_count=host.cpu_count if host is not None else None,
        memory_total_mb=host.memory_total_mb if host is not None else None,
        cuda_driver_version=host.cuda_driver_version if host is not None else None,
        lost=row["lost"],
    )


def _lease(row: Row) -> Lease:
    request = from_json(row["request"], GpuRequest)
    seconds = request.expected_duration_seconds
    return Lease(
        reservation_id=row["reservation_id"],
        request=request,
        numbers=tuple(row["numbers"]),
        granted_at=row["granted_at"],
        expected_end_at=row["granted_at"] + timedelta(seconds=seconds) if seconds else None,
        preempting_until=row["preempting_until"],
        preempting_for=row["preempted_for"],
    )


def _entry(row: Row) -> QueuedRequest:
    return QueuedRequest(
        reservation_id=row["reservation_id"],
        request=from_json(row["request"], GpuRequest),
        arrival=row["arrival"],
        wait_deadline_at=row["wait_deadline_at"],
        queued_at=row["requested_at"],
    )
