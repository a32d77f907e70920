"""The order of waiting requests: of priority, raised by age."""

from datetime import datetime, timedelta

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.inputs import LONG_AGO, QueuedRequest
from services.scheduler.domain.placement.request_shape import (
    Rank,
    RankedRequest,
    Seniority,
    shape_of,
)


def seniority_of(entry: QueuedRequest, aging_seconds: float) -> Seniority:
    """Return the request's order in its namespace: all requests age alike, so it never changes with
    time.
    """
    priority, number = entry.request.priority, entry.reservation_id.int
    microsecond = timedelta.resolution
    point = timedelta(seconds=aging_seconds) // microsecond
    if not point:
        return -priority, entry.arrival, number
    return (entry.queued_at - LONG_AGO) // microsecond - priority * point, entry.arrival, number


def rank_request(request: GpuRequest, rank: Rank, now: datetime) -> RankedRequest:
    """The request at that rank; `ends_at` if it began now."""
    seconds = request.expected_duration_seconds
    return RankedRequest(
        request=request,
        shape=shape_of(request),
        rank=rank,
        ends_at=later(now, seconds) if seconds is not None else None,
    )


def later(now: datetime, seconds: float) -> datetime:
    """Add seconds, up to the end of the calendar."""
    end = datetime.max.replace(tzinfo=now.tzinfo)
    return now + timedelta(seconds=seconds) if seconds < (end - now).total_seconds() else end


def is_shorter(entry: QueuedRequest, other: QueuedRequest) -> bool:
    """True if the request is expected to take less time."""
    mine = entry.request.expected_duration_seconds
    other_seconds = other.request.expected_duration_seconds
    return mine is not None and (other_seconds is None or mine < other_seconds)
