"""The changes that take a decision back, for a what-if."""

from collections.abc import Iterator, Mapping
from uuid import UUID

from services.scheduler.domain.model.inputs import (
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
)


def inverses_of(
    change: Input, queue: Mapping[UUID, QueuedRequest], leases: Mapping[UUID, Lease]
) -> Iterator[Input]:
    """Yield what takes a change back that is about to be applied; the last is to come first.

    Raises RuntimeError for a change that is no decision.
    """
    match change:
        case (
            RequestQueued(entry=QueuedRequest(reservation_id=reservation_id))
            | LeaseHeld(lease=Lease(reservation_id=reservation_id))
            | RequestEnded(reservation_id=reservation_id)
        ):
            pass
        case _:
            raise RuntimeError(f"expected a decision in a what-if, found {change}")
    entry, lease = queue.get(reservation_id), leases.get(reservation_id)
    if entry is not None:
        yield RequestQueued(entry=entry)
    else:
        yield RequestEnded(reservation_id=reservation_id)
    if isinstance(change, LeaseHeld):
        if lease is not None:
            yield LeaseHeld(lease=lease)
        else:
            yield LeaseEnded(reservation_id=reservation_id)
