"""One turn of the engine: who of those that wait is concerned by what changed, and what follows.

A group of requests is looked at again only when a node that it could use has changed, or what
others ahead of it keep there. Whoever is not concerned waits on, at no cost.
"""

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from math import inf
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.gpu_request import GpuRequest, Reason
from services.scheduler.domain.agenda import Agenda, Item
from services.scheduler.domain.backfill import Forecast
from services.scheduler.domain.decisions import Decision, Grant, Preempt, Rejection, TimeOut
from services.scheduler.domain.demand import Demand, Rank, shape_of
from services.scheduler.domain.explain import blocking_reasons, impossible_reasons
from services.scheduler.domain.fleet import NOTHING
from services.scheduler.domain.inputs import (
    LONG_AGO,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
    Settled,
)
from services.scheduler.domain.placement import Look, Placed
from services.scheduler.domain.policy import Policy
from services.scheduler.domain.preemption import Preemption
from services.scheduler.domain.search import Search
from services.scheduler.domain.state import State
from services.scheduler.domain.views import NodeView, Views
from services.scheduler.domain.waiting import Claim, Group, Waiting

LAST: Final[Rank] = (1 << 80, 0, 0)
SPARE_DEADLINES: Final = 64  # outdated ones that there may be beside as many as are current
MICROSECOND: Final = timedelta(microseconds=1)


class Turn:
    """Keeps what is decided in step with the state."""

    def __init__(self, state: State, policy: Policy) -> None:
        self._state = state
        self._policy = policy
        self._views = Views(state, policy.weights)
        self._waiting = Waiting(self._views)
        self._search = Search(state, self._views, self._waiting, policy)
        self._forecast = Forecast(state, self._views, policy.weights)
        self._preemption = Preemption(state, self._views, self._waiting, self._forecast)
        self._agenda = Agenda()
        self._deadlines: list[tuple[datetime, UUID]] = []
        self._fit_for = 0  # grows when what can ever fit has to be asked anew

    def apply(self, change: Input) -> None:
        """Take over one change."""
        match change:
            case RequestQueued(entry=entry):
                self._leave(entry.reservation_id)
                self._state.apply(change)
                self._queue(entry)
                return
            case RequestEnded(reservation_id=reservation_id):
                self._leave(reservation_id)
            case LeaseHeld(lease=lease):
                self._leave(lease.reservation_id)
                self._note_beneficiary(lease.reservation_id)
            case LeaseEnded(reservation_id=reservation_id):
                self._note_beneficiary(reservation_id)
            case Settled():
                self._fit_for += 1
                self._agenda.note(*self._waiting.groups.values())
            case _:
                pass
        self._state.apply(change)

    def decide(self, now: datetime) -> Iterator[Decision]:
        """What is decided, taken over one by one; nothing is left to decide when it is through."""
        self._catch_up(now)
        while True:
            yield from self.serve(now)
            overdue = self._due(now)
            if not overdue:
                return
            yield from self._time_out(overdue, now)

    def serve(self, now: datetime, before: Rank = LAST) -> Iterator[Decision]:
        """What is decided before that place in the queue, the end of anybody's wait left aside."""
        while (item := self._agenda.next(before)) is not None:
            yield from self._look_at(item, now)

    def is_open(self, now: datetime, before: Rank) -> bool:
        """Whether anybody is to be looked at before that place in the queue."""
        self._catch_up(now)
        return self._agenda.has_any(before)

    def is_due(self, now: datetime) -> bool:
        """Whether anybody has waited for too long."""
        self._forget_deadlines()
        return bool(self._deadlines) and self._deadlines[0][0] <= now

    def demand(self, entry: QueuedRequest, now: datetime) -> Demand:
        """A request at the place in the queue that it has or would have."""
        return _demand(entry.request, self.rank(entry), now)

    def place(self, demand: Demand) -> Placed | None:
        """Where a request could be placed now."""
        return self._search.place(demand)

    def look(self, demand: Demand) -> Look:
        """All that a request is judged against."""
        return self._search.look(demand)

    def position(self, reservation_id: UUID) -> int | None:
        """Place in the queue, counted from 1."""
        found = self._waiting.place(reservation_id)
        return self._waiting.position(found[0]) if found is not None else None

    def in_order(self) -> Iterator[QueuedRequest]:
        """All that waits, as it is served."""
        return self._waiting.in_order()

    def next_at(self, now: datetime) -> datetime | None:
        """When time alone may change a decision."""
        if not len(self._waiting):
            return None
        self._forget_deadlines()
        moments = [at for at, _ in self._deadlines[:1]]
        end = self._state.next_end(now)
        return min([*moments, end] if end is not None else moments, default=None)

    def rank(self, entry: QueuedRequest) -> Rank:
        """Its place: everybody ages alike, so that who is before whom never changes."""
        priority, number = entry.request.priority, entry.reservation_id.int
        point = self._policy.aging // MICROSECOND
        if not point:
            return -priority, entry.arrival, number
        return (entry.queued_at - LONG_AGO) // MICROSECOND - priority * point, entry.arrival, number

    def _queue(self, entry: QueuedRequest) -> None:
        rank, shape = self.rank(entry), shape_of(entry.request)
        group = self._waiting.groups.get(shape)
        if group is not None and rank < group.rank:
            self._keep(group, None)
        reach = self._search.reach(shape.filter, entry.request)
        group = self._waiting.add(rank, entry, shape, reach)
        if group.claim is None:
            self._agenda.note(group)
        elif _is_shorter(entry, group.head):
            self._agenda.add(group, rank)
        heapq.heappush(self._deadlines, (entry.wait_deadline_at, entry.reservation_id))
        if len(self._deadlines) > 2 * len(self._waiting) + SPARE_DEADLINES:
            queue = self._state.queue.values()
            self._deadlines = [(each.wait_deadline_at, each.reservation_id) for each in queue]
            heapq.heapify(self._deadlines)

    def _leave(self, reservation_id: UUID) -> None:
        found = self._waiting.place(reservation_id)
        if found is None:
            return
        rank, group = found
        if rank == group.rank:
            self._keep(group, None)
        self._waiting.remove(reservation_id)
        if group.claim is None:
            self._agenda.note(group)

    def _note_beneficiary(self, reservation_id: UUID) -> None:
        """Whoever somebody stops for may have to find somebody else."""
        lease = self._state.leases.get(reservation_id)
        if lease is not None and lease.preempting_for is not None:
            found = self._waiting.place(lease.preempting_for)
            if found is not None:
                self._agenda.note(found[1])

    def _forget_deadlines(self) -> None:
        """Take off what is no deadline any more."""
        queue = self._state.queue
        while self._deadlines:
            at, reservation_id = self._deadlines[0]
            if reservation_id in queue and queue[reservation_id].wait_deadline_at == at:
                return
            heapq.heappop(self._deadlines)

    def _keep(self, group: Group, claim: Claim | None) -> None:
        """Keep this for the group; whoever is behind it and concerned is looked at again."""
        before, rank = group.claim, group.claim_rank
        if claim == before:
            return
        self._agenda.note(*self._waiting.behind(before, group, rank))
        self._waiting.set_claim(group, claim)
        self._agenda.note(*self._waiting.behind(claim, group, group.claim_rank))

    def _catch_up(self, now: datetime) -> None:
        self._state.pass_time(now)
        self._refresh()

    def _refresh(self) -> None:
        """Whoever could use a node that changed is looked at again."""
        changed = self._views.refresh()
        if not changed:
            return
        if self._views.remade:
            self._fit_for += 1
            self._waiting.notice()
            self._agenda.note(*(g for g in self._waiting.groups.values() if self._is_unsure(g)))
        if len(self._waiting):
            for node_id in changed:
                view = self._views.nodes.get(node_id)
                self._agenda.note(*self._waiting.outgrown(node_id, view))
                if view is not None:
                    concerned = (
                        g for g in self._waiting.groups_on(view) if self._concerns(view, g)
                    )
                    self._agenda.note(*concerned)

    def _is_unsure(self, group: Group) -> bool:
        """Whether a node that is not what it was may concern a group that does not use it now."""
        return not self._fits(group) or (group.claim is not None and group.claim.by_hopes)

    def _concerns(self, view: NodeView, group: Group) -> bool:
        """Whether a node's new state may change anything for a group that has to wait so far."""
        shape = group.shape
        return (
            shape.nodes > 1
            or self._forecast.may_change(group, view)
            or (len(group.reach.ready(view)) >= shape.gpus and view.has_room(shape.room, NOTHING))
            or self._preemption.may_find(group, view)
        )

    def _look_at(self, item: Item, now: datetime) -> Iterator[Decision]:
        """A place for the request, or else what is kept for it if it is the group's first."""
        group, rank, shorter_than = item.group, item.rank, item.shorter_than
        if not self._fits(group):
            yield from self._reject(group)
            return
        entry = group.at(rank)
        if entry is None:
            self._agenda.go_on(group, rank, shorter_than)
            return
        demand = _demand(entry.request, rank, now)
        placed = self._search.place(demand)
        if placed is not None:
            yield self._grant(entry, placed, now)
            self._agenda.go_on(group, rank, shorter_than)
            return
        if rank == group.rank:
            claim = self._forecast.claim(group)
            self._keep(group, claim)
            if self._policy.preemption and self._state.preemptible:
                yield from self._preempt(group, demand, claim, now)
        seconds = entry.request.expected_duration_seconds
        self._agenda.go_on(group, rank, min(shorter_than, seconds if seconds is not None else inf))

    def _grant(self, entry: QueuedRequest, placed: Placed, now: datetime) -> Grant:
        seconds = entry.request.expected_duration_seconds
        lease = Lease(
            reservation_id=entry.reservation_id,
            request=entry.request,
            numbers=tuple(sorted(placed.numbers)),
            granted_at=now,
            expected_end_at=_later(now, seconds) if seconds is not None else None,
        )
        self.apply(LeaseHeld(lease=lease))
        self._refresh()
        return Grant(reservation_id=entry.reservation_id, placed=placed)

    def _preempt(
        self, group: Group, demand: Demand, claim: Claim, now: datetime
    ) -> Iterator[Preempt]:
        """Nobody has to stop for a request that could start as soon without it."""
        waits_for = group.head.reservation_id
        until = _later(now, self._policy.preemption_grace_seconds)
        if claim.start is not None and claim.start <= until:
            return
        leases = self._state.leases
        if any(leases[each].preempting_for == waits_for for each in self._state.preempting):
            return
        for lease in self._preemption.victims(demand, group.reach):
            told = replace(lease, preempting_until=until, preempting_for=waits_for)
            self._state.apply(LeaseHeld(lease=told))
            yield Preempt(
                reservation_id=lease.reservation_id, for_reservation_id=waits_for, until_at=until
            )
        self._refresh()

    def _reject(self, group: Group) -> Iterator[Rejection]:
        reasons = impossible_reasons(self._state.fleet(), group.request)
        for _, entry in tuple(group.entries):
            self.apply(RequestEnded(reservation_id=entry.reservation_id))
            yield Rejection(reservation_id=entry.reservation_id, reasons=reasons)

    def _due(self, now: datetime) -> list[tuple[Rank, UUID]]:
        due = set()
        while self.is_due(now):
            _, reservation_id = heapq.heappop(self._deadlines)
            due.add((self.rank(self._state.queue[reservation_id]), reservation_id))
        return sorted(due)

    def _time_out(self, due: Iterable[tuple[Rank, UUID]], now: datetime) -> Iterator[TimeOut]:
        """Requests that are alike are told the same reasons, worked out for the first of them."""
        told: dict[tuple[Group, float | None], tuple[Reason, ...]] = {}
        waited = []
        for rank, reservation_id in due:
            found = self._waiting.place(reservation_id)
            if found is None:
                continue
            request = self._state.queue[reservation_id].request
            alike = (found[1], request.expected_duration_seconds)
            if alike not in told:
                look = self._search.look(_demand(request, rank, now))
                told[alike] = blocking_reasons(look, request)
            waited.append((reservation_id, told[alike]))
        for reservation_id, reasons in waited:
            self.apply(RequestEnded(reservation_id=reservation_id))
            yield TimeOut(reservation_id=reservation_id, reasons=reasons)

    def _fits(self, group: Group) -> bool:
        if not self._state.settled or group.fits_for == self._fit_for:
            return True
        if not self._search.can_ever_fit(group.shape, group.request):
            return False
        group.fits_for = self._fit_for
        return True


def _demand(request: GpuRequest, rank: Rank, now: datetime) -> Demand:
    seconds = request.expected_duration_seconds
    return Demand(
        request=request,
        shape=shape_of(request),
        rank=rank,
        ends_at=_later(now, seconds) if seconds is not None else None,
    )


def _later(now: datetime, seconds: float) -> datetime:
    """At most the end of the calendar."""
    end = datetime.max.replace(tzinfo=now.tzinfo)
    return now + timedelta(seconds=seconds) if seconds < (end - now).total_seconds() else end


def _is_shorter(entry: QueuedRequest, other: QueuedRequest) -> bool:
    """Whether it is expected to take less time."""
    mine = entry.request.expected_duration_seconds
    theirs = other.request.expected_duration_seconds
    return mine is not None and (theirs is None or mine < theirs)
