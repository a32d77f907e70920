"""The decision engine's inputs: everything that it decides on comes in as one of these.

A recorded list of them, applied to a new engine in the same order, decides the same.
"""

from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from msgspec import Struct, field

from schemas.base import NodeId
from schemas.gpus.gpu_request import WHOLE, GpuRequest
from services.scheduler.domain.model.demand import Demand
from services.scheduler.domain.model.fleet import Device, Node
from services.scheduler.domain.model.namespaces import Held, Quota, Use

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
FAR: Final = datetime.max.replace(tzinfo=UTC)
NO_RESERVATION: Final = UUID(int=0)
LAST_ARRIVAL: Final = 1 << 62
CPU_PARTS: Final = 1_000


class QueuedRequest(Struct, frozen=True, kw_only=True):
    """A request that waits. `arrival` grows with every request that was accepted.

    `queued_at` is what it ages from; requests that leave it out age alike. `has_reclaimed`: what
    another namespace had borrowed was taken back for it once.
    """

    reservation_id: UUID
    request: GpuRequest
    arrival: int
    wait_deadline_at: datetime
    queued_at: datetime = LONG_AGO
    namespace: str = ""
    has_reclaimed: bool = False


def arriving_request(request: GpuRequest, now: datetime, namespace: str = "") -> QueuedRequest:
    """A request that comes now; without a namespace, behind all of its priority."""
    return QueuedRequest(
        reservation_id=NO_RESERVATION,
        request=request,
        arrival=LAST_ARRIVAL,
        wait_deadline_at=FAR,
        queued_at=now,
        namespace=namespace,
    )


class Lease(Struct, frozen=True, kw_only=True):
    """A reservation that holds devices, by their numbers; of shared ones `parts`, in hundredths.

    `expected_end_at` None is unknown. With `preempting_until` it has to stop by then, for
    `preempting_for`. One that `is_over` only waits for its confirmed stop.
    """

    reservation_id: UUID
    request: GpuRequest
    numbers: tuple[int, ...]
    granted_at: datetime
    expected_end_at: datetime | None = None
    preempting_until: datetime | None = None
    preempting_for: UUID | None = None
    parts: tuple[int, ...] = ()
    namespace: str = ""
    is_over: bool = False

    @property
    def hundredths(self) -> int:
        """The hundredths of GPUs that the lease holds."""
        return sum(self.parts) if self.parts else WHOLE * len(self.numbers)

    @property
    def cpu_milli(self) -> int:
        """The CPUs that it holds on all its nodes, in thousandths."""
        cpu_count = self.request.cpu_count
        return round(cpu_count * CPU_PARTS) * self.request.nodes if cpu_count else 0

    @property
    def memory_mb(self) -> int:
        """The memory that it holds on all its nodes, in MB."""
        return (self.request.host_memory_mb or 0) * self.request.nodes

    @property
    def held(self) -> Held:
        """The sum of what it holds."""
        return Held(hundredths=self.hundredths, cpu_milli=self.cpu_milli, memory_mb=self.memory_mb)


class NodeSeen(Struct, frozen=True, kw_only=True, tag="node_seen"):
    """A node is new or has changed."""

    node: Node


class NodeGone(Struct, frozen=True, kw_only=True, tag="node_gone"):
    """A node was removed, with all its devices."""

    node_id: NodeId


class DeviceSeen(Struct, frozen=True, kw_only=True, tag="device_seen"):
    """A device is new or has changed: its reading, its health, its cordon.

    A device that a lease names stays held whatever `holder` is.
    """

    device: Device


class DeviceGone(Struct, frozen=True, kw_only=True, tag="device_gone"):
    """A device was removed from its node's inventory."""

    number: int


class RequestQueued(Struct, frozen=True, kw_only=True, tag="request_queued"):
    """A request waits from now on, or one that waits is replaced."""

    entry: QueuedRequest


class RequestEnded(Struct, frozen=True, kw_only=True, tag="request_ended"):
    """A request waits no longer: cancelled, or ended by another process."""

    reservation_id: UUID


class LeaseHeld(Struct, frozen=True, kw_only=True, tag="lease_held"):
    """A reservation holds devices, or its lease has changed."""

    lease: Lease


class LeaseEnded(Struct, frozen=True, kw_only=True, tag="lease_ended"):
    """A reservation holds nothing any more, neither devices nor host resources.

    Devices that are quarantined stay closed.
    """

    reservation_id: UUID


class QuotaSet(Struct, frozen=True, kw_only=True, tag="quota_set"):
    """What a namespace may hold from now on."""

    quota: Quota


class UseSeen(Struct, frozen=True, kw_only=True, tag="use_seen"):
    """What namespaces have held up to now; their turn goes by it."""

    use: Use


class FleetComplete(Struct, frozen=True, kw_only=True, tag="settled"):
    """Whether every known node has reported its inventory, so that what cannot fit never will.

    Recorded as `settled`, as in every decision log so far.
    """

    complete: bool = field(name="settled")


class DemandSeen(Struct, frozen=True, kw_only=True, tag="demand_seen"):
    """What is usually requested has changed; only the `density` policy decides by it."""

    demand: Demand


Input = (
    NodeSeen
    | NodeGone
    | DeviceSeen
    | DeviceGone
    | RequestQueued
    | RequestEnded
    | LeaseHeld
    | LeaseEnded
    | QuotaSet
    | FleetComplete
    | DemandSeen
    | UseSeen
)
