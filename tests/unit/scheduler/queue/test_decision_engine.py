"""The engine's turns: what is granted, what waits, and that a turn can be repeated."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from msgspec import json

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.advice.replay import RecordedCycle, replay_cycles
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import (
    DeviceGone,
    DeviceSeen,
    FleetComplete,
    Input,
    LeaseEnded,
    RequestEnded,
    RequestQueued,
)
from services.scheduler.domain.placement.decisions import Grant, Preempt, Rejection, TimeOut
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import (
    NOW,
    hold,
    make_device,
    make_engine,
    make_queued,
    queue,
    reasons,
    would_grant,
)


def test_request_is_granted_once_until_lease_ends() -> None:
    engine = make_engine(make_device(1))
    first, second = queue(engine, 1), queue(engine, 2)

    (granted,) = engine.decide(NOW)
    assert engine.decide(NOW) == ()
    assert {reason.code for reason in reasons(engine, second, NOW)} >= {ReasonCode.HELD}
    engine.apply(LeaseEnded(reservation_id=first))
    (next_granted,) = engine.decide(NOW)

    assert isinstance(granted, Grant)
    assert granted.reservation_id == first
    assert granted.placed.numbers == {1}
    assert isinstance(next_granted, Grant)
    assert next_granted.reservation_id == second
    assert engine.queue_length == 0


def test_device_told_free_stays_with_its_lease() -> None:
    engine = make_engine(make_device(1))
    hold(engine, 9, 1)
    engine.apply(DeviceSeen(device=make_device(1, holder=None)))
    queue(engine, 1)

    assert engine.decide(NOW) == ()


def test_a_quarantined_device_outlives_its_lease() -> None:
    engine = make_engine(make_device(1))
    holder = hold(engine, 9, 1)
    engine.apply(DeviceSeen(device=make_device(1, holder=holder, quarantined=True)))
    engine.apply(LeaseEnded(reservation_id=holder))
    queue(engine, 1)

    assert engine.decide(NOW) == ()
    engine.apply(DeviceSeen(device=make_device(1)))
    assert len(engine.decide(NOW)) == 1


def test_quarantined_device_names_ended_holder() -> None:
    engine = make_engine(make_device(1))
    holder = hold(engine, 9, 1, 2)  # device 2 was never reported
    engine.apply(DeviceSeen(device=make_device(1, holder=holder, quarantined=True)))

    engine.apply(LeaseEnded(reservation_id=holder))

    assert [device.holder for device in engine.fleet.nodes["alpha"]] == [holder]


def test_a_gang_gets_all_its_nodes_or_none() -> None:
    engine = make_engine(make_device(1), make_device(2, node_id="beta"))
    holder = hold(engine, 9, 2)
    gang = queue(engine, 1, GpuRequest(nodes=2))

    assert engine.decide(NOW) == ()
    engine.apply(LeaseEnded(reservation_id=holder))
    (granted,) = engine.decide(NOW)

    assert isinstance(granted, Grant)
    assert granted.reservation_id == gang
    assert granted.placed.node_ids == ("alpha", "beta")
    assert granted.placed.numbers == {1, 2}


def test_cpus_and_host_memory_are_held_with_the_gpus() -> None:
    node = Node(node_id="alpha", cpu_count=8, memory_total_mb=1000)
    engine = make_engine(make_device(1), make_device(2), nodes=(node,))
    first = queue(engine, 1, GpuRequest(cpu_count=6, host_memory_mb=600))
    second = queue(engine, 2, GpuRequest(cpu_count=3))

    assert [d.reservation_id for d in engine.decide(NOW)] == [first]
    engine.apply(LeaseEnded(reservation_id=first))
    assert [d.reservation_id for d in engine.decide(NOW)] == [second]


def test_impossible_rejected_and_overdue_timed_out() -> None:
    engine = make_engine(make_device(1, holder=UUID(int=9)))
    queue(engine, 1, GpuRequest(gpus=2))
    queue(engine, 2, wait_deadline_at=NOW + timedelta(seconds=5))

    (rejected,) = engine.decide(NOW)
    at = engine.next_decision_at(NOW)
    assert at == NOW + timedelta(seconds=5)
    (timed_out,) = engine.decide(at)

    assert isinstance(rejected, Rejection)
    assert rejected.reasons[0].code is ReasonCode.EXCEEDS_LARGEST_NODE
    assert isinstance(timed_out, TimeOut)
    assert ReasonCode.HELD in {reason.code for reason in timed_out.reasons}
    assert engine.next_decision_at(at) is None


def test_waiting_outweighs_priority_at_the_bound() -> None:
    engine = make_engine(make_device(1, holder=UUID(int=9)), aging_seconds=60.0)
    old = queue(engine, 1, queued_at=NOW)
    soon = queue(engine, 2, GpuRequest(priority=5), queued_at=NOW + timedelta(seconds=299))
    late = queue(engine, 3, GpuRequest(priority=5), queued_at=NOW + timedelta(seconds=301))

    assert [entry.reservation_id for entry in engine.waiting] == [soon, old, late]


def test_what_if_grants_nothing() -> None:
    engine = make_engine(make_device(1), make_device(2))
    before = engine.state()

    placed = would_grant(engine, GpuRequest(gpus=2), NOW)

    assert placed is not None
    assert placed.numbers == {1, 2}
    assert would_grant(engine, GpuRequest(gpus=3), NOW) is None
    assert engine.state() == before


def test_recorded_inputs_decide_the_same_again() -> None:
    node = Node(node_id="alpha", cpu_count=8)
    engine = make_engine(make_device(1), make_device(2), nodes=(node,))
    queue(engine, 1)
    engine.decide(NOW)
    written = json.encode(engine.state())
    changes = (
        RequestQueued(entry=make_queued(2, GpuRequest(gpus=2))),
        LeaseEnded(reservation_id=UUID(int=1)),
        RequestEnded(reservation_id=UUID(int=7)),
    )

    replayed = DecisionEngine(engine.policy)
    replayed.apply(*json.decode(written, type=tuple[Input, ...]))
    for each in (engine, replayed):
        each.apply(*changes)

    decided = engine.decide(NOW)
    assert len(decided) == 1
    assert json.encode(replayed.decide(NOW)) == json.encode(decided)
    assert replayed.state() == engine.state()


def test_devices_unselected_by_head_are_free() -> None:
    engine = make_engine(make_device(1, holder=UUID(int=99)), make_device(2))
    head = queue(engine, 1, GpuRequest(device_uuids=("GPU-1",)))
    other = queue(engine, 2)

    assert [decision.reservation_id for decision in engine.decide(NOW)] == [other]
    assert [entry.reservation_id for entry in engine.waiting] == [head]


def test_empty_fleet_rejects_once_settled() -> None:
    engine = DecisionEngine()
    queue(engine, 1)

    assert engine.decide(NOW) == ()
    assert [r.code for r in reasons(engine, UUID(int=1), NOW)] == [ReasonCode.NO_GPUS]
    engine.apply(FleetComplete(complete=True))
    (rejected,) = engine.decide(NOW)

    assert isinstance(rejected, Rejection)
    assert [reason.code for reason in rejected.reasons] == [ReasonCode.NO_GPUS]


def test_lost_device_rejects_what_fits_no_more() -> None:
    engine = make_engine(make_device(1, holder=UUID(int=99)), make_device(2))
    queue(engine, 1, GpuRequest(gpus=2))
    assert engine.decide(NOW) == ()

    engine.apply(DeviceGone(number=2))
    (rejected,) = engine.decide(NOW)

    assert isinstance(rejected, Rejection)
    assert rejected.reasons[0].code is ReasonCode.EXCEEDS_LARGEST_NODE


def test_balanced_gang_takes_similar_memory() -> None:
    free = {1: 80_000, 2: 50_000, 3: 78_000, 4: 49_000, 5: 48_000}
    engine = make_engine(
        *(make_device(n, node_id=f"node-{n}", free_mb=mb) for n, mb in free.items())
    )

    pair = would_grant(engine, GpuRequest(nodes=2, balanced_memory=True), NOW)
    trio = would_grant(engine, GpuRequest(nodes=3, balanced_memory=True), NOW)

    assert pair is not None
    assert pair.numbers == {1, 3}
    assert trio is not None
    assert trio.numbers == {2, 4, 5}
    assert would_grant(engine, GpuRequest(nodes=4, balanced_memory=True), NOW) is None


def test_equal_time_outs_share_one_explanation() -> None:
    engine = make_engine(make_device(1, holder=UUID(int=99)))
    for number in range(1, 2001):
        queue(engine, number, wait_deadline_at=NOW)

    timed_out = engine.decide(NOW)

    assert len(timed_out) == 2000
    reasons = {id(d.reasons) for d in timed_out if isinstance(d, TimeOut)}
    assert len(reasons) == 1


def test_due_preemption_is_not_the_next_moment() -> None:
    engine = make_engine(make_device(1), preemption_grace_seconds=30.0)
    hold(engine, 9, 1, request=GpuRequest(preemptible=True))
    deadline = NOW + timedelta(hours=1)
    queue(engine, 1, GpuRequest(priority=1), wait_deadline_at=deadline)
    until = NOW + timedelta(seconds=30)

    assert [type(decision) for decision in engine.decide(NOW)] == [Preempt]

    assert engine.next_decision_at(NOW) == until
    assert engine.next_decision_at(until) == deadline
    assert engine.next_decision_at(until + timedelta(seconds=1)) == deadline


def test_lease_end_is_next_moment_until_past() -> None:
    engine = make_engine(make_device(1))
    end, deadline = NOW + timedelta(seconds=30), NOW + timedelta(hours=1)
    hold(engine, 9, 1, expected_end_at=end)
    queue(engine, 1, wait_deadline_at=deadline)

    assert engine.next_decision_at(NOW) == end
    assert engine.next_decision_at(end) == deadline
    hold(engine, 9, 1, expected_end_at=end + timedelta(seconds=5))
    assert engine.next_decision_at(NOW) == end + timedelta(seconds=5)


def test_lease_that_lost_a_device_keeps_the_rest() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 9, 1, 2)
    hold(engine, 9, 1)
    queue(engine, 1)

    (granted,) = engine.decide(NOW)

    assert isinstance(granted, Grant)
    assert [scored.device.number for scored in granted.placed.devices] == [2]


def test_extended_lease_forgets_no_end() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 8, 1, expected_end_at=NOW + timedelta(seconds=10))
    queue(engine, 1, GpuRequest(gpus=2), wait_deadline_at=NOW + timedelta(hours=1))

    for seconds in range(20, 120):
        hold(engine, 9, 2, expected_end_at=NOW + timedelta(seconds=seconds))

    assert engine.next_decision_at(NOW) == NOW + timedelta(seconds=10)
    engine.decide(NOW + timedelta(seconds=10))
    assert engine.next_decision_at(NOW + timedelta(seconds=10)) == NOW + timedelta(seconds=119)


def test_replay_tells_difference_and_continues() -> None:
    engine = make_engine(make_device(1))
    queue(engine, 1)
    state = tuple(engine.state())
    outcomes = engine.decide(NOW)

    def cycle(decision_id: int, **changes: Any) -> RecordedCycle:
        whole: dict[str, Any] = {"keyframe": True, "inputs": state, "outcomes": outcomes}
        return RecordedCycle(decision_id=decision_id, decided_at=NOW, **whole | changes)

    nothing: dict[str, Any] = {"keyframe": False, "inputs": (), "outcomes": ()}
    replayed = replay_cycles(
        [
            cycle(1, **nothing),  # before any whole state
            cycle(2),
            cycle(3, **nothing),
            cycle(4, outcomes=()),
            cycle(5, **nothing),  # after a difference
            cycle(6),
        ],
        Policy(),
    )

    assert [(each.decision_id, each.is_same) for each in replayed] == [
        (2, True),
        (3, True),
        (4, False),
        (6, True),
    ]
