"""Reservations that nothing uses: how they are reported, given up, and exempted."""

from enum import StrEnum
from typing import Annotated, Final
from uuid import UUID

from schemas.base import ScopedCommand, UtcDatetime, line
from schemas.scheduler.reservations import ReservationEvent

IDLE_WINDOW_SECONDS: Final = 1800.0
IDLE_GRACE_SECONDS: Final = 1800.0
MAX_EXEMPTION_DAYS: Final = 30

ExemptionReason = Annotated[str, line(min_length=1, max_length=1000)]


class IdleAction(StrEnum):
    """What becomes of a reservation that stays idle after its warning."""

    WARN = "warn"  # nothing but an event: it is left to people
    PREEMPTIBLE = "preemptible"  # any request that waits may have its GPUs, until it is used again
    RELEASE = "release"  # it ends, and its GPUs are free once their nodes confirmed the stop


class ExemptReservation(
    ScopedCommand, frozen=True, kw_only=True, tag="scheduler.exempt_reservation"
):
    """Never find a reservation idle before `until_at`, at most 30 days from now."""

    reservation_id: UUID
    reason: ExemptionReason
    until_at: UtcDatetime


class ReservationFoundIdle(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_found_idle"
):
    """Nothing has used its GPUs since `since_at`. `acts_at` is when `action` follows unless
    something does; None where nothing follows.
    """

    since_at: UtcDatetime
    action: IdleAction
    acts_at: UtcDatetime | None = None


class ReservationMadePreemptible(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_made_preemptible"
):
    """Still idle: until it is used again, any request that waits may end it, after notice."""

    since_at: UtcDatetime


class ReservationFoundActive(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_found_active"
):
    """It was idle, and is used again or exempted; what it was warned of does not follow."""


class ReservationExempted(
    ReservationEvent, frozen=True, kw_only=True, tag="scheduler.reservation_exempted"
):
    """It is not found idle before `until_at`."""

    reason: str
    until_at: UtcDatetime
