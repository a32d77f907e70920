"""The decision engine: knows fleet, leases and queue, and decides what changes; deterministic."""

from datetime import datetime
from uuid import UUID

from msgspec.structs import replace

from schemas.gpu_request import GpuRequest, Reason
from services.scheduler.domain.decisions import Decision
from services.scheduler.domain.explain import blocking_reasons, impossible_reasons
from services.scheduler.domain.fleet import Fleet
from services.scheduler.domain.foresight import Foresight
from services.scheduler.domain.inputs import Input, QueuedRequest, newcomer
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
        self._foresight = Foresight(self._turn, self._state)

    def apply(self, *inputs: Input) -> None:
        """Take over changes, in order."""
        self._foresight.close()
        for change in inputs:
            self._turn.apply(change)

    def state(self) -> tuple[Input, ...]:
        """The whole state as inputs; a new engine to which they are applied is the same engine."""
        self._foresight.close()
        return tuple(self._state.inputs())

    @property
    def fleet(self) -> Fleet:
        """The fleet as it is now."""
        self._foresight.close()
        return self._state.fleet()

    @property
    def queue_length(self) -> int:
        """How many requests wait."""
        self._foresight.close()
        return len(self._state.queue)

    @property
    def waiting(self) -> tuple[QueuedRequest, ...]:
        """Everything that waits, in the order in which it is served."""
        self._foresight.close()
        return tuple(self._turn.in_order())

    def queue_position(self, reservation_id: UUID) -> int | None:
        """Place in the queue, counted from 1; None for what does not wait."""
        self._foresight.close()
        return self._turn.position(reservation_id)

    def decide(self, now: datetime) -> tuple[Decision, ...]:
        """Everything that can be decided now."""
        self._foresight.close()
        return tuple(self._turn.decide(now))

    def next_decision_at(self, now: datetime) -> datetime | None:
        """The earliest moment at which time alone may change a decision; None if none does.

        Nobody's place in the queue changes with time, as everybody ages alike.
        """
        self._foresight.close()
        return self._turn.next_at(now)

    def reasons(self, reservation_id: UUID, now: datetime) -> tuple[Reason, ...]:
        """Every reason why a waiting request is not granted now; empty if it would be.

        Empty as well for what does not wait.
        """
        entry = self._foresight.waiting(reservation_id)
        return self.reasons_of(entry, now) if entry is not None else ()

    def reasons_for(
        self, request: GpuRequest, now: datetime, *, in_place_of: UUID | None = None
    ) -> tuple[Reason, ...]:
        """Every reason why `would_grant` finds no place; empty if it finds one."""
        return self.reasons_of(self._asked(request, now, in_place_of), now)

    def would_grant(
        self, request: GpuRequest, now: datetime, *, in_place_of: UUID | None = None
    ) -> Placed | None:
        """Where a request would be placed that comes now; changes nothing.

        With `in_place_of` as if one that waits had asked for it.
        """
        return self.place(self._asked(request, now, in_place_of), now)

    def place(self, entry: QueuedRequest, now: datetime) -> Placed | None:
        """Where this would be placed if it were queued now; changes nothing.

        Of one that waits as if it were what it asks for. Whatever is to be decided before it in
        its place of the queue is thought to be.
        """
        return self._foresight.place(entry, now)

    def has_place(self, entry: QueuedRequest, now: datetime) -> bool:
        """Whether this would be placed if it were queued now; to be asked many times.

        Never where `place` finds none. It may say no of what is granted only because others have
        waited for too long by now.
        """
        return self._foresight.has_place(entry, now)

    def look(self, entry: QueuedRequest, now: datetime) -> Look:
        """What `place` judges by."""
        return self._foresight.look(entry, now)

    def reasons_of(self, entry: QueuedRequest, now: datetime) -> tuple[Reason, ...]:
        """Every reason why `place` finds none; empty if it finds one."""
        impossible = impossible_reasons(self._state.fleet(), entry.request)
        if impossible or self.place(entry, now) is not None:
            return impossible
        return blocking_reasons(self.look(entry, now), entry.request)

    def _asked(self, request: GpuRequest, now: datetime, in_place_of: UUID | None) -> QueuedRequest:
        waits = self._foresight.waiting(in_place_of) if in_place_of is not None else None
        return newcomer(request, now) if waits is None else replace(waits, request=request)
