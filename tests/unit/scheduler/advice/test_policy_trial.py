"""Recorded requests served again under another policy."""

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.policy import TriedPolicy
from services.scheduler.domain.advice.policy_trial import policy_of, serve
from services.scheduler.domain.advice.recorded_requests import (
    list_unknowns,
    list_waits,
    read_history,
)
from services.scheduler.domain.advice.replay import RecordedCycle
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    Input,
    LeaseEnded,
    NodeGone,
    RequestEnded,
    RequestQueued,
)
from services.scheduler.domain.placement.decisions import Grant
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, hold, make_device, make_engine, make_queued


class Recorder:
    """A scheduler's engine and its log; `at` counts minutes."""

    def __init__(self, engine: DecisionEngine) -> None:
        self.engine = engine
        self.cycles: list[RecordedCycle] = []
        self.ended_at: dict[UUID, datetime] = {}
        self.waiting: list[Input] = list(engine.state())
        self.devices = {
            one.device.number: one.device for one in self.waiting if isinstance(one, DeviceSeen)
        }
        self.numbers: dict[UUID, tuple[int, ...]] = {}

    def decide(self, at: float, *inputs: Input) -> list[Grant]:
        now = NOW + timedelta(minutes=at)
        self.engine.apply(*inputs)
        self.waiting += inputs
        outcomes = self.engine.decide(now)
        grants = [each for each in outcomes if isinstance(each, Grant)]
        self.numbers |= {each.reservation_id: tuple(each.placed.numbers) for each in grants}
        if outcomes:
            self.cycles.append(
                RecordedCycle(
                    decision_id=len(self.cycles) + 1,
                    decided_at=now,
                    keyframe=not self.cycles,
                    inputs=tuple(self.waiting),
                    outcomes=outcomes,
                )
            )
            self.waiting = []
        return grants

    def queue(self, at: float, number: int, namespace: str = "a", **request: Any) -> list[Grant]:
        entry = make_queued(
            number,
            GpuRequest(**request),
            queued_at=NOW + timedelta(minutes=at),
            wait_deadline_at=NOW + timedelta(days=30),
            namespace=namespace,
        )
        return self.decide(at, RequestQueued(entry=entry))

    def end(self, at: float, number: int) -> list[Grant]:
        one = UUID(int=number)
        self.ended_at[one] = NOW + timedelta(minutes=at)
        idle = (DeviceSeen(device=self.devices[n]) for n in self.numbers[one])
        return self.decide(at, LeaseEnded(reservation_id=one), *idle)


def two_nodes(gpus: int = 2) -> Recorder:
    devices = [
        make_device(n, node_id="alpha" if n < gpus else "beta", index=n) for n in range(2 * gpus)
    ]
    return Recorder(make_engine(*devices))


def drawn(seed: int) -> Recorder:
    """Requests that come at random and hold for as long as they say."""
    draw, recorder = random.Random(seed), two_nodes(4)
    events: list[tuple[float, int]] = sorted((draw.uniform(0, 600), n + 1) for n in range(120))
    ends: list[tuple[float, int]] = []
    holds = {number: draw.uniform(5, 60) for _, number in events}

    def note(grants: list[Grant], at: float) -> None:
        ends.extend(
            (at + holds[each.reservation_id.int], each.reservation_id.int) for each in grants
        )

    def end_until(at: float) -> Iterator[tuple[float, int]]:
        while ends and min(ends)[0] <= at:
            ends.remove(found := min(ends))
            yield found

    for at, number in [*events, (2000.0, 0)]:
        for ended_at, one in end_until(at):
            note(recorder.end(ended_at, one), ended_at)
        if number:
            note(recorder.queue(at, number, gpus=draw.choice([1, 1, 2, 4])), at)
    recorder.queue(2000.0, 999)
    return recorder


def longest_waits(recorder: Recorder, policy: Policy) -> dict[str | None, float]:
    """In minutes, by namespace."""
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None
    outcome = serve(history, policy)
    return {each.namespace: round((each.p95_seconds or 0) / 60, 6) for each in outcome.namespaces}


@pytest.mark.parametrize("seed", range(4))
def test_trial_of_same_policy_repeats_the_past(seed: int) -> None:
    recorder = drawn(seed)

    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None
    outcome = serve(history, Policy())

    recorded = list_waits(history)
    assert outcome.granted == len(recorded) == 121
    assert outcome.p95_seconds == pytest.approx(sorted(recorded)[int(0.95 * 121)], abs=1.0)
    assert 0 < outcome.used_percent < outcome.packed_percent <= 100


def test_recorded_lease_ends_when_it_ended() -> None:
    recorder = two_nodes()
    recorder.queue(0, 1, gpus=2)
    recorder.end(5, 1)
    recorder.queue(60, 2)

    history = read_history(recorder.cycles, recorder.ended_at)

    assert history is not None
    assert history.demands[0].held_seconds == 5 * 60
    outcome = serve(history, Policy())
    assert outcome.used_percent == pytest.approx(100 * 2 * 5 / (4 * 60))


def test_first_recorded_holdings_last_to_their_end() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1, namespace="before", preempting_until=NOW)
    recorder = Recorder(engine)
    recorder.queue(0, 1, namespace="after")
    recorder.ended_at[UUID(int=90)] = NOW + timedelta(minutes=10)
    idle = DeviceSeen(device=make_device(1))
    recorder.decide(10, LeaseEnded(reservation_id=UUID(int=90)), idle)
    recorder.queue(20, 2, namespace="after")

    history = read_history(recorder.cycles, recorder.ended_at)

    assert history is not None
    ((lease, seconds),) = history.leases
    assert (lease.reservation_id.int, lease.preempting_until, seconds) == (90, None, 600.0)
    outcome = serve(history, Policy())
    assert outcome.used_percent == pytest.approx(100 * (10 + 20) / (2 * 20))
    hours = {each.namespace: each.gpu_hours for each in outcome.namespaces}
    assert hours == {"before": pytest.approx(10 / 60), "after": pytest.approx(20 / 60)}


def test_another_policy_differs_by_the_policy_alone() -> None:
    """One waits for long; by aging it comes before a later one of higher priority, else after."""
    recorder = two_nodes(1)
    recorder.queue(0, 1)
    recorder.queue(0, 2)
    recorder.queue(1, 3, namespace="patient")
    high = make_queued(
        4,
        GpuRequest(priority=5),
        queued_at=NOW + timedelta(minutes=30),
        wait_deadline_at=NOW + timedelta(days=30),
        namespace="late",
    )
    recorder.decide(30, RequestQueued(entry=high))
    recorder.end(40, 1)
    recorder.end(50, 2)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    present = serve(history, Policy())
    tried = serve(history, policy_of(TriedPolicy.NO_AGING, Policy()))

    def waits(outcome: object) -> dict[str | None, float | None]:
        return {each.namespace: each.p50_seconds for each in outcome.namespaces}  # type: ignore[attr-defined]

    assert (waits(present)["patient"], waits(present)["late"]) == (39 * 60, 20 * 60)
    assert (waits(tried)["patient"], waits(tried)["late"]) == (49 * 60, 10 * 60)


def test_trial_turns_follow_its_own_grants() -> None:
    """One namespace holds both GPUs; what is free first goes to the other's, though it is later."""
    recorder = two_nodes(1)
    recorder.queue(0, 1, namespace="much")
    recorder.queue(0, 2, namespace="much")
    recorder.queue(1, 3, namespace="much")
    recorder.queue(1.2, 4, namespace="little")
    recorder.end(30, 1)
    recorder.end(50, 2)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    outcome = serve(history, Policy())

    waited = {each.namespace: each.p95_seconds for each in outcome.namespaces}
    assert waited == {"little": pytest.approx(28.8 * 60), "much": pytest.approx(49 * 60)}


@pytest.mark.parametrize(
    "much",
    [{"host_memory_mb": 900}, {"cpu_count": 9.0}, {"gpus": 2}],
    ids=["memory", "CPUs", "GPUs"],
)
def test_who_had_most_of_anything_comes_last(much: dict[str, Any]) -> None:
    """Of two that held something for as long, and ask for all: though it asked first."""
    node = Node(node_id="alpha", cpu_count=10.0, memory_total_mb=1000)
    recorder = Recorder(make_engine(*(make_device(n) for n in range(4)), nodes=(node,)))
    recorder.queue(0, 1, "much", **much)
    recorder.queue(0, 2, "little")
    recorder.queue(0, 3, "other")
    recorder.queue(1, 4, "much", gpus=4)
    recorder.queue(1.2, 5, "little", gpus=4)
    for at, number in ((30, 1), (30, 2), (40, 3), (50, 4), (60, 5)):
        recorder.end(at, number)
    recorder.queue(70, 6)

    assert longest_waits(recorder, Policy()) == {"much": 49.0, "little": 38.8, "other": 0, "a": 0}


def test_use_is_measured_in_time() -> None:
    """One held the GPU for 30 min, the other for 10, in which many others were turned away."""
    recorder = Recorder(make_engine(make_device(1)))
    recorder.queue(0, 1, "long")
    recorder.queue(2, 2, "short")
    recorder.queue(3, 3, "long")
    recorder.queue(4, 4, "short")
    recorder.end(30, 1)
    for number in range(10, 18):
        recorder.queue(31 + number / 10, number, gpus=9)
    for at, number in ((40, 2), (45, 3), (50, 4)):
        recorder.end(at, number)
    recorder.queue(60, 5)

    assert longest_waits(recorder, Policy()) == {"long": 42.0, "short": 36.0, "a": 0}


def test_present_holder_follows_longer_past_one() -> None:
    recorder = two_nodes(1)
    recorder.queue(0, 1, "before")
    recorder.queue(0, 2, "other")
    recorder.queue(1, 3, "now")
    recorder.queue(2, 4, "now")
    recorder.queue(3, 5, "before")
    for at, number in ((30, 1), (40, 2), (45, 5), (50, 4), (60, 3)):
        recorder.end(at, number)
    recorder.queue(70, 6)

    assert longest_waits(recorder, Policy()) == {"before": 37.0, "now": 43.0, "other": 0, "a": 0}


def test_density_trial_learns_its_own_demand() -> None:
    """Both nodes are empty, and one of them is what most others insist on."""
    recorder = Recorder(
        make_engine(
            *(make_device(n, node_id="alpha", name="NVIDIA L4") for n in (1, 2)),
            *(make_device(n, node_id="beta") for n in (3, 4)),
        )
    )
    for number in range(1, 9):
        recorder.queue(number, number, "insists", gpu_models=("L4",))
        recorder.end(number + 0.5, number)
    recorder.queue(20, 20, "any")
    recorder.queue(21, 21, "insists", gpus=2, gpu_models=("L4",))
    recorder.end(30, 20)
    recorder.end(40, 21)
    recorder.queue(50, 22)

    tried = longest_waits(recorder, policy_of(TriedPolicy.DENSITY, Policy()))

    assert longest_waits(recorder, Policy())["insists"] == 9.0
    assert tried["insists"] == 0.0


def test_removed_node_leaves_the_trial() -> None:
    recorder = two_nodes()
    (grant,) = recorder.queue(0, 1)
    gone = "alpha" if grant.placed.node_id == "beta" else "beta"
    recorder.decide(30, NodeGone(node_id=gone))
    recorder.queue(30, 2, gpus=9)
    recorder.queue(60, 3, gpus=9)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    outcome = serve(history, Policy())

    assert outcome.used_percent == pytest.approx(100 * 60 / (4 * 30 + 2 * 30))
    assert outcome.packed_percent == pytest.approx(50)


@pytest.mark.parametrize("until", [0, 60], ids=["at once", "for an hour"])
def test_where_nothing_is_held_nothing_is_used(until: int) -> None:
    recorder = two_nodes()
    recorder.queue(0, 1, gpus=9)
    recorder.queue(until, 2, gpus=9)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    outcome = serve(history, Policy())

    assert (outcome.granted, outcome.used_percent, outcome.packed_percent) == (0, 0.0, 0.0)


def test_withdrawn_request_is_withdrawn_in_trials() -> None:
    recorder = two_nodes(1)
    recorder.queue(0, 1)
    recorder.queue(0, 2)
    recorder.queue(1, 3)
    recorder.ended_at[UUID(int=3)] = NOW + timedelta(minutes=2)
    recorder.decide(2, RequestEnded(reservation_id=UUID(int=3)))
    recorder.end(5, 1)
    recorder.queue(6, 4)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    outcome = serve(history, policy_of(TriedPolicy.DENSITY, Policy()))

    assert (outcome.requests, outcome.granted, outcome.waiting) == (4, 3, 0)


def test_trial_counts_preempted_and_their_grace() -> None:
    recorder = Recorder(make_engine(make_device(1), preemption_grace_seconds=60.0))
    recorder.queue(0, 1, "cheap", preemptible=True)
    recorder.queue(10, 2, "urgent", priority=10)
    recorder.end(13, 1)
    recorder.end(20, 2)
    recorder.queue(30, 3)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    outcome = serve(history, Policy(preemption_grace_seconds=60.0))

    assert (outcome.preempted, outcome.granted) == (1, 3)
    hours = {each.namespace: each.gpu_hours for each in outcome.namespaces}
    assert hours["cheap"] == pytest.approx(11 / 60)


def test_a_history_says_what_it_knows_nothing_of() -> None:
    recorder = two_nodes()
    recorder.queue(0, 1)
    history = read_history(recorder.cycles, recorder.ended_at)
    assert history is not None

    assert any("1 of 1 requests" in sentence for sentence in list_unknowns(history))


def test_without_a_keyframe_there_is_no_history() -> None:
    assert read_history([], {}) is None
