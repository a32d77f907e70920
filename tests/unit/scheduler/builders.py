"""Valid devices and requests; a test says only what matters to it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from schemas.gpu_request import GpuRequest
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.fleet import Device, Fleet, Node, Reading, ReadingState
from services.scheduler.domain.inputs import (
    DeviceSeen,
    Lease,
    LeaseHeld,
    NodeSeen,
    QueuedRequest,
    RequestQueued,
    Settled,
)
from services.scheduler.domain.placement import Look
from services.scheduler.domain.policy import Policy

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


def make_look(devices: Iterable[Device], **changes: Any) -> Look:
    return Look(fleet=Fleet.of(devices), **changes)


def make_queued(number: int, request: GpuRequest | None = None, **changes: Any) -> QueuedRequest:
    """A request that arrived as the `number`-th and may wait for an hour."""
    plain: dict[str, Any] = {
        "reservation_id": UUID(int=number),
        "request": request or GpuRequest(),
        "arrival": number,
        "wait_deadline_at": NOW + timedelta(hours=1),
    }
    return QueuedRequest(**plain | changes)


def make_engine(*devices: Device, nodes: tuple[Node, ...] = (), **policy: Any) -> Engine:
    """An engine that knows a settled fleet."""
    engine = Engine(Policy(**policy))
    engine.apply(Settled(settled=True), *(NodeSeen(node=node) for node in nodes))
    engine.apply(*(DeviceSeen(device=device) for device in devices))
    return engine


def queue(engine: Engine, number: int, request: GpuRequest | None = None, **changes: Any) -> UUID:
    """Have a request wait; its id is its number."""
    entry = make_queued(number, request, **changes)
    engine.apply(RequestQueued(entry=entry))
    return entry.reservation_id


def hold(engine: Engine, number: int, *devices: int, **changes: Any) -> UUID:
    """A lease of devices under the reservation with that number."""
    plain: dict[str, Any] = {
        "reservation_id": UUID(int=number),
        "request": GpuRequest(gpus=len(devices)),
        "numbers": devices,
        "granted_at": NOW,
    }
    engine.apply(LeaseHeld(lease=Lease(**plain | changes)))
    return UUID(int=number)
