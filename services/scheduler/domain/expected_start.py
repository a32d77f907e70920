"""When a request is expected to start: what leases and expected durations make likely."""

import heapq
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from schemas.gpu_request import GpuRequest
from services.scheduler.domain.decisions import Decision, Grant, Preempt
from services.scheduler.domain.engine import Engine
from services.scheduler.domain.fleet import Device, Reading, ReadingState
from services.scheduler.domain.inputs import (
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestQueued,
)

LOOKS: Final = 1_000
FAR: Final = datetime.max.replace(tzinfo=UTC)


def expected_start(
    engine: Engine, entry: QueuedRequest, now: datetime, *, looks: int = LOOKS
) -> datetime | None:
    """The moment at which this request would be granted if every lease ended when expected.

    The engine stays as it is. A request that waits already is seen at its place, however long it
    wants to wait. A lease that does not tell its end, or has outlived it, never ends here: None if
    the request does not start without it. So it is where more than `looks` moments would have to be
    looked at.
    """
    return _Future(engine, entry, now).start(looks)


class _Future:
    """A copy of the engine in which time goes on."""

    def __init__(self, engine: Engine, entry: QueuedRequest, now: datetime) -> None:
        state = engine.state()
        self._now = now
        self._wanted = entry.reservation_id
        self._devices = {i.device.number: i.device for i in state if isinstance(i, DeviceSeen)}
        self._requests: dict[UUID, GpuRequest] = {
            i.entry.reservation_id: i.entry.request for i in state if isinstance(i, RequestQueued)
        }
        self._requests[entry.reservation_id] = entry.request
        self._numbers: dict[UUID, tuple[int, ...]] = {}
        self._ends: list[tuple[datetime, UUID]] = []
        self._engine = Engine(engine.policy)
        self._engine.apply(*map(_soon, state))
        self._engine.apply(RequestQueued(entry=replace(entry, wait_deadline_at=FAR)))
        for lease in (i.lease for i in state if isinstance(i, LeaseHeld)):
            self._expect(lease)

    def start(self, looks: int) -> datetime | None:
        """The moment of the grant."""
        at = self._now
        for _ in range(looks):
            decisions = self._engine.decide(at)
            about_it = [d for d in decisions if d.reservation_id == self._wanted]
            if about_it:
                return at if isinstance(about_it[0], Grant) else None
            self._take(decisions, at)
            following = self._next(at)
            if following is None:
                return None
            at = following
            self._engine.apply(*self._ended(at))
        return None

    def _next(self, at: datetime) -> datetime | None:
        moments = [end for end, _ in self._ends[:1]]
        if (turn := self._engine.next_decision_at(at)) is not None:
            moments.append(turn)
        return min(moments, default=None)

    def _expect(self, lease: Lease) -> None:
        end = lease.preempting_until or lease.expected_end_at
        self._numbers[lease.reservation_id] = lease.numbers
        if end is not None and end > self._now:
            heapq.heappush(self._ends, (end, lease.reservation_id))

    def _take(self, decisions: Iterable[Decision], at: datetime) -> None:
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

    def _ended(self, at: datetime) -> Iterator[Input]:
        """What ends by then; its devices are idle afterwards."""
        while self._ends and self._ends[0][0] <= at:
            _, reservation_id = heapq.heappop(self._ends)
            yield LeaseEnded(reservation_id=reservation_id)
            for number in self._numbers.pop(reservation_id, ()):
                device = self._devices.get(number)
                if device is not None and not device.quarantined:
                    yield DeviceSeen(device=_idle(device))


def _soon(change: Input) -> Input:
    """A device whose first reading since its release is under way is as good as read."""
    match change:
        case DeviceSeen(device=device) if device.reading_state is ReadingState.AWAITING:
            return DeviceSeen(device=_idle(device))
        case _:
            return change


def _idle(device: Device) -> Device:
    total = device.total_mb
    return replace(
        device,
        holder=None,
        reading_state=ReadingState.FRESH,
        reading=Reading(utilization_percent=0.0, memory_total_mb=total, memory_free_mb=total),
    )
