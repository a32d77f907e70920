"""The decision engine: knows fleet, leases and queue, and decides what changes; deterministic."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from uuid import UUID

from schemas.gpu_request import GpuRequest, Reason
from services.scheduler.domain.decisions import Decision, Grant, Rejection, TimeOut
from services.scheduler.domain.eligibility import can_ever_serve
from services.scheduler.domain.explain import blocking_reasons, impossible_reasons
from services.scheduler.domain.fleet import Fleet
from services.scheduler.domain.inputs import (
    Input,
    Lease,
    LeaseHeld,
    QueuedRequest,
    RequestEnded,
)
from services.scheduler.domain.placement import Look, Placed, place
from services.scheduler.domain.policy import Policy
from services.scheduler.domain.state import State


class Engine:
    """Takes changes in by `apply`, and decides by `decide`; no clock, no I/O.

    What it has decided it has already taken over: the devices are held, the request is gone. If
    that could not be carried out, throw the engine away and build one from the ledger.
    """

    def __init__(self, policy: Policy = Policy()) -> None:  # noqa: B008  # frozen
        self.policy = policy
        self._state = State()

    def apply(self, *inputs: Input) -> None:
        """Take over changes, in order."""
        for change in inputs:
            self._state.apply(change)

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
        return tuple(self._in_order())

    def queue_position(self, reservation_id: UUID) -> int | None:
        """Place in the queue, counted from 1; None for what does not wait."""
        if reservation_id not in self._state.queue:
            return None
        return [entry.reservation_id for entry in self._in_order()].index(reservation_id) + 1

    def decide(self, now: datetime) -> tuple[Decision, ...]:
        """Everything that can be decided now, in the order of the queue."""
        decisions = []
        for decision in self._pass(now):
            decisions.append(decision)
            self._take_over(decision, now)
        return tuple(decisions)

    def next_decision_at(self, now: datetime) -> datetime | None:
        """The earliest moment at which time alone may change a decision; None if none does."""
        ends = [entry.wait_deadline_at for entry in self._state.queue.values()]
        if self._state.queue:
            ends += [
                at
                for lease in self._state.leases.values()
                for at in (lease.expected_end_at, lease.preempting_until)
                if at is not None
            ]
        return min((at for at in ends if at > now), default=None)

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
        return place(self.look(request, now, in_place_of), request)

    def look(self, request: GpuRequest, now: datetime, in_place_of: UUID | None = None) -> Look:  # noqa: ARG002  # durations will matter
        """What a request is judged against."""
        claimed: dict[int, UUID] = {}
        for entry in self._in_order():
            if entry.reservation_id == in_place_of:
                break
            self._claim(entry, claimed)
        return self._look(claimed)

    def _look(self, claimed: dict[int, UUID]) -> Look:
        return Look(fleet=self._state.fleet(), claimed=claimed, weights=self.policy.weights)

    def _in_order(self) -> list[QueuedRequest]:
        return sorted(self._state.queue.values(), key=self._rank)

    def _rank(self, entry: QueuedRequest) -> tuple[int, int, int]:
        if not self.policy.aging_seconds:
            return -entry.request.priority, 0, entry.arrival
        late = entry.queued_at - entry.queued_at.min.replace(tzinfo=entry.queued_at.tzinfo)
        return (
            late // timedelta(microseconds=1)
            - entry.request.priority * (self.policy.aging // timedelta(microseconds=1)),
            0,
            entry.arrival,
        )

    def _pass(self, now: datetime) -> Iterator[Decision]:
        claimed: dict[int, UUID] = {}
        for entry in self._in_order():
            request, reservation_id = entry.request, entry.reservation_id
            if reasons := impossible_reasons(self._state.fleet(), request):
                yield Rejection(reservation_id=reservation_id, reasons=reasons)
                continue
            look = self._look(dict(claimed))
            placed = place(look, request)
            if placed is not None:
                yield Grant(reservation_id=reservation_id, placed=placed)
            elif entry.wait_deadline_at <= now:
                yield TimeOut(
                    reservation_id=reservation_id, reasons=blocking_reasons(look, request)
                )
            else:
                self._claim(entry, claimed)

    def _claim(self, entry: QueuedRequest, claimed: dict[int, UUID]) -> None:
        state, request = self._state, entry.request
        for node_id in state.node_ids():
            node = state.host(node_id).node
            usable = [
                device.number
                for device in state.group(node_id)
                if can_ever_serve(device, request, node)
            ]
            if len(usable) >= request.gpus:
                for number in usable:
                    claimed.setdefault(number, entry.reservation_id)

    def _take_over(self, decision: Decision, now: datetime) -> None:
        state = self._state
        match decision:
            case Grant(reservation_id=reservation_id, placed=placed):
                request = state.queue[reservation_id].request
                seconds = request.expected_duration_seconds
                lease = Lease(
                    reservation_id=reservation_id,
                    request=request,
                    numbers=tuple(sorted(placed.numbers)),
                    granted_at=now,
                    expected_end_at=now + timedelta(seconds=seconds) if seconds else None,
                )
                state.apply(LeaseHeld(lease=lease))
            case Rejection(reservation_id=reservation_id) | TimeOut(reservation_id=reservation_id):
                state.apply(RequestEnded(reservation_id=reservation_id))
