"""Reservations: the scheduler's, requested, renewed, explained and given back."""

import asyncio
import contextlib
from typing import Annotated, Any, Final
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.base import Command
from schemas.errors import Accepted
from schemas.gateway import endpoints
from schemas.gateway.views import IdleExemption, LeaseRenewal, ReservationRequest
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.idle import ExemptReservation
from schemas.scheduler.reservations import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
)
from schemas.scheduler.views import (
    AvailabilityView,
    EstimateRequirements,
    EstimateView,
    ExplainReservation,
    Explanation,
    GetAvailability,
    GetReservation,
    ListReservations,
    ReservationList,
    ReservationView,
)
from services.gateway.context import Gateway
from services.gateway.domain.access import Identity
from services.gateway.domain.availability_news import Idle, is_news
from services.gateway.live_state import Watcher
from services.gateway.routes.common import (
    Caller,
    Cursor,
    ExpectedRevision,
    GivenReason,
    IdempotencyKey,
    InNamespace,
    InStates,
    OnNode,
    PageSize,
    TheGateway,
    command_id_of,
    id_for,
    parse_choices,
    route,
    whole_number,
)
from shared.waiting import wait_for, within

MAX_WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 2.0  # an event may be lost with the bus
SAFETY_SECONDS: Final = 10.0  # the same, where readings wake as well

WaitSeconds = Annotated[float, QueryParameter(ge=0, le=MAX_WAIT_SECONDS)]


@route(endpoints.REQUEST_RESERVATION)
async def request_reservation(
    data: JSONBody[ReservationRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[ReservationView]:
    """Ask for GPUs. The answer is the stored request; `wait_seconds` of GET awaits the grant."""
    namespace = identity.namespace_for(data.namespace)
    command_id = command_id_of(idempotency_key, identity, namespace)
    reservation_id = data.reservation_id or id_for(command_id)
    command = RequestReservation(
        command_id=command_id,
        reservation_id=reservation_id,
        namespace=namespace,
        holder=data.holder,
        request=data.request,
        requester=identity.requester_for(data.requester, "$.requester"),
    )
    await gateway.send(command)
    view = await _view(gateway, identity, reservation_id)
    location = endpoints.GET_RESERVATION.address(reservation_id=reservation_id)
    return Response(view, status_code=201, headers={"Location": location})


@route(endpoints.LIST_RESERVATIONS)
async def list_reservations(
    gateway: TheGateway,
    identity: Caller,
    in_states: InStates = None,
    namespace: InNamespace = None,
    node_id: OnNode = None,
    limit: PageSize = 100,
    cursor: Cursor = None,
) -> ReservationList:
    """Reservations, newest first; `state` is a comma-separated list."""
    query = ListReservations(
        states=parse_choices(in_states, ReservationState, "state"),
        namespace=identity.namespace_to_read(namespace),
        node_id=node_id,
        limit=limit,
        cursor=cursor,
        names_of=identity.names_of,
    )
    return await gateway.fetch_list(query, ReservationList, "reservations")


@route(endpoints.GET_RESERVATION)
async def get_reservation(
    reservation_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    wait_seconds: WaitSeconds = 0.0,
) -> ReservationView:
    """Return one reservation; with `wait_seconds` once it has left the queue, or when they are
    over.
    """
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_seconds
    with gateway.live.changes_of(reservation_id) as changed:
        while True:
            changed.clear()
            view = await gateway.reservation(reservation_id, identity)
            left_seconds = give_up_at - loop.time()
            if view.state is not ReservationState.QUEUED or left_seconds <= 0:
                return view
            await wait_for(changed, min(left_seconds, POLL_SECONDS))


@route(endpoints.END_RESERVATION)
async def end_reservation(
    reservation_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    expected_revision: ExpectedRevision,
    epoch: Annotated[int | None, whole_number(1)] = None,
    stopped: FromQuery[bool] = True,
    reason: GivenReason = "",
    idempotency_key: IdempotencyKey = None,
) -> ReservationView:
    """Withdraw a reservation; with the grant's `epoch`, give its devices back.

    `stopped=false` says that something may still run on them.
    """
    await require_reservation(gateway, identity, reservation_id)
    command_id = command_id_of(idempotency_key, identity)
    command: Command = CancelReservation(
        command_id=command_id,
        reservation_id=reservation_id,
        reason=reason,
        expected_revision=expected_revision,
    )
    if epoch is not None:
        command = ReleaseReservation(
            command_id=command_id,
            reservation_id=reservation_id,
            epoch=epoch,
            stopped=stopped,
            reason=reason,
        )
    await gateway.send(command)
    return await _view(gateway, identity, reservation_id)


@route(endpoints.RENEW_RESERVATION)
async def renew_reservation(
    reservation_id: FromPath[UUID],
    data: JSONBody[LeaseRenewal],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Keep a lease. Refused when it is lost, after which the holder stops."""
    await require_reservation(gateway, identity, reservation_id)
    return await gateway.send(
        RenewReservation(
            command_id=command_id_of(idempotency_key, identity),
            reservation_id=reservation_id,
            epoch=data.epoch,
            activate=data.activate,
        )
    )


@route(endpoints.EXEMPT_RESERVATION)
async def exempt_reservation(
    reservation_id: FromPath[UUID],
    data: JSONBody[IdleExemption],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Never find a reservation idle before a time."""
    await require_reservation(gateway, identity, reservation_id)
    return await gateway.send(
        ExemptReservation(
            command_id=command_id_of(idempotency_key, identity),
            reservation_id=reservation_id,
            reason=data.reason,
            until_at=data.until_at,
        )
    )


@route(endpoints.EXPLAIN_RESERVATION)
async def explain_reservation(
    reservation_id: FromPath[UUID], gateway: TheGateway, identity: Caller
) -> Explanation:
    """Return every reason why a reservation waits."""
    await require_readable(gateway, identity, reservation_id)
    query = ExplainReservation(reservation_id=reservation_id, names_of=identity.names_of)
    return await gateway.bus.query(query, Explanation)


@route(endpoints.ESTIMATE)
async def estimate(data: JSONBody[dict[str, Any]], gateway: TheGateway) -> EstimateView:
    """GPUs and memory that a task configuration needs, in the free form of task files."""
    return await gateway.bus.query(EstimateRequirements(task_config=data), EstimateView)


@route(endpoints.CHECK_AVAILABILITY)
async def check_availability(
    data: JSONBody[GpuRequest],
    gateway: TheGateway,
    identity: Caller,
    wait_seconds: WaitSeconds = 0.0,
) -> AvailabilityView:
    """Say whether a request would be granted now; reserves nothing.

    With `wait_seconds` it answers once the request would be, or when they are over; what the fleet
    can never give is answered at once, as `impossible`.
    """
    return await _available(gateway, identity, data, wait_seconds)


@route(endpoints.GET_AVAILABILITY)
async def get_availability(
    gateway: TheGateway,
    identity: Caller,
    gpus: Annotated[int, QueryParameter(ge=1, le=4096)] = 1,
    min_memory_mb: Annotated[int | None, whole_number(0)] = None,
    max_utilization_percent: Annotated[float, QueryParameter(ge=0, le=100)] = 50.0,
    wait_seconds: WaitSeconds = 0.0,
) -> AvailabilityView:
    """Say whether so many GPUs would be granted now, for a request that a query can express.

    Without `min_memory_mb` half of each GPU's memory has to be free.
    """
    request = GpuRequest(
        gpus=gpus, min_memory_mb=min_memory_mb, max_utilization_percent=max_utilization_percent
    )
    return await _available(gateway, identity, request, wait_seconds)


async def _available(
    gateway: Gateway, identity: Identity, request: GpuRequest, wait_seconds: float
) -> AvailabilityView:
    """Queries again whenever the ledger changes, or which devices look idle."""
    namespace = None if identity.names_of is None else identity.namespace
    query = GetAvailability(request=request, namespace=namespace, names_of=identity.names_of)
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_seconds
    idle: Idle = {}
    with gateway.live.watching() as watcher:
        while True:
            watcher.ledger_changed.clear()
            _has_news(watcher, request, idle)
            view = await gateway.bus.query(query, AvailabilityView)
            left_seconds = give_up_at - loop.time()
            if view.available or view.impossible or left_seconds <= 0:
                return view
            with contextlib.suppress(TimeoutError):
                async with within(min(left_seconds, SAFETY_SECONDS)):
                    await watcher.wait()
                    while not _has_news(watcher, request, idle):
                        await watcher.wait()


def _has_news(watcher: Watcher, request: GpuRequest, idle: Idle) -> bool:
    readings, _ = watcher.take()
    news = [reading for reading, _ in readings if is_news(reading.metrics, request, idle)]
    return bool(news) or watcher.ledger_changed.is_set()


async def _view(gateway: Gateway, identity: Identity, reservation_id: UUID) -> ReservationView:
    query = GetReservation(reservation_id=reservation_id, names_of=identity.names_of)
    return await gateway.bus.query(query, ReservationView)


async def require_readable(gateway: Gateway, identity: Identity, reservation_id: UUID) -> None:
    """Raises RefusedError unless it may be seen by this caller."""
    if not identity.reads_everything:
        await gateway.reservation(reservation_id, identity)


async def require_reservation(gateway: Gateway, identity: Identity, reservation_id: UUID) -> None:
    """Raises RefusedError unless it is there and may be changed by this caller."""
    view = await gateway.bus.query(GetReservation(reservation_id=reservation_id), ReservationView)
    identity.require(view.namespace)
