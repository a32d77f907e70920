"""What changes from outside: everything the engine decides on comes in as one of these.

A recorded list of them, applied to a new engine in the same order, decides the same.
"""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from schemas.base import NodeId
from schemas.gpu_request import GpuRequest
from services.scheduler.domain.fleet import Device, Node

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
FAR: Final = datetime.max.replace(tzinfo=UTC)
NOBODY: Final = UUID(int=0)
LAST_ARRIVAL: Final = 1 << 62


class QueuedRequest(Struct, frozen=True, kw_only=True):
    """A request that waits. `arrival` grows with every request that was accepted.

    `queued_at` is what it ages from; requests that leave it out age alike.
    """

    reservation_id: UUID
    request: GpuRequest
    arrival: int
    wait_deadline_at: datetime
    queued_at: datetime = LONG_AGO


def newcomer(request: GpuRequest, now: datetime) -> QueuedRequest:
    """A request that comes now, behind everybody of its priority."""
    return QueuedRequest(
        reservation_id=NOBODY,
        request=request,
        arrival=LAST_ARRIVAL,
        wait_deadline_at=FAR,
        queued_at=now,
    )


class Lease(Struct, frozen=True, kw_only=True):
    """A reservation that holds devices, by their numbers.

    `expected_end_at` None is unknown. With `preempting_until` it was told to stop by then, for
    `preempting_for`.
    """

    reservation_id: UUID
    request: GpuRequest
    numbers: tuple[int, ...]
    granted_at: datetime
    expected_end_at: datetime | None = None
    preempting_until: datetime | None = None
    preempting_for: UUID | None = None


class NodeSeen(Struct, frozen=True, kw_only=True, tag="node_seen"):
    """A node is there, or something about it has changed."""

    node: Node


class NodeGone(Struct, frozen=True, kw_only=True, tag="node_gone"):
    """A node was removed, with all its devices."""

    node_id: NodeId


class DeviceSeen(Struct, frozen=True, kw_only=True, tag="device_seen"):
    """A device is there, or something about it has changed: its reading, its health, its cordon.

    A device that a lease names stays held whatever `holder` says.
    """

    device: Device


class DeviceGone(Struct, frozen=True, kw_only=True, tag="device_gone"):
    """A device was removed from its node's inventory."""

    number: int


class RequestQueued(Struct, frozen=True, kw_only=True, tag="request_queued"):
    """A request waits from now on."""

    entry: QueuedRequest


class RequestEnded(Struct, frozen=True, kw_only=True, tag="request_ended"):
    """It waits no longer: cancelled, or ended by somebody else."""

    reservation_id: UUID


class LeaseHeld(Struct, frozen=True, kw_only=True, tag="lease_held"):
    """A reservation holds devices, or something about its lease has changed."""

    lease: Lease


class LeaseEnded(Struct, frozen=True, kw_only=True, tag="lease_ended"):
    """It holds nothing any more; of its devices those stay closed that are quarantined.

    Its node's CPUs and memory are free again with it.
    """

    reservation_id: UUID


class Settled(Struct, frozen=True, kw_only=True, tag="settled"):
    """Whether every known node has told its inventory, so that what cannot fit never will."""

    settled: bool


Input = (
    NodeSeen
    | NodeGone
    | DeviceSeen
    | DeviceGone
    | RequestQueued
    | RequestEnded
    | LeaseHeld
    | LeaseEnded
    | Settled
)
