"""Reservations: the scheduler's, requested, kept, explained and given back."""

import asyncio
import contextlib
from typing import Annotated, Any, Final
from uuid import UUID

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from schemas.base import Command
from schemas.errors import Accepted
from schemas.gateway import LeaseRenewal, ReservationRequest
from schemas.gpu_request import GpuRequest
from schemas.scheduler import (
    CancelReservation,
    ReleaseReservation,
    RenewReservation,
    RequestReservation,
    ReservationState,
)
from schemas.scheduler_views import (
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
from services.gateway.bodies import StrictBody
from services.gateway.domain.access import Identity
from services.gateway.domain.waiting import Idle, is_news
from services.gateway.gateway import Gateway
from services.gateway.live import Watcher
from services.gateway.routes.common import (
    Caller,
    IdempotencyKey,
    InNamespace,
    InStates,
    OnNode,
    TheGateway,
    command_id_of,
    delete,
    get,
    id_for,
    listed,
    post,
)

LONGEST_WAIT_SECONDS: Final = 60.0
LARGEST_INTEGER: Final = 2**63 - 1
LOOK_SECONDS: Final = 2.0  # an event may be lost with the bus
SAFETY_SECONDS: Final = 10.0  # the same, where readings wake as well

WaitSeconds = Annotated[float, QueryParameter(ge=0, le=LONGEST_WAIT_SECONDS)]


@post("/reservations", dto=StrictBody[ReservationRequest], return_dto=None)
async def request_reservation(
    data: JSONBody[ReservationRequest],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Response[ReservationView]:
    """Ask for GPUs. The answer is the stored request; `wait_seconds` of GET awaits the grant."""
    reservation_id = data.reservation_id or id_for(idempotency_key)
    command = RequestReservation(
        command_id=command_id_of(idempotency_key),
        reservation_id=reservation_id,
        namespace=identity.namespace_for(data.namespace),
        holder=data.holder,
        request=data.request,
    )
    await gateway.send(command)
    view = await gateway.ask(GetReservation(reservation_id=reservation_id), ReservationView)
    location = f"/api/v1/reservations/{reservation_id}"
    return Response(view, status_code=201, headers={"Location": location})


@get("/reservations")
async def list_reservations(
    gateway: TheGateway,
    in_states: InStates = None,
    namespace: InNamespace = None,
    node_id: OnNode = None,
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
) -> ReservationList:
    """Reservations, newest first; `state` is a comma-separated list."""
    query = ListReservations(
        states=listed(in_states, ReservationState, "state"),
        namespace=namespace,
        node_id=node_id,
        limit=limit,
    )
    return await gateway.ask(query, ReservationList)


@get("/reservations/{reservation_id:str}")
async def get_reservation(
    reservation_id: FromPath[UUID],
    gateway: TheGateway,
    wait_seconds: WaitSeconds = 0.0,
) -> ReservationView:
    """One reservation; with `wait_seconds` as soon as it is not queued any more, or then."""
    query = GetReservation(reservation_id=reservation_id)
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_seconds
    with gateway.live.changes_of(reservation_id) as changed:
        while True:
            changed.clear()
            view = await gateway.ask(query, ReservationView)
            left = give_up_at - loop.time()
            if view.state is not ReservationState.QUEUED or left <= 0:
                return view
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, LOOK_SECONDS))


@delete("/reservations/{reservation_id:str}", status_code=200)
async def end_reservation(
    reservation_id: FromPath[UUID],
    gateway: TheGateway,
    identity: Caller,
    epoch: Annotated[int | None, QueryParameter(ge=1, le=LARGEST_INTEGER)] = None,
    stopped: FromQuery[bool] = True,
    reason: Annotated[str, QueryParameter(max_length=1000)] = "",
    idempotency_key: IdempotencyKey = None,
) -> ReservationView:
    """Withdraw a reservation; with the grant's `epoch`, give its devices back.

    `stopped=false` says that something may still run on them.
    """
    await _require_reservation(gateway, identity, reservation_id)
    command_id = command_id_of(idempotency_key)
    command: Command = CancelReservation(
        command_id=command_id, reservation_id=reservation_id, reason=reason
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
    return await gateway.ask(GetReservation(reservation_id=reservation_id), ReservationView)


@post(
    "/reservations/{reservation_id:str}/renew",
    status_code=200,
    dto=StrictBody[LeaseRenewal],
    return_dto=None,
)
async def renew_reservation(
    reservation_id: FromPath[UUID],
    data: JSONBody[LeaseRenewal],
    gateway: TheGateway,
    identity: Caller,
    idempotency_key: IdempotencyKey = None,
) -> Accepted:
    """Keep a lease. Refused when it is lost, after which the holder stops."""
    await _require_reservation(gateway, identity, reservation_id)
    return await gateway.send(
        RenewReservation(
            command_id=command_id_of(idempotency_key),
            reservation_id=reservation_id,
            epoch=data.epoch,
            activate=data.activate,
        )
    )


@get("/reservations/{reservation_id:str}/explain")
async def explain_reservation(reservation_id: FromPath[UUID], gateway: TheGateway) -> Explanation:
    """Every reason why a reservation waits."""
    return await gateway.ask(ExplainReservation(reservation_id=reservation_id), Explanation)


@post("/estimate", status_code=200, dto=StrictBody[dict[str, Any]], return_dto=None)
async def estimate(data: JSONBody[dict[str, Any]], gateway: TheGateway) -> EstimateView:
    """GPUs and memory that a task configuration needs, in the free form of task files."""
    return await gateway.ask(EstimateRequirements(task_config=data), EstimateView)


@post("/availability", status_code=200, dto=StrictBody[GpuRequest], return_dto=None)
async def check_availability(
    data: JSONBody[GpuRequest], gateway: TheGateway, wait_seconds: WaitSeconds = 0.0
) -> AvailabilityView:
    """Whether a request would be granted now; reserves nothing.

    With `wait_seconds` as soon as it would be, or then.
    """
    return await _available(gateway, data, wait_seconds)


@get("/availability")
async def get_availability(
    gateway: TheGateway,
    gpus: Annotated[int, QueryParameter(ge=1, le=4096)] = 1,
    min_memory_mb: Annotated[int | None, QueryParameter(ge=0, le=LARGEST_INTEGER)] = None,
    max_utilization_percent: Annotated[float, QueryParameter(ge=0, le=100)] = 50.0,
    wait_seconds: WaitSeconds = 0.0,
) -> AvailabilityView:
    """The same for a request that a query can express."""
    request = GpuRequest(
        gpus=gpus, min_memory_mb=min_memory_mb, max_utilization_percent=max_utilization_percent
    )
    return await _available(gateway, request, wait_seconds)


async def _available(
    gateway: Gateway, request: GpuRequest, wait_seconds: float
) -> AvailabilityView:
    """Asks again whenever the ledger changes, or which devices look idle."""
    query = GetAvailability(request=request)
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_seconds
    idle: Idle = {}
    with gateway.live.watching() as watcher:
        while True:
            watcher.ledger_changed.clear()
            _has_news(watcher, request, idle)
            view = await gateway.ask(query, AvailabilityView)
            left = give_up_at - loop.time()
            if view.available or left <= 0:
                return view
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, SAFETY_SECONDS)):
                    await watcher.wake.wait()
                    while not _has_news(watcher, request, idle):
                        await watcher.wake.wait()


def _has_news(watcher: Watcher, request: GpuRequest, idle: Idle) -> bool:
    frames, _ = watcher.take()
    news = [frame for frame in frames if is_news(frame, request, idle)]
    return bool(news) or watcher.ledger_changed.is_set()


async def _require_reservation(gateway: Gateway, identity: Identity, reservation_id: UUID) -> None:
    """Raises RefusedError unless it is there and may be changed by this caller."""
    view = await gateway.ask(GetReservation(reservation_id=reservation_id), ReservationView)
    identity.require(view.namespace)


ROUTES = [
    request_reservation,
    list_reservations,
    get_reservation,
    end_reservation,
    renew_reservation,
    explain_reservation,
    estimate,
    check_availability,
    get_availability,
]
