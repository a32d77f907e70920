"""Whether a command may be applied to what is stored; each check raises RefusedError if not."""

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.scheduler import (
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
)
from services.scheduler.store import Reservation
from shared.errors import RefusedError

LONGEST_SECONDS: Final = 366 * 24 * 3600.0
HELD_ON_LEASE: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})

_DURATIONS: Final = ("wait_timeout_seconds", "expected_duration_seconds")
_NUMBERS: Final = (
    "max_utilization_percent",
    "wait_timeout_seconds",
    "lease_ttl_seconds",
    "expected_duration_seconds",
    "cpu_count",
)
_TEXTS: Final = ("device_uuids", "gpu_models")

Stored = Mapping[UUID, Reservation]


def check_request(command: RequestReservation) -> None:
    """That a request can be stored and waited for."""
    request = command.request
    for name in _DURATIONS:
        if (getattr(request, name) or 0) > LONGEST_SECONDS:
            raise RefusedError(
                ErrorCode.BAD_REQUEST,
                f"expected at most {LONGEST_SECONDS:.0f} s",
                path=f"$.request.{name}",
            )
    for name in _NUMBERS:
        value = getattr(request, name)
        if value is not None and not math.isfinite(value):
            raise RefusedError(
                ErrorCode.BAD_REQUEST, "expected a finite number", path=f"$.request.{name}"
            )
    check_text(command.holder, "$.holder")
    for name in _TEXTS:
        _check_texts(getattr(request, name), f"$.request.{name}")
    selectors = [*request.require, *(preference.selector for preference in request.prefer)]
    for selector in selectors:
        _check_texts((*selector.values, selector.label or ""), "$.request")


def check_same(stored: Reservation, command: RequestReservation) -> None:
    """That a reservation asked for again is asked for as before."""
    before = (stored.namespace, stored.holder, stored.request)
    if before != (command.namespace, command.holder, command.request):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {stored.reservation_id} was requested before with another body",
            path="$.reservation_id",
        )


def renewable(stored: Stored, command: RenewReservation, now: datetime) -> Reservation:
    """The reservation whose lease may go on."""
    found = known(stored.get(command.reservation_id), command.reservation_id)
    if found.state is ReservationState.QUEUED:
        raise RefusedError(
            ErrorCode.CONFLICT, f"reservation {found.reservation_id} is not granted yet"
        )
    expired = found.lease_expires_at is None or found.lease_expires_at <= now
    if found.state not in HELD_ON_LEASE or expired:
        what = "its lease ran out" if found.state in HELD_ON_LEASE else f"is {found.state.value}"
        raise RefusedError(ErrorCode.LEASE_LOST, f"reservation {found.reservation_id}: {what}")
    check_epoch(found, command.epoch)
    return found


def releasable(stored: Stored, command: ReleaseReservation) -> Reservation:
    """The reservation that may be given back."""
    check_text(command.reason, "$.reason")
    found = known(stored.get(command.reservation_id), command.reservation_id)
    check_epoch(found, command.epoch)
    return found


def known(stored: Reservation | None, reservation_id: UUID) -> Reservation:
    """What was found under an id."""
    if stored is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no reservation {reservation_id}", path="$.reservation_id"
        )
    return stored


def check_epoch(stored: Reservation, epoch: int) -> None:
    """That it is this grant, and no other, that is spoken of."""
    if stored.epoch is None:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {stored.reservation_id} is {stored.state.value} and was never granted",
        )
    if epoch != stored.epoch:
        raise RefusedError(
            ErrorCode.STALE_EPOCH,
            f"expected epoch {stored.epoch} of reservation {stored.reservation_id}, got {epoch}",
            path="$.epoch",
        )


def check_text(text: str, path: str) -> None:
    """Postgres stores every character but this one."""
    if "\x00" in text:
        raise RefusedError(ErrorCode.BAD_REQUEST, "expected text without NUL", path=path)


def _check_texts(values: Iterable[str], path: str) -> None:
    for place, value in enumerate(values):
        check_text(value, f"{path}[{place}]")
