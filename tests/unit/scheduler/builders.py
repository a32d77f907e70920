"""Valid devices and requests; a test says only what matters to it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from schemas.gpu_request import GpuRequest
from services.scheduler.domain.fleet import Device, Fleet, Reading, ReadingState
from services.scheduler.domain.placement import Look
from services.scheduler.domain.queue import QueuedRequest

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
