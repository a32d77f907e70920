"""When and where a request is expected to start, by the expected ends of leases and of requests
before it.
"""

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from schemas.base import NodeId
from services.scheduler.domain.model.fleet import ReadingState
from services.scheduler.domain.model.inputs import (
    FAR,
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestQueued,
    arriving_request,
)
from services.scheduler.domain.placement.decisions import Decision, Grant, Preempt
from services.scheduler.domain.queue.decision_engine import DecisionEngine

MAX_MOMENTS: Final = 256
EXACT_ENDS: Final = 8
EXACT_ENDS_OF_A_GANG: Final = 2


class ExpectedStart(Struct, frozen=True):
    """When, and on which nodes."""

    at: datetime
    node_ids: tuple[NodeId, ...]


def forecast_start(
    engine: DecisionEngine, entry: QueuedRequest, now: datetime, *, moments: int = MAX_MOMENTS
) -> ExpectedStart | None:
    """Forecast the grant, if every lease ended when expected.

    Simulated on a copy of the engine. A request that waits already stays at its position, however
    long it may wait. A lease without a known end, or past it, never ends here: None if the request
    does not start without it. The farther away, the rougher: after the first few ends of leases
    several are taken together, an eighth of those before, for a gang a half, and the last of them
    counts. None as well if it takes more than `moments` simulated moments.
    """
    future = _Future(engine, entry, now)
    return future.start(moments) if future.could_ever_start() else None


class _Future:
    """A copy of the engine in which time goes on."""

    def __init__(self, engine: DecisionEngine, entry: QueuedRequest, now: datetime) -> None:
        self._now = now
        self._policy = engine.policy
        self._entry = replace(entry, wait_deadline_at=FAR)
        self._state = tuple(
            _soon(change) for change in engine.state() if not _queues(change, entry.reservation_id)
        )
        self._devices = {
            change.device.number: change.device
            for change in self._state
            if isinstance(change, DeviceSeen)
        }
        self._requests = {
            waiting_entry.reservation_id: waiting_entry.request
            for waiting_entry in (*engine.waiting, entry)
        }
        self._numbers: dict[UUID, tuple[int, ...]] = {}
        self._ends: list[tuple[datetime, UUID]] = []
        self._over = 0
        for change in self._state:
            if isinstance(change, LeaseHeld):
                self._expect(change.lease)

    def could_ever_start(self) -> bool:
        """Return True if the request would be granted if it were alone and every lease with a known
        end over.
        """
        alone = DecisionEngine(self._policy)
        alone.apply(
            *(
                entry_input
                for entry_input in self._state
                if not isinstance(entry_input, RequestQueued)
            )
        )
        alone.apply(*(change for _, over in self._ends for change in self._end(over)))
        with alone.what_if(self._now) as what_if:
            entry = arriving_request(self._entry.request, self._now, self._entry.namespace)
            return what_if.place(entry) is not None

    def start(self, moments: int) -> ExpectedStart | None:
        engine = DecisionEngine(self._policy)
        engine.apply(*self._state, RequestQueued(entry=self._entry))
        exact = EXACT_ENDS if self._entry.request.nodes == 1 else EXACT_ENDS_OF_A_GANG
        at = self._now
        for _ in range(moments):
            decisions = engine.decide(at, explain=False)
            reservation_id = self._entry.reservation_id
            about_it = [
                decision for decision in decisions if decision.reservation_id == reservation_id
            ]
            match about_it:
                case [Grant(placed=placed), *_]:
                    return ExpectedStart(at, placed.node_ids)
                case [_, *_]:
                    return None
            self._follow(decisions, at)
            following = self._next(engine, at, max(1, self._over // exact))
            if following is None:
                return None
            at = following
            engine.apply(*self._end_leases(at))
        return None

    def _next(self, engine: DecisionEngine, at: datetime, together: int) -> datetime | None:
        """The next moment at which something may change, or the last of several that come next."""
        moments = [end for end, _ in heapq.nsmallest(together, self._ends)[-1:]]
        decision_at = engine.next_decision_at(at) if together == 1 or not moments else None
        if decision_at is not None:
            moments.append(decision_at)
        return min((moment for moment in moments if moment < FAR), default=None)

    def _expect(self, lease: Lease) -> None:
        end = lease.preempting_until or lease.expected_end_at
        self._numbers[lease.reservation_id] = lease.numbers
        if end is not None and end > self._now:
            heapq.heappush(self._ends, (end, lease.reservation_id))

    def _follow(self, decisions: Iterable[Decision], at: datetime) -> None:
        for decision in decisions:
            match decision:
                case Grant(reservation_id=reservation_id, placed=placed):
                    self._numbers[reservation_id] = tuple(placed.numbers)
                    seconds = self._requests[reservation_id].expected_duration_seconds
                    if seconds is not None:
                        end = at + timedelta(seconds=seconds)
                        heapq.heappush(self._ends, (end, reservation_id))
                case Preempt(reservation_id=reservation_id, until_at=until_at):
                    heapq.heappush(self._ends, (until_at, reservation_id))
                case _:
                    pass

    def _end_leases(self, at: datetime) -> Iterator[Input]:
        while self._ends and self._ends[0][0] <= at:
            _, reservation_id = heapq.heappop(self._ends)
            self._over += 1
            yield from self._end(reservation_id)

    def _end(self, reservation_id: UUID) -> Iterator[Input]:
        """The end of a lease; its devices are idle afterwards, and closed if quarantined."""
        yield LeaseEnded(reservation_id=reservation_id)
        for number in self._numbers.get(reservation_id, ()):
            device = self._devices.get(number)
            if device is not None:
                yield DeviceSeen(device=device.when_idle())


def _queues(change: Input, reservation_id: UUID) -> bool:
    return isinstance(change, RequestQueued) and change.entry.reservation_id == reservation_id


def _soon(change: Input) -> Input:
    """A device whose first reading since its release is under way counts as idle."""
    match change:
        case DeviceSeen(device=device) if device.reading_state is ReadingState.AWAITING:
            return DeviceSeen(device=device.when_idle())
        case _:
            return change
