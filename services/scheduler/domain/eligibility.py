"""Which devices may serve a request now, which never can, and the reason of each that does not."""

import re
from collections.abc import Iterator
from typing import Final

from schemas.gpu_request import GpuRequest, Reason, ReasonCode
from schemas.telemetry import HealthState
from services.scheduler.domain.fleet import Device, ReadingState

NEVER: Final = frozenset(
    {
        ReasonCode.NODE_MISMATCH,
        ReasonCode.UUID_MISMATCH,
        ReasonCode.MODEL_MISMATCH,
        ReasonCode.INSUFFICIENT_TOTAL_MEMORY,
    }
)
DEFAULT_FREE_SHARE: Final = 0.5

_READING_REASONS: Final = {
    ReadingState.ABSENT: ReasonCode.NO_READING,
    ReadingState.STALE: ReasonCode.STALE_READING,
    ReadingState.AWAITING: ReasonCode.AWAITING_SNAPSHOT,
}
_PLAIN: Final = {
    ReasonCode.CORDONED: "is cordoned",
    ReasonCode.NO_READING: "has not been read yet",
    ReasonCode.STALE_READING: "has no recent reading; its agent is silent",
    ReasonCode.AWAITING_SNAPSHOT: "was just released; its first reading since is under way",
    ReasonCode.UTILIZATION_UNKNOWN: "does not tell its utilization",
    ReasonCode.MEMORY_UNKNOWN: "does not tell its memory",
}
_SEPARATORS: Final = re.compile(r"[\s_-]+")


def can_ever_serve(device: Device, request: GpuRequest) -> bool:
    """Whether the device matches what does not change: node, uuid, model, total memory."""
    return next(_mismatches(device, request), None) is None


def is_eligible(device: Device, request: GpuRequest) -> bool:
    """Whether the device may be granted to this request now, the queue left aside."""
    return next(blocks(device, request), None) is None


def blocks(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    """Every reason why this device does not serve this request now.

    What a held device shows is its holder's use, so only a free one is judged by its reading.
    """
    yield from _mismatches(device, request)
    if device.health is not HealthState.OK:
        yield ReasonCode.UNHEALTHY
    if device.cordoned:
        yield ReasonCode.CORDONED
    if device.quarantined:
        yield ReasonCode.QUARANTINED
    elif device.holder is not None:
        yield ReasonCode.HELD
    else:
        yield from _foreign_use(device, request)


def needed_free_mb(device: Device, request: GpuRequest) -> float | None:
    """How much memory has to be free: what was asked, else half of the device's total.

    None if that half is unknown.
    """
    if request.min_memory_mb is not None:
        return request.min_memory_mb
    return device.total_mb * DEFAULT_FREE_SHARE if device.total_mb is not None else None


def matches_model(name: str, models: tuple[str, ...]) -> bool:
    """Whether a device's name contains one of the models; case and separators do not matter."""
    flat = _flat(name)
    return not models or any(_flat(model) in flat for model in models)


def reason_for(code: ReasonCode, device: Device, request: GpuRequest) -> Reason:
    """A device's reason with a sentence of what was expected and what is."""
    return Reason(
        code=code,
        message=f"GPU {device.index} on {device.node_id} {_predicate(code, device, request)}",
        node_id=device.node_id,
        device_uuid=device.uuid,
    )


def _mismatches(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    if request.node_ids and device.node_id not in request.node_ids:
        yield ReasonCode.NODE_MISMATCH
    if request.device_uuids and device.uuid not in request.device_uuids:
        yield ReasonCode.UUID_MISMATCH
    if not matches_model(device.name, request.gpu_models):
        yield ReasonCode.MODEL_MISMATCH
    total = device.total_mb
    if request.min_memory_mb is not None and total is not None and total < request.min_memory_mb:
        yield ReasonCode.INSUFFICIENT_TOTAL_MEMORY


def _foreign_use(device: Device, request: GpuRequest) -> Iterator[ReasonCode]:
    if device.reading_state is not ReadingState.FRESH:
        yield _READING_REASONS[device.reading_state]
        return
    reading = device.reading
    if reading is None or reading.utilization_percent is None:
        yield ReasonCode.UTILIZATION_UNKNOWN
    elif reading.utilization_percent > request.max_utilization_percent:
        yield ReasonCode.UTILIZATION_ABOVE_LIMIT
    needed = needed_free_mb(device, request)
    if reading is None or reading.memory_free_mb is None or device.total_mb is None:
        yield ReasonCode.MEMORY_UNKNOWN
    elif needed is not None and reading.memory_free_mb < needed:
        yield ReasonCode.INSUFFICIENT_FREE_MEMORY


def _flat(text: str) -> str:
    return _SEPARATORS.sub("", text).casefold()


def _predicate(code: ReasonCode, device: Device, request: GpuRequest) -> str:
    """What the device is or lacks, as the rest of a sentence that names it."""
    if code in _PLAIN:
        return _PLAIN[code]
    if code in NEVER:
        return _mismatch_predicate(code, device, request)
    reading = device.reading
    if code is ReasonCode.UTILIZATION_ABOVE_LIMIT and reading is not None:
        limit = request.max_utilization_percent
        return (
            f"is {reading.utilization_percent:.0f} % utilized by others, {limit:.0f} % is the limit"
        )
    if code is ReasonCode.INSUFFICIENT_FREE_MEMORY and reading is not None:
        needed = needed_free_mb(device, request) or 0
        return f"has {reading.memory_free_mb} MB free, {needed:.0f} MB are needed"
    if code is ReasonCode.HELD:
        return f"is held by reservation {device.holder}"
    if code is ReasonCode.QUARANTINED:
        return f"is quarantined until reservation {device.holder} is confirmed stopped"
    detail = f" ({device.health_detail})" if device.health_detail else ""
    return f"is {device.health.value}{detail}"


def _mismatch_predicate(code: ReasonCode, device: Device, request: GpuRequest) -> str:
    if code is ReasonCode.NODE_MISMATCH:
        return f"is not on any of the nodes asked for ({', '.join(request.node_ids)})"
    if code is ReasonCode.UUID_MISMATCH:
        return f"({device.uuid}) is none of the devices asked for"
    if code is ReasonCode.MODEL_MISMATCH:
        return f"is a {device.name}, not any of {', '.join(request.gpu_models)}"
    return f"has {device.total_mb} MB in all, {request.min_memory_mb} MB are needed"
