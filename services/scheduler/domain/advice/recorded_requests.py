"""A decision log taken apart: what no policy decides, and what the one in force did."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from services.scheduler.domain.advice.replay import RecordedCycle
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.model.inputs import (
    FAR,
    DemandSeen,
    DeviceGone,
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    QueuedRequest,
    RequestEnded,
    RequestQueued,
    UseSeen,
)
from services.scheduler.domain.placement.decisions import Grant


class RecordedRequest(Struct, frozen=True, kw_only=True):
    """A request as it came. `held_seconds` None: its end is not on record.

    `withdrawn_at`: it was taken back while it waited, whatever the policy.
    """

    entry: QueuedRequest
    at: datetime
    held_seconds: float | None = None
    withdrawn_at: datetime | None = None
    recorded_wait_seconds: float | None = None


class History(Struct, frozen=True, kw_only=True):
    """What no policy decides, from `start_at` to `end_at`.

    `changes` are of the fleet, in order; `leases` were held at the start, each with the seconds
    that it still was.
    """

    start_at: datetime
    end_at: datetime
    changes: tuple[tuple[datetime, Input], ...]
    leases: tuple[tuple[Lease, float | None], ...]
    demands: tuple[RecordedRequest, ...]


def read_history(
    cycles: Iterable[RecordedCycle], ended_at: Mapping[UUID, datetime]
) -> History | None:
    """Read the history from the first keyframe on; None without one.

    `ended_at` is when reservations ended: a record only shows that one had, by the next decision.
    """
    reader = _Reader(ended_at)
    for cycle in cycles:
        reader.read(cycle)
    return reader.history()


@dataclass(slots=True)
class _Reader:
    ended_at: Mapping[UUID, datetime]
    start_at: datetime | None = None
    now: datetime = FAR
    changes: list[tuple[datetime, Input]] = field(default_factory=list)
    devices: dict[int, Device] = field(default_factory=dict)
    demands: dict[UUID, RecordedRequest] = field(default_factory=dict)
    held_at: dict[UUID, datetime] = field(default_factory=dict)
    initial: dict[UUID, Lease] = field(default_factory=dict)
    initial_seconds: dict[UUID, float] = field(default_factory=dict)

    def read(self, cycle: RecordedCycle) -> None:
        if self.start_at is None:
            if not cycle.keyframe:
                return
            self.start_at = cycle.decided_at
        self.now = cycle.decided_at
        if cycle.keyframe:
            self._end_what_is_gone(cycle.inputs)
        for change in cycle.inputs:
            self._input(change)
        for decision in cycle.outcomes:
            match decision:
                case Grant(reservation_id=reservation_id):
                    self.held_at[reservation_id] = self.now
                    if (demand := self.demands.get(reservation_id)) is not None:
                        waited = (self.now - demand.at).total_seconds()
                        self.demands[reservation_id] = replace(
                            demand, recorded_wait_seconds=max(0.0, waited)
                        )
                case _:
                    pass

    def history(self) -> History | None:
        if self.start_at is None:
            return None
        return History(
            start_at=self.start_at,
            end_at=self.now,
            changes=tuple(self.changes),
            leases=tuple(
                (lease, self.initial_seconds.get(reservation_id))
                for reservation_id, lease in self.initial.items()
            ),
            demands=tuple(sorted(self.demands.values(), key=lambda demand: demand.entry.arrival)),
        )

    def _input(self, change: Input) -> None:
        match change:
            case RequestQueued(entry=entry):
                self._queue(entry)
            case RequestEnded(reservation_id=reservation_id):
                self._withdrawn(reservation_id)
            case LeaseHeld(lease=lease):
                self._hold(lease)
            case LeaseEnded(reservation_id=reservation_id):
                self._end(reservation_id)
            case DeviceSeen(device=device):
                # What is on a device follows from the policy; that it is out of service does not.
                idle = replace(
                    device.when_idle(), quarantined=False, foreign_pids=(), unlisted_mb=None
                )
                if self.devices.get(device.number) != idle:
                    self.devices[device.number] = idle
                    self.changes.append((self.now, DeviceSeen(device=idle)))
            case DemandSeen() | UseSeen():
                pass  # learned anew from what the tried policy does
            case _:
                self.changes.append((self.now, change))

    def _queue(self, entry: QueuedRequest) -> None:
        if entry.reservation_id in self.demands or self.start_at is None:
            return
        at = min(max(entry.queued_at, self.start_at), self.now)
        self.demands[entry.reservation_id] = RecordedRequest(entry=entry, at=at)

    def _withdrawn(self, reservation_id: UUID) -> None:
        demand = self.demands.get(reservation_id)
        if demand is not None and reservation_id not in self.held_at:
            self.demands[reservation_id] = replace(
                demand, withdrawn_at=self._end_of(reservation_id)
            )

    def _hold(self, lease: Lease) -> None:
        if lease.reservation_id in self.held_at:
            return
        self.held_at[lease.reservation_id] = self.now
        if lease.reservation_id not in self.demands:
            self.initial[lease.reservation_id] = replace(
                lease, preempting_until=None, preempting_for=None
            )

    def _end(self, reservation_id: UUID) -> None:
        since = self.held_at.get(reservation_id)
        if since is None:
            return
        seconds = max(0.0, (self._end_of(reservation_id) - since).total_seconds())
        demand = self.demands.get(reservation_id)
        if demand is not None and demand.held_seconds is None:
            self.demands[reservation_id] = replace(demand, held_seconds=seconds)
        elif reservation_id in self.initial:
            self.initial_seconds.setdefault(reservation_id, seconds)

    def _end_of(self, reservation_id: UUID) -> datetime:
        return min(self.ended_at.get(reservation_id, self.now), self.now)

    def _end_what_is_gone(self, state: Iterable[Input]) -> None:
        """End what is missing in the next scheduler's state: it ended while no scheduler
        recorded.
        """
        live_ids = {
            change.lease.reservation_id for change in state if isinstance(change, LeaseHeld)
        }
        for reservation_id in self.held_at.keys() - live_ids:
            self._end(reservation_id)
        numbers = {change.device.number for change in state if isinstance(change, DeviceSeen)}
        for number in self.devices.keys() - numbers:
            del self.devices[number]
            self.changes.append((self.now, DeviceGone(number=number)))


def list_waits(history: History) -> list[float]:
    """List the waits of the requests that were granted, in seconds."""
    waits = (demand.recorded_wait_seconds for demand in history.demands)
    return [seconds for seconds in waits if seconds is not None]


def list_unknowns(history: History) -> tuple[str, ...]:
    """Say what a trial on this history cannot know, a sentence each."""
    endless = sum(demand.held_seconds is None for demand in history.demands)
    unknowns = [
        "requests for GPUs of Kubernetes clusters, which are not recorded",
        "what else used GPUs: a free one counts as idle",
        "what a preempted holder does next: it does not come back",
        "what namespaces had used before it begins",
    ]
    if endless:
        unknowns.append(
            f"when {endless} of {len(history.demands)} requests would have ended: they hold as long"
            " as they expected, or to the end"
        )
    return tuple(unknowns)
