"""Recorded requests served again, on the recorded fleet, under another policy.

What was recorded is taken apart into what no policy decides (the fleet, who requested when and held
how long) and what one did. Both policies then serve the same requests, so that they differ by the
policy alone; how near the first comes to what really happened is shown beside them.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from math import exp, log
from uuid import UUID

from msgspec.structs import replace

from schemas.base import HOUR_SECONDS
from schemas.gpus.gpu_request import WHOLE
from schemas.scheduler.policy import NamespaceOutcome, PolicyOutcome, TriedPolicy
from services.scheduler.domain.advice.recorded_requests import History
from services.scheduler.domain.model.demand import DemandClass
from services.scheduler.domain.model.fleet import Device
from services.scheduler.domain.model.inputs import (
    DemandSeen,
    DeviceGone,
    DeviceSeen,
    Input,
    Lease,
    LeaseEnded,
    LeaseHeld,
    NodeGone,
    RequestEnded,
    RequestQueued,
    UseSeen,
)
from services.scheduler.domain.model.namespaces import Held, Use
from services.scheduler.domain.placement.decisions import Grant, Preempt, Rejection, TimeOut
from services.scheduler.domain.placement.density import class_of, demand_of
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine


def serve(history: History, policy: Policy) -> PolicyOutcome:
    """The history under a policy."""
    return _Trial(history, policy).run()


@dataclass(slots=True)
class _TrialHolding:
    numbers: tuple[int, ...]
    amount: Held
    namespace: str
    since: datetime

    @property
    def hundredths(self) -> int:
        return self.amount.hundredths


class _Trial:
    def __init__(self, history: History, policy: Policy) -> None:
        self._history = history
        self._engine = DecisionEngine(policy)
        self._events: list[tuple[datetime, int, Input]] = []
        self._order = count()
        self._demands = {demand.entry.reservation_id: demand for demand in history.demands}
        self._held: dict[UUID, _TrialHolding] = {}
        self._devices: dict[int, Device] = {}
        self._waits: dict[UUID, float] = {}
        self._gpu_seconds: defaultdict[str, float] = defaultdict(float)
        self._preempted = 0
        self._classes: Counter[DemandClass] = Counter()
        self._over: set[UUID] = set()
        self._meter = _Meter(history.start_at)
        self._use = _DecayedUse(history.start_at, policy.use_half_life_seconds / log(2))
        for at, change in history.changes:
            self._push(at, change)
        for lease, seconds in history.leases:
            self._push(history.start_at, LeaseHeld(lease=lease))
            if seconds is not None:
                ends_at = history.start_at + timedelta(seconds=seconds)
                self._push(ends_at, LeaseEnded(reservation_id=lease.reservation_id))
        for demand in history.demands:
            self._push(demand.at, RequestQueued(entry=demand.entry))
            if demand.withdrawn_at is not None:
                ended = RequestEnded(reservation_id=demand.entry.reservation_id)
                self._push(demand.withdrawn_at, ended)

    def run(self) -> PolicyOutcome:
        end_at = self._history.end_at
        now: datetime | None = self._history.start_at
        while now is not None and now <= end_at:
            self._meter.count_until(now, self._held.values(), self._devices)
            self._use.count_until(now, self._held.values())
            while self._events and self._events[0][0] <= now:
                self._apply(heapq.heappop(self._events)[2], now)
            if self._engine.is_contended:
                self._engine.apply(UseSeen(use=self._use.use_at()))
            self._decide(now)
            due = self._engine.next_decision_at(now)
            upcoming = [self._events[0][0]] if self._events else []
            upcoming += [due] if due is not None and due > now else []
            now = min(upcoming, default=None)
        self._meter.count_until(end_at, self._held.values(), self._devices)
        for holding in self._held.values():
            self._end(holding, end_at)
        return self._outcome()

    def _push(self, at: datetime, change: Input) -> None:
        heapq.heappush(self._events, (at, next(self._order), change))

    def _apply(self, change: Input, now: datetime) -> None:
        match change:
            case DeviceSeen(device=device):
                self._devices[device.number] = device
            case DeviceGone(number=number):
                self._devices.pop(number, None)
            case NodeGone(node_id=node_id):
                gone = [n for n, device in self._devices.items() if device.node_id == node_id]
                for number in gone:
                    del self._devices[number]
            case LeaseHeld(lease=lease):
                self._held[lease.reservation_id] = _TrialHolding(
                    lease.numbers, lease.held, lease.namespace, now
                )
            case LeaseEnded(reservation_id=reservation_id):
                holding = self._held.pop(reservation_id, None)
                if holding is None:
                    return
                self._end(holding, now)
            case RequestQueued(entry=entry) if self._engine.policy.density:
                self._classes[class_of(entry.request)] += 1
                self._engine.apply(DemandSeen(demand=demand_of(self._classes)))
            case _:
                pass
        self._engine.apply(change)

    def _decide(self, now: datetime) -> None:
        for decision in self._engine.decide(now, explain=False):
            match decision:
                case Grant(reservation_id=reservation_id, placed=placed):
                    demand = self._demands[reservation_id]
                    self._waits[reservation_id] = max(0.0, (now - demand.at).total_seconds())
                    lease = Lease(
                        reservation_id=reservation_id,
                        request=demand.entry.request,
                        numbers=tuple(placed.numbers),
                        parts=tuple(placed.parts.values()),
                        granted_at=now,
                    )
                    self._held[reservation_id] = _TrialHolding(
                        lease.numbers, lease.held, demand.entry.namespace, now
                    )
                    seconds = demand.held_seconds
                    if seconds is None:
                        seconds = demand.entry.request.expected_duration_seconds
                    if seconds is not None:
                        ends_at = now + timedelta(seconds=seconds)
                        self._push(ends_at, LeaseEnded(reservation_id=reservation_id))
                case Preempt(reservation_id=reservation_id, until_at=until_at):
                    self._preempted += 1
                    self._push(until_at, LeaseEnded(reservation_id=reservation_id))
                case (
                    Rejection(reservation_id=reservation_id)
                    | TimeOut(reservation_id=reservation_id)
                ):
                    self._over.add(reservation_id)

    def _end(self, holding: _TrialHolding, now: datetime) -> None:
        seconds = max(0.0, (now - holding.since).total_seconds())
        self._gpu_seconds[holding.namespace] += seconds * holding.hundredths / WHOLE

    def _outcome(self) -> PolicyOutcome:
        waits = [self._waits[demand_id] for demand_id in self._demands if demand_id in self._waits]
        withdrawn = {
            demand_id
            for demand_id, demand in self._demands.items()
            if demand.withdrawn_at is not None
        }
        never_granted = self._demands.keys() - self._waits.keys() - self._over - withdrawn
        return PolicyOutcome(
            requests=len(self._demands),
            granted=len(waits),
            waiting=len(never_granted),
            preempted=self._preempted,
            p50_seconds=quantile(waits, 0.5),
            p95_seconds=quantile(waits, 0.95),
            used_percent=100 * self._meter.used,
            packed_percent=100 * self._meter.packed,
            namespaces=tuple(self._namespaces()),
        )

    def _namespaces(self) -> Iterator[NamespaceOutcome]:
        ids: defaultdict[str, list[UUID]] = defaultdict(list)
        for reservation_id, demand in self._demands.items():
            ids[demand.entry.namespace].append(reservation_id)
        for namespace in sorted(ids.keys() | self._gpu_seconds.keys()):
            waits = [
                self._waits[demand_id] for demand_id in ids[namespace] if demand_id in self._waits
            ]
            yield NamespaceOutcome(
                namespace=namespace or None,
                requests=len(ids[namespace]),
                granted=len(waits),
                gpu_hours=self._gpu_seconds.get(namespace, 0.0) / HOUR_SECONDS,
                p50_seconds=quantile(waits, 0.5),
                p95_seconds=quantile(waits, 0.95),
            )


@dataclass(slots=True)
class _DecayedUse:
    """What namespaces hold, each second of it forgotten with `decay_seconds`."""

    at: datetime
    decay_seconds: float
    by_namespace: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    def count_until(self, now: datetime, holdings: Iterable[_TrialHolding]) -> None:
        kept = exp(-(now - self.at).total_seconds() / self.decay_seconds)
        self.at = now
        decayed = {
            name: (kept * hundredths, kept * two, kept * three)
            for name, (hundredths, two, three) in self.by_namespace.items()
        }
        gained = (1 - kept) * self.decay_seconds
        for holding in holdings:
            hundredths, two, three = decayed.get(holding.namespace, (0.0, 0.0, 0.0))
            decayed[holding.namespace] = (
                hundredths + gained * holding.amount.hundredths,
                two + gained * holding.amount.cpu_milli,
                three + gained * holding.amount.memory_mb,
            )
        self.by_namespace = decayed

    def use_at(self) -> Use:
        return Use(
            window_seconds=max(1, round(self.decay_seconds)),
            by_namespace={
                name: Held(
                    hundredths=round(hundredths), cpu_milli=round(two), memory_mb=round(three)
                )
                for name, (hundredths, two, three) in self.by_namespace.items()
            },
        )


@dataclass(slots=True)
class _Meter:
    """Sums GPU time as it passes."""

    at: datetime
    held_hundredths: float = 0.0
    fleet: float = 0.0
    opened: float = 0.0

    def count_until(
        self, now: datetime, holdings: Iterable[_TrialHolding], devices: Mapping[int, Device]
    ) -> None:
        seconds = (now - self.at).total_seconds()
        self.at = now
        sizes: defaultdict[str, int] = defaultdict(int)
        for device in devices.values():
            sizes[device.node_id] += 1
        opened: set[str] = set()
        for holding in holdings:
            self.held_hundredths += seconds * holding.hundredths / WHOLE
            opened |= {devices[n].node_id for n in holding.numbers if n in devices}
        self.fleet += seconds * len(devices)
        self.opened += seconds * sum(sizes[node_id] for node_id in opened)

    @property
    def used(self) -> float:
        return self.held_hundredths / self.fleet if self.fleet else 0.0

    @property
    def packed(self) -> float:
        return self.held_hundredths / self.opened if self.opened else 0.0


def quantile(values: Iterable[float], q: float) -> float | None:
    """The smallest value that at least `q` of them, less than 1, do not exceed; None of none."""
    ordered = sorted(values)
    return ordered[int(q * len(ordered))] if ordered else None


def policy_of(name: TriedPolicy, present: Policy) -> Policy:
    """The present policy with what is tried instead."""
    match name:
        case TriedPolicy.DENSITY:
            return replace(present, density=True)
        case TriedPolicy.NO_DENSITY:
            return replace(present, density=False)
        case TriedPolicy.NO_PREEMPTION:
            return replace(present, preemption=False)
        case TriedPolicy.NO_AGING:
            return replace(present, aging_seconds=0.0)
