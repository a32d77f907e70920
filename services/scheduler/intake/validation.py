"""Whether a command may be applied to what is stored; each check raises RefusedError if not."""

import math
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gpus.gpu_request import (
    WHOLE,
    ClusterRequest,
    GpuRequest,
    Selector,
    ShareStrategy,
)
from schemas.scheduler.idle import MAX_EXEMPTION_DAYS, ExemptReservation
from schemas.scheduler.reservations import (
    OPEN_STATES,
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
)
from services.scheduler.domain.clusters.wishes import KEYS as CLUSTER_KEYS
from services.scheduler.domain.clusters.wishes import restricts
from services.scheduler.domain.placement.shares import ShareRules, hundredths, unit_hundredths
from services.scheduler.ledger.rows.reservation_rows import Reservation
from services.scheduler.ledger.transitions import HELD_ON_LEASE
from shared.accelerator_rules.cluster_parts import check_units
from shared.errors import RefusedError
from shared.gpu.selectors import check_selector, check_text, check_texts
from shared.messaging.speakers import require_speaker

MAX_SECONDS: Final = 366 * 24 * 3600.0

_DURATIONS: Final = ("wait_timeout_seconds", "expected_duration_seconds")
_NUMBERS: Final = (
    "max_utilization_percent",
    "wait_timeout_seconds",
    "lease_ttl_seconds",
    "expected_duration_seconds",
    "cpu_count",
)
_TEXTS: Final = ("device_uuids", "gpu_models")
_NOT_OF_CLUSTERS: Final = ("device_uuids",)
_NOT_OF_SHARES: Final = {
    "gpus": 1,
    "nodes": 1,
    "balanced_memory": False,
    "cluster": None,
}
_ONLY_OF_SHARES: Final = {
    "share_strategy": ShareStrategy.EVENLY,
    "min_free_shares": 0.0,
    "unfragmented": False,
    "enforced_shares": False,
}
_NOT_OF_MIG: Final = {"gpus": 1, "nodes": 1, "shares": None, "cluster": None}
ANY_SHARES: Final = ShareRules()
Stored = Mapping[UUID, Reservation]


def check_request(command: RequestReservation, rules: ShareRules = ANY_SHARES) -> None:
    """Check that a request can be stored and queued. Raises RefusedError."""
    check_text(command.holder, "$.holder")
    check_wanted(command.request, rules)
    request, namespace = command.request, command.namespace
    if request.shares is not None and not request.enforced_shares and rules.insists(namespace):
        raise _bad(
            f"expected `enforced_shares`: namespace {namespace} takes only shares that something"
            " enforces",
            "$.request.enforced_shares",
        )


def check_wanted(request: GpuRequest, rules: ShareRules = ANY_SHARES) -> None:
    """Check that a request means something, whether it is to be reserved or only tried. Raises
    RefusedError.
    """
    for name in _NUMBERS:
        value = getattr(request, name)
        if value is not None and not math.isfinite(value):
            raise _bad(f"expected a finite number, got {value}", f"$.request.{name}")
    for name in _DURATIONS:
        seconds = getattr(request, name) or 0
        if seconds > MAX_SECONDS:
            raise _bad(
                f"expected at most {MAX_SECONDS:.0f} s, got {seconds:g}", f"$.request.{name}"
            )
    for name in _TEXTS:
        check_texts(getattr(request, name), f"$.request.{name}")
    if request.cluster is not None:
        _check_cluster(request, request.cluster)
    _check_shares(request, rules)
    _check_mig(request)
    for path, selector in _selectors(request):
        check_selector(selector, path)


def _check_shares(request: GpuRequest, rules: ShareRules) -> None:
    """Check that a share can be granted exactly and that nothing beside it excludes it."""
    if request.shares is None:
        _check_unset(request, _ONLY_OF_SHARES, "expected none without `shares`")
        return
    _check_unset(
        request, _NOT_OF_SHARES, "expected none with `shares`, got {name} and shares in one request"
    )
    for name, shares in (("shares", request.shares), ("min_free_shares", request.min_free_shares)):
        amount = hundredths(shares) if math.isfinite(shares) else None
        if amount is None or amount % rules.quantum:
            quantum = rules.quantum / WHOLE
            raise _bad(f"expected a multiple of {quantum:g}, got {shares:g}", f"$.request.{name}")
    unit = unit_hundredths(request)
    if unit is not None and unit % rules.quantum:
        quantum = rules.quantum / WHOLE
        raise _bad(
            f"expected units that are multiples of {quantum:g} of a GPU, got {unit / WHOLE:g}",
            "$.request.units_per_gpu",
        )
    if request.unfragmented and request.share_strategy is ShareStrategy.FILL:
        raise _bad(
            "expected strategy 'evenly' with `unfragmented`: 'fill' leaves fragments",
            "$.request.share_strategy",
        )


def _check_mig(request: GpuRequest) -> None:
    """Check that nothing beside a MIG profile excludes it: an instance is exclusive, one for each
    request.
    """
    if request.mig_profile is None:
        return
    _check_unset(
        request, _NOT_OF_MIG, "expected one MIG instance, got {name} and mig_profile in one request"
    )


def _check_unset(request: GpuRequest, unset: Mapping[str, object], message: str) -> None:
    """Check that fields have the values that set no condition."""
    for name, value in unset.items():
        if getattr(request, name) != value:
            raise _bad(message.format(name=name), f"$.request.{name}")


def _check_cluster(request: GpuRequest, cluster: ClusterRequest) -> None:
    """Check that the request needs nothing that Kubernetes gives out without our choice."""
    if request.nodes > 1 and cluster.units is not None:
        raise _bad("expected whole GPUs on several nodes, got a part of one", "$.request.nodes")
    if request.nodes > 1 and not cluster.selects_node:
        raise _bad(
            "expected 1 node where the cluster's own scheduler is to choose, which does not bind"
            f" all or none; got {request.nodes}",
            "$.request.nodes",
        )
    for name in _NOT_OF_CLUSTERS:
        if getattr(request, name):
            raise _bad("expected none with `cluster`, which names no devices", f"$.request.{name}")
    for path, selector in _selectors(request):
        if selector.key not in CLUSTER_KEYS:
            keys = ", ".join(sorted(CLUSTER_KEYS))
            raise _bad(
                f"expected of a cluster, which names no devices, one of {keys}; got"
                f" {selector.key.value}",
                path,
            )
    check_units(cluster.resource, cluster.units, cluster.memory_units)
    if cluster.units is not None and request.gpus != 1:
        raise _bad("expected 1 GPU of which units are a part", "$.request.gpus")
    if cluster.pod_cpu_count is not None and not math.isfinite(cluster.pod_cpu_count):
        raise _bad(
            f"expected a finite number, got {cluster.pod_cpu_count}",
            "$.request.cluster.pod_cpu_count",
        )
    if not cluster.selects_node and (restricts(request, cluster) or request.prefer):
        raise _bad(
            "expected no wishes for nodes where the cluster's own scheduler is to choose",
            "$.request.cluster.selects_node",
        )
    check_texts(cluster.node_names, "$.request.cluster.node_names")
    check_texts(cluster.avoided_node_names, "$.request.cluster.avoided_node_names")
    check_text(cluster.resource or "", "$.request.cluster.resource")


def _selectors(request: GpuRequest) -> Iterator[tuple[str, Selector]]:
    for place, selector in enumerate(request.require):
        yield f"$.request.require[{place}]", selector
    for place, preference in enumerate(request.prefer):
        yield f"$.request.prefer[{place}].selector", preference.selector


def same(stored: Stored, command: RequestReservation) -> Reservation:
    """The reservation that is requested again, as before."""
    reservation = stored[command.reservation_id]
    stored_fields = (
        reservation.namespace,
        reservation.holder,
        reservation.request,
        reservation.requester,
    )
    if stored_fields != (command.namespace, command.holder, command.request, command.requester):
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {reservation.reservation_id} was requested before with another body",
            path="$.reservation_id",
        )
    return reservation


def renewable(stored: Stored, command: RenewReservation, now: datetime) -> Reservation:
    """The reservation whose lease may be extended."""
    reservation = check_owner(stored.get(command.reservation_id), command)
    if reservation.state is ReservationState.QUEUED:
        raise RefusedError(
            ErrorCode.CONFLICT, f"reservation {reservation.reservation_id} is not granted yet"
        )
    expired = reservation.lease_expires_at is None or reservation.lease_expires_at <= now
    if reservation.state not in HELD_ON_LEASE or expired:
        over = "out of lease" if reservation.state in HELD_ON_LEASE else reservation.state.value
        raise RefusedError(
            ErrorCode.LEASE_LOST,
            f"reservation {reservation.reservation_id} is {over}; stop what runs on its GPUs",
        )
    check_epoch(reservation, command.epoch)
    return reservation


def releasable(stored: Stored, command: ReleaseReservation) -> Reservation:
    """The reservation that may be given back."""
    check_text(command.reason, "$.reason")
    reservation = check_owner(stored.get(command.reservation_id), command)
    check_epoch(reservation, command.epoch)
    return reservation


def check_owner(
    stored: Reservation | None,
    command: RenewReservation | ReleaseReservation | CancelReservation | ExemptReservation,
) -> Reservation:
    """The reservation that a command is about: of the speaker's namespace, or granted there."""
    reservation = require(stored, command.reservation_id)
    require_speaker(command.speaker, reservation.namespace, reservation.node_ids)
    return reservation


def require(stored: Reservation | None, reservation_id: UUID) -> Reservation:
    """The reservation under an id. Raises RefusedError if there is none."""
    if stored is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no reservation {reservation_id}", path="$.reservation_id"
        )
    return stored


def check_exemption(stored: Reservation, until_at: datetime, now: datetime) -> None:
    """Check that the reservation is not over, and that the exemption is in the future and ends."""
    if stored.state not in OPEN_STATES:
        raise RefusedError(
            ErrorCode.CONFLICT,
            f"reservation {stored.reservation_id} is {stored.state.value}",
            path="$.reservation_id",
        )
    if not now < until_at <= now + timedelta(days=MAX_EXEMPTION_DAYS):
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a time within the next {MAX_EXEMPTION_DAYS} days, got"
            f" {until_at.isoformat()}",
            path="$.until_at",
        )


def check_epoch(stored: Reservation, epoch: int) -> None:
    """Check that the command is about the newest grant."""
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


def _bad(message: str, path: str) -> RefusedError:
    return RefusedError(ErrorCode.BAD_REQUEST, message, path=path)
