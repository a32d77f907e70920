"""The decision engine: knows fleet, leases and queue, and decides what changes; deterministic."""

from datetime import datetime
from uuid import UUID

from schemas.gpu_request import GpuRequest, Reason
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.explain import blocking_reasons, impossible_reasons
from services.scheduler.domain.fleet import Fleet
from services.scheduler.domain.inputs import Input, QueuedRequest
from services.scheduler.domain.placement import Look, Placed
from services.scheduler.domain.policy import Policy
from services.scheduler.domain.state import State
from services.scheduler.domain.turn import Turn


class Engine:
    """Takes changes in by `apply`, and decides by `decide`; no clock, no I/O.

    What it has decided it has already taken over: the devices are held, the request is gone. If
    that could not be carried out, throw the engine away and build one from the ledger.
    """

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008  # frozen
        self.policy = policy
        self._state = State()
        self._turn = Turn(self._state, policy)

    def apply(self, *inputs: Input) -> None:
        """Take over changes, in order."""
        for change in inputs:
            self._turn.apply(change)

    def state(self) -> tuple[Input, ...]:
        """The whole state as inputs; a new engine to which they are applied is the same engine."""
        return tuple(self._state.inputs())

    @property
    def fleet(self) -> Fleet:
        """The fleet as it is now."""
        return self._state.fleet()

    @property
    def queue_length(self) -> int:
        """How many requests wait."""
        return len(self._state.queue)

    @property
    def waiting(self) -> tuple[QueuedRequest, ...]:
        """Everything that waits, in the order in which it is served."""
        return tuple(self._turn.in_order())

    def queue_position(self, reservation_id: UUID) -> int | None:
        """Place in the queue, counted from 1; None for what does not wait."""
        return self._turn.position(reservation_id)

    def decide(self, now: datetime) -> tuple[Decision, ...]:
        """Everything that can be decided now."""
        return tuple(self._turn.decide(now))

    def next_decision_at(self, now: datetime) -> datetime | None:
        """The earliest moment at which time alone may change a decision; None if none does.

        Nobody's place in the queue changes with time, as everybody ages alike.
        """
        return self._turn.next_at(now)

    def reasons(self, reservation_id: UUID, now: datetime) -> tuple[Reason, ...]:
        """Every reason why a waiting request is not granted now; empty if it would be.

        Empty as well for what does not wait.
        """
        entry = self._state.queue.get(reservation_id)
        if entry is None:
            return ()
        return self.reasons_for(entry.request, now, in_place_of=reservation_id)

    def reasons_for(
        self, request: GpuRequest, now: datetime, *, in_place_of: UUID | None = None
    ) -> tuple[Reason, ...]:
        """Every reason why a request would not be granted now; empty if it would be.

        It is judged in the place of one that waits, otherwise behind everybody.
        """
        impossible = impossible_reasons(self._state.fleet(), request)
        return impossible or blocking_reasons(self.look(request, now, in_place_of), request)

    def would_grant(
        self, request: GpuRequest, now: datetime, *, in_place_of: UUID | None = None
    ) -> Placed | None:
        """Where a request would be placed now; changes nothing.

        It is judged in the place of one that waits, otherwise behind everybody.
        """
        self._turn.settle(now)
        return self._turn.place(self._turn.demand(request, now, in_place_of))

    def look(self, request: GpuRequest, now: datetime, in_place_of: UUID | None = None) -> Look:
        """What a request is judged against in the place of one that waits, or behind everybody."""
        self._turn.settle(now)
        return self._turn.look(self._turn.demand(request, now, in_place_of))
