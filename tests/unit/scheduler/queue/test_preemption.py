"""Who has to stop for a request of higher priority."""

from datetime import timedelta
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from services.scheduler.domain.model.inputs import LeaseEnded, RequestEnded
from services.scheduler.domain.placement.decisions import Grant, Preempt
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, hold, make_device, make_engine, queue

URGENT = GpuRequest(priority=10)
CHEAP = GpuRequest(preemptible=True)


def victims(engine: DecisionEngine) -> list[int]:
    return [d.reservation_id.int for d in engine.decide(NOW) if isinstance(d, Preempt)]


def test_preempted_device_goes_to_its_preemptor() -> None:
    engine = make_engine(make_device(1), preemption_grace_seconds=15.0)
    victim = hold(engine, 90, 1, request=CHEAP)
    urgent = queue(engine, 1, URGENT)

    (preempt,) = engine.decide(NOW)
    latecomer = queue(engine, 2, GpuRequest(priority=9))
    assert engine.decide(NOW) == ()
    engine.apply(LeaseEnded(reservation_id=victim))
    (grant,) = engine.decide(NOW)

    assert isinstance(preempt, Preempt)
    assert preempt.reservation_id == victim
    assert preempt.for_reservation_id == urgent
    assert preempt.until_at == NOW + timedelta(seconds=15)
    assert isinstance(grant, Grant)
    assert grant.reservation_id == urgent
    assert [entry.reservation_id for entry in engine.waiting] == [latecomer]


@pytest.mark.parametrize(
    ("held", "asked"),
    [
        pytest.param(GpuRequest(), URGENT, id="not preemptible"),
        pytest.param(GpuRequest(preemptible=True, priority=10), URGENT, id="of the same priority"),
        pytest.param(CHEAP, GpuRequest(priority=10, gpu_models=("L4",)), id="of no use to it"),
    ],
)
def test_nobody_stops_who_is(held: GpuRequest, asked: GpuRequest) -> None:
    busy = make_device(2, node_id="beta", name="NVIDIA L4", holder=UUID(int=99))
    engine = make_engine(make_device(1), busy)
    hold(engine, 90, 1, request=held)
    queue(engine, 1, asked)

    assert victims(engine) == []


@pytest.mark.parametrize(
    ("gpus", "want"),
    [
        pytest.param(2, [70], id="one instead of two"),
        pytest.param(1, [84], id="the youngest"),
        pytest.param(3, [82, 83, 84], id="the youngest three"),
    ],
)
def test_the_fewest_stop_and_of_as_many_the_youngest(gpus: int, want: list[int]) -> None:
    devices = [make_device(n) for n in range(1, 5)]
    engine = make_engine(*devices, make_device(5, node_id="beta"), make_device(6, node_id="beta"))
    for number, device in ((81, 1), (82, 2), (83, 3), (84, 4)):
        hold(engine, number, device, request=CHEAP, granted_at=NOW + timedelta(seconds=number))
    hold(engine, 70, 5, 6, request=GpuRequest(gpus=2, preemptible=True), granted_at=NOW)
    queue(engine, 1, GpuRequest(gpus=gpus, priority=10))

    assert victims(engine) == want


def test_new_preemptible_stops_for_the_waiting() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1)
    hold(engine, 91, 2)
    queue(engine, 1, URGENT)
    assert victims(engine) == []

    hold(engine, 91, 2, request=CHEAP)

    assert victims(engine) == [91]


def test_nobody_stops_in_vain() -> None:
    engine = make_engine(make_device(1), make_device(2))
    hold(engine, 90, 1, request=CHEAP)
    hold(engine, 91, 2)
    queue(engine, 1, GpuRequest(gpus=2, priority=10))

    assert victims(engine) == []


def test_no_preemption_for_an_equal_start() -> None:
    engine = make_engine(make_device(1), make_device(2), preemption_grace_seconds=30.0)
    hold(engine, 90, 1, request=CHEAP)
    hold(engine, 91, 2, expected_end_at=NOW + timedelta(seconds=30))
    queue(engine, 1, URGENT)

    assert victims(engine) == []


def test_policy_without_preemption_stops_nobody() -> None:
    engine = make_engine(make_device(1), preemption=False)
    hold(engine, 90, 1, request=CHEAP)
    queue(engine, 1, URGENT)

    assert victims(engine) == []


def test_gang_preempts_on_each_node() -> None:
    engine = make_engine(*(make_device(n, node_id=f"node-{n}") for n in (1, 2, 3)))
    hold(engine, 91, 1, request=CHEAP)
    hold(engine, 92, 2)
    queue(engine, 1, GpuRequest(nodes=2, priority=10))

    assert victims(engine) == [91]


def test_freed_device_is_open_once_nobody_waits() -> None:
    engine = make_engine(make_device(1))
    victim = hold(engine, 90, 1, request=CHEAP)
    urgent = queue(engine, 1, URGENT)
    engine.decide(NOW)
    other = queue(engine, 2)
    engine.apply(RequestEnded(reservation_id=urgent), LeaseEnded(reservation_id=victim))

    assert [d.reservation_id for d in engine.decide(NOW)] == [other]


def test_reserved_device_is_not_preempted_later() -> None:
    engine = make_engine(make_device(1), aging_seconds=60.0)
    hold(engine, 90, 1, request=GpuRequest(preemptible=True))
    queue(engine, 1, GpuRequest(), queued_at=NOW - timedelta(hours=1))
    queue(engine, 2, GpuRequest(priority=1, min_memory_mb=1), queued_at=NOW)

    assert engine.decide(NOW) == ()
