"""Questions about reservations and what a request would get; nothing is changed here."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from typing import Final
from uuid import UUID

from schemas.errors import ErrorCode
from schemas.gpu_request import GpuRequest, Reason, ReasonCode
from schemas.scheduler import ReservationState
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
    WhatIf,
)
from services.scheduler import store
from services.scheduler.checks import check_wanted
from services.scheduler.domain.estimate import estimate
from services.scheduler.domain.explain import availability_sentence, summary_sentence, told
from services.scheduler.domain.inputs import QueuedRequest, newcomer
from services.scheduler.domain.verdict import Verdict, judge
from services.scheduler.ledger import device_grants
from services.scheduler.messages import fitting
from services.scheduler.present import Moment, Present
from services.scheduler.store import Reservation
from shared.database import Connection, Database
from shared.errors import RefusedError

REASONS_IN_A_VIEW: Final = 100
REASONS_IN_A_LIST: Final = 10
EXPLAINED_IN_A_LIST: Final = 20
GRANTED: Final = frozenset({ReservationState.GRANTED, ReservationState.ACTIVE})
UNSERVED: Final = frozenset({ReservationState.REJECTED, ReservationState.TIMED_OUT})

_NEXT: Final = Reason(
    code=ReasonCode.BEHIND_IN_QUEUE, message="its turn has come; the decision is under way"
)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request in the queue as the leader would see it now."""

    position: int
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Queries:
    """Handlers of every query about requests."""

    database: Database
    present: Present

    async def get_reservation(self, query: GetReservation) -> ReservationView:
        """One reservation as the ledger has it; `explain` tells every reason of its waiting."""
        stored = await self._known(query.reservation_id)
        return _view(stored, await self._waiting([stored], REASONS_IN_A_VIEW))

    async def list_reservations(self, query: ListReservations) -> ReservationList:
        """Reservations that match, newest first, as many as fit; the first with a few reasons."""
        async with self.database.transaction() as connection:
            found = await store.find_all(connection, query)
        waiting = await self._waiting(found, REASONS_IN_A_LIST)
        views = (_view(stored, waiting) for stored in found)
        return ReservationList(reservations=tuple(fitting(views)))

    async def explain(self, query: ExplainReservation) -> Explanation:
        """Every reason why a reservation waits, or why it ended without being served."""
        async with self.present.moment() as moment:
            stored = await self._known(query.reservation_id)
            entries = moment.engine.waiting
            entry = next((e for e in entries if e.reservation_id == stored.reservation_id), None)
            verdict = await _verdict_on(stored, entry, moment)
        waits = stored.state is ReservationState.QUEUED and entry is not None
        position = entries.index(entry) + 1 if waits and entry is not None else None
        shown = told(verdict.reasons)
        return Explanation(
            reservation_id=stored.reservation_id,
            state=stored.state,
            queue_position=position,
            queue_length=len(entries),
            reasons=shown.reasons,
            reasons_left_out=shown.left_out,
            summary=_notice(stored)
            or summary_sentence(
                stored.state, stored.request, verdict.reasons, position, len(entries)
            ),
            expected_start_at=verdict.expected_start_at,
            suggestion=verdict.suggestion,
        )

    async def availability(self, query: GetAvailability) -> AvailabilityView:
        """Whether a request would be granted if it came now, behind everybody of its priority."""
        check_wanted(query.request)
        async with self.present.moment() as moment:
            entry = newcomer(query.request, moment.now)
            verdict = await asyncio.to_thread(judge, moment.engine, entry, moment.now)
        return _availability(query.request, verdict)

    async def what_if(self, query: WhatIf) -> AvailabilityView:
        """Whether a waiting reservation would be granted now if it had asked for something else."""
        check_wanted(query.request)
        async with self.present.moment() as moment:
            stored = await self._known(query.reservation_id)
            entries = {entry.reservation_id: entry for entry in moment.engine.waiting}
            entry = entries.get(stored.reservation_id)
            if stored.state is not ReservationState.QUEUED or entry is None:
                raise RefusedError(
                    ErrorCode.CONFLICT,
                    f"reservation {stored.reservation_id} does not wait: it is"
                    f" {stored.state.value}",
                    path="$.reservation_id",
                )
            verdict = await asyncio.to_thread(
                judge, moment.engine, entry, moment.now, query.request
            )
        return _availability(query.request, verdict)

    async def estimate(self, query: EstimateRequirements) -> EstimateView:
        """How many GPUs a task configuration would need."""
        return estimate(query.task_config)

    async def _waiting(
        self, found: Sequence[Reservation], reasons_told: int
    ) -> Mapping[UUID, Waiting]:
        """Of those of these that wait: their place, and of the first of them why."""
        ids = [r.reservation_id for r in found if r.state is ReservationState.QUEUED]
        if not ids:
            return {}
        async with self.present.moment() as moment:
            engine = moment.engine
            order = {e.reservation_id: n for n, e in enumerate(engine.waiting, start=1)}
            explained = {
                each: told(engine.reasons(each, moment.now), reasons_told).reasons
                for each in ids[:EXPLAINED_IN_A_LIST]
                if each in order
            }
        return {
            each: Waiting(order[each], explained.get(each, ())) for each in ids if each in order
        }

    async def _known(self, reservation_id: UUID) -> Reservation:
        async with self.database.transaction() as connection:
            return await _found(connection, reservation_id)


async def _found(connection: Connection, reservation_id: UUID) -> Reservation:
    stored = await store.find(connection, reservation_id)
    if stored is None:
        raise RefusedError(
            ErrorCode.NOT_FOUND, f"no reservation {reservation_id}", path="$.reservation_id"
        )
    return stored


async def _verdict_on(stored: Reservation, entry: QueuedRequest | None, moment: Moment) -> Verdict:
    """What is to be said of a reservation in its present state; no reasons only if it is served."""
    if stored.state in GRANTED:
        return Verdict()
    if stored.state is not ReservationState.QUEUED:
        verdict = Verdict()
        if stored.state in UNSERVED:
            asked = newcomer(stored.request, moment.now)
            verdict = await asyncio.to_thread(judge, moment.engine, asked, moment.now)
        reasons = stored.reasons or _end_reasons(stored)
        return Verdict(reasons=reasons, suggestion=verdict.suggestion)
    if entry is None:
        return Verdict(reasons=(_NEXT,))
    verdict = await asyncio.to_thread(judge, moment.engine, entry, moment.now)
    if verdict.placed is not None:
        return Verdict(reasons=(_NEXT,), expected_start_at=moment.now)
    return verdict


def _availability(request: GpuRequest, verdict: Verdict) -> AvailabilityView:
    placed, shown = verdict.placed, told(verdict.reasons)
    return AvailabilityView(
        available=placed is not None,
        message=availability_sentence(
            request, verdict.reasons, placed.node_ids if placed is not None else ()
        ),
        devices=device_grants(placed) if placed is not None else (),
        reasons=shown.reasons,
        reasons_left_out=shown.left_out,
        expected_start_at=verdict.expected_start_at,
        suggestion=verdict.suggestion,
    )


def _view(stored: Reservation, waiting: Mapping[UUID, Waiting]) -> ReservationView:
    waits = stored.state is ReservationState.QUEUED
    seen = waiting.get(stored.reservation_id)
    return ReservationView(
        reservation_id=stored.reservation_id,
        namespace=stored.namespace,
        holder=stored.holder,
        state=stored.state,
        request=stored.request,
        revision=stored.revision,
        requested_at=stored.requested_at,
        wait_deadline_at=stored.wait_deadline_at if waits else None,
        queue_position=seen.position if seen is not None else None,
        granted_at=stored.granted_at,
        ended_at=stored.ended_at,
        epoch=stored.epoch,
        node_id=stored.node_id,
        node_ids=stored.node_ids,
        devices=stored.devices,
        lease_expires_at=stored.lease_expires_at,
        quarantined=stored.quarantined,
        reasons=_reasons(seen) if waits else _kept(stored.reasons),
        reason=_notice(stored) or stored.reason,
    )


def _notice(stored: Reservation) -> str:
    """That a reservation has to give way, while it still may run."""
    if stored.state not in GRANTED or stored.preempting_until is None:
        return ""
    until = stored.preempting_until.astimezone(UTC)
    return (
        f"{stored.state.value}, but it has to stop by {until:%H:%M:%S} UTC for reservation"
        f" {stored.preempted_for}, which has a higher priority"
    )


def _reasons(seen: Waiting | None) -> tuple[Reason, ...]:
    return seen.reasons if seen is not None and seen.reasons else (_NEXT,)


def _kept(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    return told(reasons).reasons


def _end_reasons(stored: Reservation) -> tuple[Reason, ...]:
    """What to say of a reservation that is over; where its devices wait, that."""
    if not stored.quarantined:
        return (Reason(code=ReasonCode.ENDED, message=stored.reason or "the reservation is over"),)
    return tuple(_quarantined(stored))


def _quarantined(stored: Reservation) -> Iterable[Reason]:
    for device in stored.devices:
        yield Reason(
            code=ReasonCode.QUARANTINED,
            message=f"GPU {device.index} on {device.node_id} waits for the confirmed stop",
            node_id=device.node_id,
            device_uuid=device.uuid,
        )
