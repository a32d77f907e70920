"""Turns of namespaces: who has used least is served first, and nobody is punished for ever."""

import heapq
from collections import Counter
from datetime import datetime, timedelta
from math import exp, log
from uuid import UUID

import msgspec
import pytest

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    Input,
    LeaseEnded,
    NodeSeen,
    QuotaSet,
    RequestQueued,
    UseSeen,
)
from services.scheduler.domain.model.namespaces import Held, Quota, Use
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, make_device, make_queued

GPUS = 16
HOUR = 3600
HALF_LIFE = 3600.0


class Cluster:
    """Simulated seconds of one node of GPUs and of namespaces that ask for them."""

    def __init__(self, gpus: int = GPUS) -> None:
        self.engine = DecisionEngine()
        self.engine.apply(NodeSeen(node=Node(node_id="alpha")), FleetComplete(complete=True))
        self.engine.apply(*(DeviceSeen(device=make_device(n)) for n in range(1, gpus + 1)))
        self.second = 0
        self.held: list[tuple[str, float, int, int]] = []  # namespace, GPUs, from, until
        self._waiting: dict[UUID, tuple[str, float, int]] = {}
        self._ends: list[tuple[int, UUID]] = []

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.second)

    def weigh(self, namespace: str, weight: int) -> None:
        self.engine.apply(QuotaSet(quota=Quota(namespace=namespace, weight=weight)))

    def ask(self, namespace: str, seconds: int, *, gpus: float = 1, priority: int = 0) -> UUID:
        number = len(self.held) + len(self._waiting) + 1
        size = {"gpus": int(gpus)} if gpus >= 1 else {"shares": gpus}
        request = GpuRequest(priority=priority, expected_duration_seconds=float(seconds), **size)
        entry = make_queued(
            number,
            request,
            namespace=namespace,
            queued_at=self.now,
            wait_deadline_at=NOW + timedelta(days=7),
        )
        self.engine.apply(RequestQueued(entry=entry))
        self._waiting[entry.reservation_id] = (namespace, gpus, seconds)
        return entry.reservation_id

    def decide(self) -> list[str]:
        """The namespaces of what is granted now, in order."""
        granted = []
        for decision in self.engine.decide(self.now):
            assert isinstance(decision, Grant)
            namespace, gpus, seconds = self._waiting.pop(decision.reservation_id)
            self.held.append((namespace, gpus, self.second, self.second + seconds))
            heapq.heappush(self._ends, (self.second + seconds, decision.reservation_id))
            granted.append(namespace)
        return granted

    def go_on(self, until: int, backlog: dict[str, tuple[int, int]] | None = None) -> None:
        """Up to that second; so many requests of so many seconds of each namespace always wait."""
        while self.second < until:
            for namespace, (seconds, requests) in (backlog or {}).items():
                waits = Counter(name for name, _, _ in self._waiting.values())
                for _ in range(requests - waits[namespace]):
                    self.ask(namespace, seconds)
            self.decide()
            next_end = self._ends[0][0] if self._ends else until
            tick = (self.second // 60 + 1) * 60
            self.second = min(next_end, tick, until)
            if self.second == tick:
                self.engine.apply(UseSeen(use=self.use()))
            while self._ends and self._ends[0][0] <= self.second:
                _, over = heapq.heappop(self._ends)
                self.engine.apply(LeaseEnded(reservation_id=over))

    def use(self) -> Use:
        """As the ledger learns it."""
        decay = HALF_LIFE / log(2)
        found: dict[str, float] = {}
        for namespace, gpus, since, until in self.held:
            end = min(until, self.second)
            seconds = exp((end - self.second) / decay) - exp((since - self.second) / decay)
            found[namespace] = found.get(namespace, 0.0) + 100 * gpus * decay * seconds
        return Use(
            window_seconds=round(decay),
            by_namespace={name: Held(hundredths=round(amount)) for name, amount in found.items()},
        )

    def gpu_hours(self, since: int, until: int) -> dict[str, float]:
        """What each held between two seconds."""
        found: dict[str, float] = {}
        for namespace, gpus, begin, end in self.held:
            seconds = max(0, min(end, until) - max(begin, since))
            found[namespace] = found.get(namespace, 0.0) + gpus * seconds / HOUR
        return found


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param((300, 300), id="alike"),
        pytest.param((30, 450), id="short and long"),
        pytest.param((60, 90), id="often and less often", marks=pytest.mark.long),
    ],
)
def test_equal_weights_share_each_hour_equally(
    seconds: tuple[int, int],
) -> None:
    cluster = Cluster()
    cluster.go_on(2 * HOUR, {"a": (seconds[0], 20), "b": (seconds[1], 20)})
    for begin in range(0, HOUR + 1, 900):
        hours = cluster.gpu_hours(begin, begin + HOUR)
        assert hours["a"] == pytest.approx(hours["b"], rel=0.05), (begin, hours)


def test_triple_weight_gets_triple_use() -> None:
    cluster = Cluster()
    cluster.weigh("a", 3)
    cluster.go_on(HOUR, {"a": (60, 20), "b": (60, 20)})
    hours = cluster.gpu_hours(0, HOUR)
    assert hours["a"] / hours["b"] == pytest.approx(3, rel=0.05)


def test_a_long_queue_is_no_claim() -> None:
    cluster = Cluster(gpus=4)
    for _ in range(20):
        cluster.ask("a", 600)
    cluster.second = 1
    for _ in range(2):
        cluster.ask("b", 600)
    assert sorted(cluster.decide()) == ["a", "a", "b", "b"]


def test_priority_beats_use_and_waiting_beats_both() -> None:
    cluster = Cluster(gpus=1)
    cluster.go_on(1, {})
    cluster.ask("a", 60, priority=2)
    cluster.ask("b", 60)
    assert cluster.decide() == ["a"]
    cluster.go_on(600, {})
    assert [name for name, *_ in cluster.held] == ["a", "b"]
    later = Cluster(gpus=1)
    later.ask("c", 300)
    later.decide()
    later.ask("b", 60)
    later.second = 299
    later.ask("a", 60, priority=2)
    later.go_on(1000, {})
    assert [name for name, *_ in later.held] == ["c", "b", "a"]


def test_a_burst_is_forgotten() -> None:
    """After an hour alone it gets less for a while, and as much as the other some hours later."""
    cluster = Cluster()
    cluster.go_on(HOUR, {"bursty": (300, 20)})
    both = {"bursty": (300, 20), "steady": (300, 20)}
    cluster.go_on(6 * HOUR, both)
    first, last = cluster.gpu_hours(HOUR, 2 * HOUR), cluster.gpu_hours(5 * HOUR, 6 * HOUR)
    assert 0.15 < first["bursty"] / first["steady"] < 1
    assert last["bursty"] == pytest.approx(last["steady"], rel=0.05)


def test_quarter_shares_cost_a_quarter_each() -> None:
    cluster = Cluster(gpus=1)
    for _ in range(4):
        cluster.ask("a", HOUR, gpus=0.25)
    cluster.decide()
    whole = Cluster(gpus=1)
    whole.ask("a", HOUR)
    whole.decide()
    cluster.second = whole.second = HOUR
    assert cluster.gpu_hours(0, HOUR) == {"a": 1.0}
    assert cluster.use() == whole.use()


def test_the_resource_of_which_one_holds_most_counts() -> None:
    engine = DecisionEngine()
    engine.apply(
        NodeSeen(node=Node(node_id="alpha", cpu_count=100.0)), FleetComplete(complete=True)
    )
    engine.apply(*(DeviceSeen(device=make_device(n)) for n in range(1, 5)))
    engine.apply(RequestQueued(entry=make_queued(1, GpuRequest(cpu_count=60.0), namespace="a")))
    engine.apply(RequestQueued(entry=make_queued(2, GpuRequest(gpus=2), namespace="b")))
    engine.decide(NOW)
    engine.apply(RequestQueued(entry=make_queued(3, namespace="a")))
    engine.apply(RequestQueued(entry=make_queued(4, namespace="b")))
    [decision] = engine.decide(NOW)
    assert decision.reservation_id == UUID(int=4)


def test_single_namespace_is_served_by_age() -> None:
    alone, named = DecisionEngine(), DecisionEngine()
    used = UseSeen(use=Use(by_namespace={"a": Held(hundredths=10_000)}))
    for engine, namespace in ((alone, ""), (named, "a")):
        engine.apply(NodeSeen(node=Node(node_id="alpha")), used)
        engine.apply(DeviceSeen(device=make_device(1)))
        for number, priority in ((1, 0), (2, 5), (3, 0), (4, 1)):
            request = GpuRequest(priority=priority)
            engine.apply(RequestQueued(entry=make_queued(number, request, namespace=namespace)))
    order = [[entry.arrival for entry in engine.waiting] for engine in (alone, named)]
    assert order == [[2, 4, 1, 3], [2, 4, 1, 3]]
    assert alone.decide(NOW) == named.decide(NOW)


def test_rebuilt_engine_knows_past_use() -> None:
    cluster = Cluster(gpus=1)
    cluster.engine.apply(UseSeen(use=Use(by_namespace={"a": Held(hundredths=500)})))
    cluster.ask("a", 60)
    cluster.ask("b", 60)
    recorded = msgspec.json.encode(cluster.engine.state())
    again = DecisionEngine()
    again.apply(*msgspec.json.decode(recorded, type=tuple[Input, ...]))
    assert [entry.namespace for entry in again.waiting] == ["b", "a"]
    assert again.decide(NOW) == cluster.engine.decide(NOW)
