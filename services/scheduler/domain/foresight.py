"""What would be decided before some place in the queue: carried out, and taken back when done."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from services.scheduler.domain.decisions import Decision, Grant, Preempt
from services.scheduler.domain.demand import Demand, Rank
from services.scheduler.domain.inputs import (
    Input,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
)
from services.scheduler.domain.placement import Look, Placed
from services.scheduler.domain.state import State
from services.scheduler.domain.turn import Turn


class Foresight:
    """Judges requests by what a decision would find when their turn comes.

    Whatever would be decided before them is decided first. It stays so from question to question,
    and only `close` leaves everything as it was.
    """

    def __init__(self, turn: Turn, state: State) -> None:
        self._turn = turn
        self._state = state
        self._back: list[Input] = []  # what takes back what was carried out, the last first
        self._gone: dict[UUID, QueuedRequest] = {}  # those that wait no longer because of that
        self._now: datetime | None = None
        self._reached: Rank | None = None
        self._without: UUID | None = None

    def place(self, entry: QueuedRequest, now: datetime) -> Placed | None:
        """Where it would be placed; one that waits as if this were what it asks for."""
        placed = self._turn.place(self._reach(entry, now))
        if placed is None and self._turn.is_due(now):
            return self._decided(entry, now)
        return placed

    def has_place(self, entry: QueuedRequest, now: datetime) -> bool:
        """As `place`, the room left aside that is made by those whose wait is over."""
        return self._turn.place(self._reach(entry, now)) is not None

    def look(self, entry: QueuedRequest, now: datetime) -> Look:
        """What it would be judged against."""
        return self._turn.look(self._reach(entry, now))

    def waiting(self, reservation_id: UUID) -> QueuedRequest | None:
        """One that waits, whatever would be decided."""
        return self._gone.get(reservation_id) or self._state.queue.get(reservation_id)

    def close(self) -> None:
        """Take everything back."""
        for change in reversed(self._back):
            self._turn.apply(change)
        self._back.clear()
        self._gone.clear()
        self._now = self._reached = self._without = None

    def _reach(self, entry: QueuedRequest, now: datetime) -> Demand:
        """Decide what comes before this request, but not about itself where it waits now."""
        rank, waiting = self._turn.rank(entry), self.waiting(entry.reservation_id)
        is_behind = waiting is not None and self._turn.rank(waiting) < rank
        without = entry.reservation_id if is_behind else None
        if (
            now != self._now
            or without != self._without
            or (self._reached is not None and rank < self._reached)
        ):
            self.close()
        if without is not None and without in self._state.queue:
            self._take_away(without)
        self._now, self._reached, self._without = now, rank, without
        if self._turn.is_open(now, rank):
            before = self._state.queue.copy()
            self._follow(self._turn.serve(now, rank), before)
        return self._turn.demand(entry, now)

    def _decided(self, entry: QueuedRequest, now: datetime) -> Placed | None:
        """As `place`, when room may be made by those that have waited for too long by now."""
        self.close()
        waiting = self._state.queue.get(entry.reservation_id)
        if waiting is not None:
            self._take_away(entry.reservation_id)
        self._turn.apply(RequestQueued(entry=entry))
        self._back.append(RequestEnded(reservation_id=entry.reservation_id))
        before = self._state.queue.copy()
        decisions = tuple(self._turn.decide(now))
        self._follow(decisions, before)
        self.close()
        mine = (d for d in decisions if d.reservation_id == entry.reservation_id)
        return next((d.placed for d in mine if isinstance(d, Grant)), None)

    def _take_away(self, reservation_id: UUID) -> None:
        entry = self._gone[reservation_id] = self._state.queue[reservation_id]
        self._back.append(RequestQueued(entry=entry))
        self._turn.apply(RequestEnded(reservation_id=reservation_id))

    def _follow(self, decisions: Iterable[Decision], before: Mapping[UUID, QueuedRequest]) -> None:
        for decision in decisions:
            reservation_id = decision.reservation_id
            if isinstance(decision, Preempt):
                told = self._state.leases[reservation_id]
                lease = replace(told, preempting_until=None, preempting_for=None)
                self._back.append(LeaseHeld(lease=lease))
                continue
            entry = self._gone[reservation_id] = before[reservation_id]
            self._back.append(RequestQueued(entry=entry))
            if isinstance(decision, Grant):
                self._back.append(LeaseEnded(reservation_id=reservation_id))
