"""Questions about reservations, devices and what a request would get; nothing is changed here."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gpu_request import Reason, ReasonCode
from schemas.scheduler import DeviceState, ReservationState
from schemas.scheduler_views import (
    AllocationMap,
    AvailabilityView,
    DeviceAllocation,
    EstimateRequirements,
    EstimateView,
    ExplainReservation,
    Explanation,
    GetAllocationMap,
    GetAvailability,
    GetReservation,
    ListReservations,
    NodeAllocation,
    NodeSelection,
    ReservationList,
    ReservationView,
    SelectNode,
)
from services.scheduler import store
from services.scheduler.domain.estimate import estimate
from services.scheduler.domain.explain import availability_sentence, summary_sentence
from services.scheduler.domain.fleet import Device, Fleet
from services.scheduler.domain.node_selection import (
    cluster_gpu_status,
    find_best_node,
    node_gpu_summaries,
)
from services.scheduler.domain.placement import Placed, Weights
from services.scheduler.domain.queue import (
    Grant,
    Outcome,
    QueuedRequest,
    decide,
    in_order,
)
from services.scheduler.fleet_reader import FleetReader
from services.scheduler.ledger import device_grants
from services.scheduler.store import Reservation
from shared.database import Connection, Database
from shared.errors import RefusedError

NOBODY: Final = UUID(int=0)
FAR: Final = datetime.max.replace(tzinfo=UTC)
LAST: Final = 1 << 62
GRANTED: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})

Owners = Mapping[UUID, tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The queue as the leader would see it now, by this process's own readings."""

    order: tuple[UUID, ...]
    outcomes: Mapping[UUID, Outcome]

    def position(self, reservation_id: UUID) -> int | None:
        """Place in the queue, counted from 1; None for what does not wait."""
        if reservation_id not in self.outcomes:
            return None
        return self.order.index(reservation_id) + 1

    def reasons(self, stored: Reservation) -> tuple[Reason, ...]:
        """Why it is neither granted nor active; never empty for what is not."""
        if stored.state in GRANTED:
            return ()
        outcome = self.outcomes.get(stored.reservation_id)
        if outcome is not None and not isinstance(outcome, Grant) and outcome.reasons:
            return outcome.reasons
        if stored.state is ReservationState.QUEUED:
            return (_NEXT,)
        return stored.reasons or _end_reasons(stored)


_NEXT: Final = Reason(
    code=ReasonCode.BEHIND_IN_QUEUE, message="its turn has come; the decision is under way"
)


@dataclass(frozen=True, slots=True)
class Queries:
    """Handlers of every query."""

    database: Database
    reader: FleetReader
    weights: Weights

    async def get_reservation(self, query: GetReservation) -> ReservationView:
        """One reservation as the ledger has it."""
        async with self.database.transaction() as connection:
            stored = await _known(connection, query.reservation_id)
            judged = await self._judge(connection, needed=_waits(stored))
        return _view(stored, judged)

    async def list_reservations(self, query: ListReservations) -> ReservationList:
        """Reservations that match, newest first."""
        async with self.database.transaction() as connection:
            found = await store.find_all(connection, query)
            judged = await self._judge(connection, needed=any(_waits(s) for s in found))
        return ReservationList(reservations=tuple(_view(stored, judged) for stored in found))

    async def explain(self, query: ExplainReservation) -> Explanation:
        """Every reason why a reservation waits, or why it ended without being served."""
        async with self.database.transaction() as connection:
            stored = await _known(connection, query.reservation_id)
            judged = await self._judge(connection, needed=True)
        reasons, position = judged.reasons(stored), judged.position(stored.reservation_id)
        length = len(judged.order)
        return Explanation(
            reservation_id=stored.reservation_id,
            state=stored.state,
            queue_position=position,
            queue_length=length,
            reasons=reasons,
            summary=summary_sentence(stored.state, stored.request, reasons, position, length),
        )

    async def availability(self, query: GetAvailability) -> AvailabilityView:
        """Whether a request would be granted if it came now, behind everybody who waits."""
        request = query.request
        async with self.database.transaction() as connection:
            fleet = await self.reader.read(connection)
            queue = await store.queued(connection)
            now = await store.database_now(connection)
        asked = QueuedRequest(
            reservation_id=NOBODY, request=request, arrival=LAST, wait_deadline_at=FAR
        )
        outcomes = decide(fleet, [*queue, asked], now, self.weights)
        outcome = next(o for o in outcomes if o.reservation_id == NOBODY)
        if isinstance(outcome, Grant):
            placed: Placed = outcome.placed
            return AvailabilityView(
                available=True,
                message=availability_sentence(request, (), placed.node_ids),
                devices=device_grants(placed),
            )
        reasons = outcome.reasons
        message = availability_sentence(request, reasons, ())
        return AvailabilityView(available=False, message=message, reasons=reasons)

    async def estimate(self, query: EstimateRequirements) -> EstimateView:
        """How many GPUs a task configuration would need."""
        return estimate(query.task_config)

    async def select_node(self, query: SelectNode) -> NodeSelection:
        """The node with the most idle GPUs."""
        async with self.database.transaction() as connection:
            fleet = await self.reader.read(connection)
        summaries = node_gpu_summaries(
            cluster_gpu_status(fleet), query.utilization_threshold, query.memory_threshold
        )
        return find_best_node(summaries, query.required_gpus)

    async def allocation_map(self, query: GetAllocationMap) -> AllocationMap:
        """Who holds what, node by node."""
        async with self.database.transaction() as connection:
            nodes = await store.nodes(connection, 0)
            fleet = await self.reader.read(connection)
            holders = {d.holder for ds in fleet.nodes.values() for d in ds if d.holder is not None}
            owners = await store.owners(connection, holders)
        if query.node_id is not None and query.node_id not in {node.node_id for node in nodes}:
            raise RefusedError(ErrorCode.NOT_FOUND, f"no node {query.node_id}", path="$.node_id")
        return AllocationMap(
            nodes=tuple(
                NodeAllocation(
                    node_id=node.node_id,
                    source=node.source,
                    fresh=self.reader.readings.is_fresh(node.node_id),
                    devices=_allocations(fleet, node.node_id, owners),
                )
                for node in nodes
                if query.node_id in (None, node.node_id)
            )
        )

    async def _judge(self, connection: Connection, *, needed: bool) -> Judgement:
        if not needed:
            return Judgement(order=(), outcomes={})
        fleet = await self.reader.read(connection)
        queue = in_order(await store.queued(connection))
        now = await store.database_now(connection)
        outcomes = decide(fleet, queue, now, self.weights)
        return Judgement(
            order=tuple(entry.reservation_id for entry in queue),
            outcomes={outcome.reservation_id: outcome for outcome in outcomes},
        )


async def _known(connection: Connection, reservation_id: UUID) -> Reservation:
    stored = await store.find(connection, reservation_id)
    if stored is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no reservation {reservation_id}", path="$.reservation_id"
        )
    return stored


def _waits(stored: Reservation) -> bool:
    return stored.state is ReservationState.QUEUED


def _view(stored: Reservation, judged: Judgement) -> ReservationView:
    waits = _waits(stored)
    return ReservationView(
        reservation_id=stored.reservation_id,
        namespace=stored.namespace,
        holder=stored.holder,
        state=stored.state,
        request=stored.request,
        revision=stored.revision,
        requested_at=stored.requested_at,
        wait_deadline_at=stored.wait_deadline_at if waits else None,
        queue_position=judged.position(stored.reservation_id) if waits else None,
        granted_at=stored.granted_at,
        ended_at=stored.ended_at,
        epoch=stored.epoch,
        node_id=stored.node_id,
        devices=stored.devices,
        lease_expires_at=stored.lease_expires_at,
        quarantined=stored.quarantined,
        reasons=judged.reasons(stored) if waits else stored.reasons,
        reason=stored.reason,
    )


def _end_reasons(stored: Reservation) -> tuple[Reason, ...]:
    """What to say of a reservation that is over; where its devices wait, that."""
    if not stored.quarantined:
        text = f"{stored.state.value}: {stored.reason}" if stored.reason else stored.state.value
        return (Reason(code=ReasonCode.ENDED, message=f"the reservation is {text}"),)
    return tuple(
        Reason(
            code=ReasonCode.QUARANTINED,
            message=f"GPU {device.index} on {device.node_id} waits for the confirmed stop",
            node_id=device.node_id,
            device_uuid=device.uuid,
        )
        for device in stored.devices
    )


def _allocations(fleet: Fleet, node_id: str, owners: Owners) -> tuple[DeviceAllocation, ...]:
    return tuple(_allocation(device, owners) for device in fleet.nodes.get(node_id, ()))


def _allocation(device: Device, owners: Owners) -> DeviceAllocation:
    namespace, holder = owners.get(device.holder or NOBODY, (None, None))
    is_taken = device.state in (DeviceState.HELD, DeviceState.QUARANTINED)
    return DeviceAllocation(
        node_id=device.node_id,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        state=device.state,
        allocated=1.0 if is_taken else 0.0,
        health=device.health,
        simulated=device.simulated,
        memory_total_mb=device.total_mb,
        reservation_id=device.holder,
        namespace=namespace,
        holder=holder,
    )
