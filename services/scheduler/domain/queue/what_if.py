"""What a request would get now: decides everything before it on the live engine, then undoes it."""

from collections import deque
from datetime import datetime
from uuid import UUID

from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.model.inputs import QueuedRequest, RequestEnded, RequestQueued
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.placement.placement import Placed, PlacementContext
from services.scheduler.domain.placement.reasons import blocking_reasons, impossible_reasons
from services.scheduler.domain.placement.request_shape import Rank, RankedRequest
from services.scheduler.domain.queue.scheduling_cycle import LAST, SchedulingCycle


class WhatIfSimulation:
    """Evaluates requests at their queue position; made by `DecisionEngine.what_if` alone.

    What would be decided before a request is decided first, and stays decided for the next
    question: a suggestion needs hundreds. While it is open the state records the inverse of every
    change *before* it is applied, so `close` restores it from wherever the simulation stopped.
    """

    def __init__(self, cycle: SchedulingCycle, state: State, now: datetime) -> None:
        self._cycle = cycle
        self._state = state
        self._now = now
        self._queue = dict(state.queue)  # as it is, whatever is granted here
        cycle.put_in_order(now)
        self._waits = set(cycle.waiting.by_namespace)
        self._reached: Rank | None = None
        self._without: UUID | None = None
        state.record_inverses()

    def find_queued(self, reservation_id: UUID) -> QueuedRequest | None:
        """A request that waits, whatever the simulation decided about it."""
        return self._queue.get(reservation_id)

    def place(self, entry: QueuedRequest) -> Placed | None:
        """Return where the request would be placed; a waiting one as if this were its request."""
        placed = self._search(entry)
        if placed is None and self._cycle.is_overdue(self._now):
            return self._place_by_deciding(entry)
        return placed

    def can_place(self, entry: QueuedRequest) -> bool:
        """Return True if `place` finds a place, without what time-outs of others would free: for
        trials.

        Never where `place` finds none.
        """
        return self._search(entry) is not None

    def context(self, entry: QueuedRequest) -> PlacementContext:
        """Return the context by which `can_place` judges."""
        return self._cycle.search.context(self._reach(entry))

    def reasons(self, entry: QueuedRequest) -> tuple[Reason, ...]:
        """Return every reason why `place` finds none; empty if it finds one."""
        return self.impossible_reasons(entry) or self.blocking_reasons(entry)

    def impossible_reasons(self, entry: QueuedRequest) -> tuple[Reason, ...]:
        """Return why the request is rejected instead of queued; empty if this fleet may serve it
        some day.
        """
        reasons = impossible_reasons(self._state.fleet(), entry.request)
        over = self._cycle.quota_reason(entry)
        is_too_much = over is not None and over.code is ReasonCode.EXCEEDS_QUOTA
        return (over,) if is_too_much and over is not None and not reasons else reasons

    def blocking_reasons(self, entry: QueuedRequest) -> tuple[Reason, ...]:
        """Return why a request that the fleet may serve some day is not placed now; empty if it
        is.
        """
        if self.place(entry) is not None:
            return ()
        reached = self._reach(entry)
        over = self._cycle.quota_reason(entry)
        if over is None:
            return blocking_reasons(self._cycle.search.context(reached), entry.request)
        if self._cycle.search.place(reached) is not None:
            return (over,)
        return over, *blocking_reasons(self._cycle.search.context(reached), entry.request)

    def close(self) -> None:
        """Restore the state and every index."""
        self._rewind()
        self._state.take_inverses()

    def _search(self, entry: QueuedRequest) -> Placed | None:
        if self._is_contended(entry):
            return self._place_by_deciding(entry)
        reached = self._reach(entry)
        return None if self._cycle.quota_reason(entry) else self._cycle.search.place(reached)

    def _is_contended(self, entry: QueuedRequest) -> bool:
        """Return True if turns of namespaces count; what is decided behind the request may then be
        the cause.
        """
        return len((self._waits | {entry.namespace}) - {""}) > 1

    def _rewind(self) -> None:
        for change in reversed(self._state.take_inverses()):
            self._cycle.apply(change)
        self._state.record_inverses()

    def _forget(self) -> None:
        """Rewind, also for the next question."""
        self._rewind()
        self._reached = self._without = None

    def _reach(self, entry: QueuedRequest) -> RankedRequest:
        """Decide what comes before this request.

        One that waits before its new rank is taken out, or it would be decided as it is. Decisions
        already made are reused unless they went beyond this rank or left out another request.
        """
        if self._is_contended(entry):
            self._forget()
            self._cycle.apply(RequestQueued(entry=entry))
            self._reached = LAST
            deque(self._cycle.decide_before(entry, self._now), maxlen=0)
            return self._cycle.rank(entry, self._now)
        rank, waiting = self._cycle.order.rank(entry), self.find_queued(entry.reservation_id)
        is_before = waiting is not None and self._cycle.order.rank(waiting) < rank
        without = entry.reservation_id if is_before else None
        if without != self._without or (self._reached is not None and rank < self._reached):
            self._rewind()
        if without is not None:
            self._cycle.apply(RequestEnded(reservation_id=without))
        self._reached, self._without = rank, without
        deque(self._cycle.decide_before(entry, self._now), maxlen=0)
        return self._cycle.rank(entry, self._now)

    def _place_by_deciding(self, entry: QueuedRequest) -> Placed | None:
        """A whole cycle with the request in the queue: time-outs may free what it needs."""
        self._forget()
        self._cycle.apply(RequestQueued(entry=entry))
        decisions = tuple(self._cycle.decide(self._now, explain=False))
        self._rewind()
        mine = (
            decision for decision in decisions if decision.reservation_id == entry.reservation_id
        )
        return next((decision.placed for decision in mine if isinstance(decision, Grant)), None)
