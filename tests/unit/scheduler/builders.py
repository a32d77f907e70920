"""Valid devices and requests; a test says only what matters to it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import Reason
from services.scheduler.domain.model.fleet import Device, Fleet, Node, Reading, ReadingState
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    Lease,
    LeaseHeld,
    NodeSeen,
    QueuedRequest,
    RequestQueued,
    arriving_request,
)
from services.scheduler.domain.placement.placement import Placed, PlacementContext
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_device(number: int = 1, **changes: Any) -> Device:
    """A free, idle, freshly read GPU of 80,000 MB; `free_mb` and `used` set its reading."""
    reading = Reading(
        utilization_percent=changes.pop("used", 0.0),
        memory_total_mb=80_000,
        memory_free_mb=changes.pop("free_mb", 80_000),
    )
    plain: dict[str, Any] = {
        "number": number,
        "node_id": "alpha",
        "uuid": f"GPU-{number}",
        "index": number,
        "name": "NVIDIA H100 80GB HBM3",
        "memory_total_mb": 80_000,
        "reading_state": ReadingState.FRESH,
        "reading": reading,
    }
    return Device(**plain | changes)


def make_context(devices: Iterable[Device], **changes: Any) -> PlacementContext:
    return PlacementContext(fleet=Fleet.of(devices), **changes)


def make_queued(number: int, request: GpuRequest | None = None, **changes: Any) -> QueuedRequest:
    """A request that arrived as the `number`-th and may wait for an hour."""
    plain: dict[str, Any] = {
        "reservation_id": UUID(int=number),
        "request": request or GpuRequest(),
        "arrival": number,
        "wait_deadline_at": NOW + timedelta(hours=1),
    }
    return QueuedRequest(**plain | changes)


def make_engine(*devices: Device, nodes: tuple[Node, ...] = (), **policy: Any) -> DecisionEngine:
    """An engine that knows a settled fleet."""
    engine = DecisionEngine(Policy(**policy))
    engine.apply(FleetComplete(complete=True), *(NodeSeen(node=node) for node in nodes))
    engine.apply(*(DeviceSeen(device=device) for device in devices))
    return engine


def queue(
    engine: DecisionEngine, number: int, request: GpuRequest | None = None, **changes: Any
) -> UUID:
    """Have a request wait; its id is its number."""
    entry = make_queued(number, request, **changes)
    engine.apply(RequestQueued(entry=entry))
    return entry.reservation_id


def would_grant(
    engine: DecisionEngine,
    request: GpuRequest,
    now: datetime,
    *,
    in_place_of: UUID | None = None,
) -> Placed | None:
    """Where a request would be placed that comes now, or as if one that waits had asked for it."""
    with engine.what_if(now) as what_if:
        waiting = what_if.find_queued(in_place_of) if in_place_of is not None else None
        asked = replace(waiting, request=request) if waiting else arriving_request(request, now)
        return what_if.place(asked)


def reasons(engine: DecisionEngine, reservation_id: UUID, now: datetime) -> tuple[Reason, ...]:
    """Why a waiting request is not granted now; empty if it would be, or does not wait."""
    with engine.what_if(now) as what_if:
        entry = what_if.find_queued(reservation_id)
        return what_if.reasons(entry) if entry is not None else ()


def hold(engine: DecisionEngine, number: int, *devices: int, **changes: Any) -> UUID:
    """A lease of devices under the reservation with that number."""
    plain: dict[str, Any] = {
        "reservation_id": UUID(int=number),
        "request": GpuRequest(gpus=len(devices)),
        "numbers": devices,
        "granted_at": NOW,
    }
    engine.apply(LeaseHeld(lease=Lease(**plain | changes)))
    return UUID(int=number)
