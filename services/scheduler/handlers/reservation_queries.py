"""Queries about reservations and what a request would get; nothing is changed here."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gpus.available_gpus import AvailableGpus, ListAvailableGpus, ScoredGpu
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest
from schemas.scheduler.reason_groups import digest
from schemas.scheduler.reasons import Reason, ReasonCode
from schemas.scheduler.reservations import ReservationState
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
    WhatIf,
)
from services.scheduler.domain.advice.evaluation import Evaluation, available, evaluate
from services.scheduler.domain.advice.expected_start import ExpectedStart
from services.scheduler.domain.clusters.choice import Choice
from services.scheduler.domain.clusters.wishes import largest_memory_mb
from services.scheduler.domain.estimate import estimate
from services.scheduler.domain.model.inputs import QueuedRequest, arriving_request
from services.scheduler.domain.placement.reasons import (
    abridge,
    availability_sentence,
    request_text,
    summary_sentence,
)
from services.scheduler.domain.placement.shares import ShareRules
from services.scheduler.domain.placement.topology import memory_balance, nearness
from services.scheduler.handlers.reason_names import (
    NamesOf,
    find_visible,
    with_ended_names,
    with_holder_names,
)
from services.scheduler.handlers.reservation_status import end_reasons, idleness, notice
from services.scheduler.intake.validation import ANY_SHARES, check_wanted, require
from services.scheduler.leader.cluster_decisions import read_fleet
from services.scheduler.leader.query_engine import Moment, QueryEngine
from services.scheduler.ledger.rows import cluster_rows, holder_rows, node_rows, reservation_rows
from services.scheduler.ledger.rows.reservation_rows import Reservation, ReservationPlace
from services.scheduler.ledger.transitions import HELD_ON_LEASE, device_grants
from services.scheduler.observations.cluster_views import ClusterViews
from shared.errors import RefusedError
from shared.messaging.paging import page_of, place_at
from shared.postgres.database import Database

REASONS_IN_A_VIEW: Final = 100
REASONS_IN_A_LIST: Final = 10
EXPLAINED_IN_A_LIST: Final = 20
UNSERVED: Final = frozenset({ReservationState.REJECTED, ReservationState.TIMED_OUT})

_NEXT: Final = Reason(
    code=ReasonCode.BEHIND_IN_QUEUE, message="its turn has come; the decision is under way"
)


@dataclass(frozen=True, slots=True)
class QueuePlace:
    """A request in the queue as the leader would see it now."""

    position: int | None = None
    reasons: tuple[Reason, ...] = ()
    summary: str = ""


@dataclass(frozen=True, slots=True)
class ReservationQueries:
    """Handlers of every query about requests."""

    database: Database
    query_engine: QueryEngine
    clusters: ClusterViews
    share_rules: ShareRules = ANY_SHARES

    async def get_reservation(self, query: GetReservation) -> ReservationView:
        """Return one reservation of the ledger; with `explain` every reason why it waits."""
        stored = await self._get(query.reservation_id)
        [with_names] = await with_ended_names(self.database, [stored], query.names_of)
        return _view(with_names, await self._places([stored], REASONS_IN_A_VIEW, query.names_of))

    async def list_reservations(self, query: ListReservations) -> ReservationList:
        """Reservations that match, newest first, as many as fit; the first with a few reasons."""
        place = place_at(query.cursor, ReservationPlace)
        async with self.database.transaction() as connection:
            rows = await reservation_rows.find_all(connection, query, place, query.limit + 1)
        queued = await self._places(rows, REASONS_IN_A_LIST, query.names_of)
        with_names = await with_ended_names(self.database, rows, query.names_of)
        page, next_cursor = page_of(
            [(_view(stored, queued), ReservationPlace(stored.arrival)) for stored in with_names],
            query.limit,
        )
        return ReservationList(reservations=page, next_cursor=next_cursor)

    async def explain(self, query: ExplainReservation) -> Explanation:
        """Return every reason why a reservation waits, or why it ended without being served."""
        if (of_cluster := await self._get(query.reservation_id)).request.cluster is not None:
            return await self._explain_of_cluster(of_cluster)
        async with self.query_engine.moment() as moment:
            stored = await self._get(query.reservation_id)
            entries = moment.engine.in_order(moment.now)
            entry = next((e for e in entries if e.reservation_id == stored.reservation_id), None)
            evaluation = await with_holder_names(
                self.database,
                await _evaluation_of(stored, entry, moment),
                stored.ended_at or moment.now,
                find_visible(stored.namespace, query.names_of),
            )
        waits = stored.state is ReservationState.QUEUED and entry is not None
        position = entries.index(entry) + 1 if waits and entry is not None else None
        abridged, start = abridge(evaluation.reasons), evaluation.expected_start
        return Explanation(
            reservation_id=stored.reservation_id,
            state=stored.state,
            queue_position=position,
            queue_length=len(entries),
            reasons=abridged.reasons,
            reasons_left_out=abridged.left_out,
            summary=notice(stored)
            or summary_sentence(
                stored.state, stored.request, evaluation.reasons, position, len(entries)
            ),
            expected_start_at=evaluation.expected_start_at,
            expected_node_ids=start.node_ids if start is not None else (),
            suggestion=evaluation.suggestion,
        )

    async def availability(self, query: GetAvailability) -> AvailabilityView:
        """Return whether a request would be granted if it came now, behind all of its priority."""
        check_wanted(query.request, self.share_rules)
        if query.request.cluster is not None:
            return await self._availability_of_cluster(query.request)
        async with self.query_engine.moment() as moment:
            entry = arriving_request(query.request, moment.now)
            evaluation = await asyncio.to_thread(evaluate, moment.engine, entry, moment.now)
        visible = None if query.namespace is None else find_visible(query.namespace, query.names_of)
        with_names = await with_holder_names(self.database, evaluation, moment.now, visible)
        return _availability(query.request, with_names)

    async def available_gpus(self, query: ListAvailableGpus) -> AvailableGpus:
        """A node's devices that a request for one of them could get now, best first."""
        request = GpuRequest(
            node_ids=(query.node_id,),
            min_memory_mb=query.min_memory_mb or 0,
            max_utilization_percent=query.max_utilization_percent,
        )
        async with self.database.transaction() as connection:
            await node_rows.check_known(connection, query.node_id)
        async with self.query_engine.moment() as moment:
            scored_gpus = await asyncio.to_thread(
                available, moment.engine, query.node_id, request, moment.now
            )
        return AvailableGpus(
            node_id=query.node_id,
            gpus=tuple(
                ScoredGpu(index=scored.device.index, uuid=scored.device.uuid, score=scored.score)
                for scored in scored_gpus
            ),
        )

    async def what_if(self, query: WhatIf) -> AvailabilityView:
        """Return whether a waiting reservation would be granted now with another request."""
        check_wanted(query.request, self.share_rules)
        stored = await self._get(query.reservation_id)
        if (stored.request.cluster is None) is not (query.request.cluster is None):
            raise RefusedError(
                ErrorCode.UNSUPPORTED,
                "a reservation of a cluster's GPUs waits for nothing that others wait for",
                path="$.request.cluster",
            )
        if query.request.cluster is not None:
            return await self._availability_of_cluster(query.request)
        async with self.query_engine.moment() as moment:
            stored = await self._get(query.reservation_id)
            entry = moment.waiting(stored.reservation_id)
            if stored.state is not ReservationState.QUEUED or entry is None:
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"reservation {stored.reservation_id} does not wait: it is"
                    f" {stored.state.value}",
                    path="$.reservation_id",
                )
            evaluation = await asyncio.to_thread(
                evaluate, moment.engine, entry, moment.now, query.request
            )
        visible = find_visible(stored.namespace, query.names_of)
        with_names = await with_holder_names(self.database, evaluation, moment.now, visible)
        return _availability(query.request, with_names)

    async def estimate(self, query: EstimateRequirements) -> EstimateView:
        """Return how many GPUs a task configuration would need."""
        return estimate(query.task_config)

    async def _places(
        self, reservations: Sequence[Reservation], reasons_shown: int, names_of: NamesOf
    ) -> Mapping[UUID, QueuePlace]:
        """Places of those of these that are queued, and why the first of them wait."""
        queued = [r for r in reservations if r.state is ReservationState.QUEUED]
        of_clusters = [r for r in queued if r.request.cluster is not None]
        ids = [r.reservation_id for r in queued if r.request.cluster is None]
        places = await self._cluster_places(of_clusters) if of_clusters else {}
        if not ids:
            return places
        async with self.query_engine.moment() as moment:
            engine = moment.engine
            order = {
                e.reservation_id: n for n, e in enumerate(engine.in_order(moment.now), start=1)
            }
            with engine.what_if(moment.now) as what_if:
                explained = {
                    id_: what_if.reasons(entry)
                    for id_ in ids[:EXPLAINED_IN_A_LIST]
                    if (entry := what_if.find_queued(id_)) is not None
                }
        namespaces = {r.reservation_id: r.namespace for r in queued}
        reasons_of: dict[UUID, tuple[tuple[Reason, ...], str]] = {}
        async with self.database.transaction() as connection:
            for id_, reasons in explained.items():
                of_all = await holder_rows.name_holders(
                    connection, reasons, moment.now, find_visible(namespaces[id_], names_of)
                )
                reasons_of[id_] = abridge(of_all, reasons_shown).reasons, digest(of_all)
        return places | {
            id_: QueuePlace(order[id_], *(reasons_of.get(id_) or _position_only(order[id_])))
            for id_ in ids
            if id_ in order
        }

    async def _cluster_places(self, reservations: Sequence[Reservation]) -> dict[UUID, QueuePlace]:
        """The same of requests for GPUs of clusters, which wait for no other request."""
        async with self.database.transaction() as connection:
            fleet = await read_fleet(connection, self.clusters)
            queued = await cluster_rows.list_queued(connection)
        order = {entry.reservation_id: n for n, entry in enumerate(queued, start=1)}
        return {
            reservation.reservation_id: QueuePlace(
                order.get(reservation.reservation_id),
                reasons := _reasons(fleet.choose(reservation.request)),
                digest(reasons),
            )
            for reservation in reservations
        }

    async def _explain_of_cluster(self, stored: Reservation) -> Explanation:
        waits = stored.state is ReservationState.QUEUED
        place = (await self._cluster_places([stored])).get(stored.reservation_id, QueuePlace())
        reasons: tuple[Reason, ...] = ()
        if waits:
            reasons = place.reasons or (_NEXT,)
        elif stored.state not in HELD_ON_LEASE:
            reasons = stored.reasons or end_reasons(stored)
        where = stored.cluster
        served = (
            f"{stored.state.value} in cluster {where.cluster_id}: {where.message}"
            if where is not None and stored.state in HELD_ON_LEASE
            else ""
        )
        position = place.position if waits else None
        length = position or 0
        return Explanation(
            reservation_id=stored.reservation_id,
            state=stored.state,
            queue_position=position,
            queue_length=length,
            reasons=reasons,
            summary=served
            or summary_sentence(stored.state, stored.request, reasons, position, length),
        )

    async def _availability_of_cluster(self, request: GpuRequest) -> AvailabilityView:
        async with self.database.transaction() as connection:
            fleet = await read_fleet(connection, self.clusters)
        choice = fleet.choose(request)
        cluster_request = request.cluster or ClusterRequest()
        nodes = [
            node
            for cluster in fleet.known
            if cluster_request.cluster_id in {None, cluster.cluster_id}
            for node in cluster.nodes.values()
            if node.gpus
        ]
        largest_mb = largest_memory_mb(nodes, request, cluster_request)
        if isinstance(choice, Choice):
            where = choice.placement
            message = f"{request_text(request)} of cluster {where.cluster_id}: {where.message}"
            return AvailabilityView(available=True, message=message, largest_memory_mb=largest_mb)
        return AvailabilityView(
            available=False,
            message=availability_sentence(request, choice, ()),
            reasons=choice,
            largest_memory_mb=largest_mb,
        )

    async def _get(self, reservation_id: UUID) -> Reservation:
        async with self.database.transaction() as connection:
            return require(await reservation_rows.find(connection, reservation_id), reservation_id)


async def _evaluation_of(
    stored: Reservation, entry: QueuedRequest | None, moment: Moment
) -> Evaluation:
    """Result of evaluating a reservation in its present state; no reasons only if it is served."""
    if stored.state in HELD_ON_LEASE:
        return Evaluation()
    if stored.state is not ReservationState.QUEUED:
        evaluation = Evaluation()
        if stored.state in UNSERVED:
            new_entry = arriving_request(stored.request, moment.now, stored.namespace)
            evaluation = await asyncio.to_thread(evaluate, moment.engine, new_entry, moment.now)
        reasons = stored.reasons or end_reasons(stored)
        return Evaluation(reasons=reasons, suggestion=evaluation.suggestion)
    if entry is None:
        return Evaluation(reasons=(_NEXT,))
    evaluation = await asyncio.to_thread(evaluate, moment.engine, entry, moment.now)
    if evaluation.placed is not None:
        next_ = ExpectedStart(moment.now, evaluation.placed.node_ids)
        return Evaluation(reasons=(_NEXT,), expected_start=next_)
    return evaluation


def _availability(request: GpuRequest, evaluation: Evaluation) -> AvailabilityView:
    placed, abridged = evaluation.placed, abridge(evaluation.reasons)
    return AvailabilityView(
        available=placed is not None,
        message=availability_sentence(
            request,
            evaluation.reasons,
            placed.node_ids if placed is not None else (),
            impossible=evaluation.impossible,
        ),
        devices=device_grants(placed) if placed is not None else (),
        reasons=abridged.reasons,
        reasons_left_out=abridged.left_out,
        expected_start_at=evaluation.expected_start_at,
        suggestion=evaluation.suggestion,
        impossible=evaluation.impossible,
        largest_memory_mb=evaluation.largest_memory_mb,
    )


def _view(stored: Reservation, queued: Mapping[UUID, QueuePlace]) -> ReservationView:
    waits = stored.state is ReservationState.QUEUED
    place = queued.get(stored.reservation_id, QueuePlace())
    reasons = place.reasons or (_NEXT,) if waits else abridge(stored.reasons).reasons
    return ReservationView(
        reservation_id=stored.reservation_id,
        namespace=stored.namespace,
        holder=stored.holder,
        state=stored.state,
        request=stored.request,
        revision=stored.revision,
        requested_at=stored.requested_at,
        wait_deadline_at=stored.wait_deadline_at if waits else None,
        queue_position=place.position,
        granted_at=stored.granted_at,
        ended_at=stored.ended_at,
        epoch=stored.epoch,
        node_id=stored.node_id,
        node_ids=stored.node_ids,
        devices=stored.devices,
        lease_expires_at=stored.lease_expires_at,
        quarantined=stored.quarantined,
        reasons=reasons,
        reason=notice(stored) or stored.reason,
        preempting_until=stored.preempting_until,
        preempted_for=stored.preempted_for,
        preempted_by=stored.preempted_by if stored.preempted_for is not None else None,
        cluster=stored.cluster,
        idle=idleness(stored),
        idle_exempt_until=stored.idle_exempt_until,
        idle_exempt_reason=stored.idle_exempt_reason,
        forecast_start_at=stored.forecast_start_at,
        nearness=nearness(stored.devices),
        memory_balance=memory_balance(stored.devices),
        summary=place.summary or digest(reasons if waits else stored.reasons),
        requester=stored.requester,
    )


def _position_only(position: int) -> tuple[tuple[Reason, ...], str]:
    """Return what a long list says of those that it does not explain."""
    message = f"it is at {position} in the queue; `gpusteward why` has its reasons"
    return (Reason(code=ReasonCode.BEHIND_IN_QUEUE, message=message),), message


def _reasons(choice: Choice | tuple[Reason, ...]) -> tuple[Reason, ...]:
    return () if isinstance(choice, Choice) else choice
