"""What the decision engine can decide; only changes."""

from datetime import datetime
from uuid import UUID

from msgspec import Struct

from schemas.scheduler.namespaces import PreemptionCause
from schemas.scheduler.reasons import Reason
from services.scheduler.domain.placement.placement import Placed


class Grant(Struct, frozen=True, kw_only=True, tag="grant"):
    """Devices for a request, as many as requested."""

    reservation_id: UUID
    placed: Placed


class Rejection(Struct, frozen=True, kw_only=True, tag="rejection"):
    """This fleet can never serve the request."""

    reservation_id: UUID
    reasons: tuple[Reason, ...]


class TimeOut(Struct, frozen=True, kw_only=True, tag="time_out"):
    """The request has waited as long as it wanted to; `reasons` are those of this moment."""

    reservation_id: UUID
    reasons: tuple[Reason, ...]


class Preempt(Struct, frozen=True, kw_only=True, tag="preempt"):
    """A reservation has to stop by `until_at`, for another that waits, and why."""

    reservation_id: UUID
    for_reservation_id: UUID
    until_at: datetime
    cause: PreemptionCause = PreemptionCause.PRIORITY


Decision = Grant | Rejection | TimeOut | Preempt
