"""What a namespace borrows is taken back for whom it is guaranteed, with notice, and no more."""

from datetime import timedelta
from uuid import UUID

import pytest

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.namespaces import PreemptionCause
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    LeaseEnded,
    NodeSeen,
    QuotaSet,
    RequestQueued,
)
from services.scheduler.domain.model.namespaces import Quota
from services.scheduler.domain.placement.decisions import Grant, Preempt
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, make_device, make_queued


def make_engine(**guaranteed: int) -> DecisionEngine:
    """A node of four GPUs; guarantees in hundredths by namespace."""
    engine = DecisionEngine()
    engine.apply(NodeSeen(node=Node(node_id="alpha")), FleetComplete(complete=True))
    engine.apply(*(DeviceSeen(device=make_device(number)) for number in range(1, 5)))
    for namespace, amount in guaranteed.items():
        engine.apply(QuotaSet(quota=Quota(namespace=namespace, guaranteed=amount)))
    return engine


def queue(engine: DecisionEngine, number: int, namespace: str, request: GpuRequest) -> UUID:
    entry = make_queued(number, request, namespace=namespace)
    engine.apply(RequestQueued(entry=entry))
    return entry.reservation_id


def preempts(engine: DecisionEngine) -> list[Preempt]:
    return [each for each in engine.decide(NOW) if isinstance(each, Preempt)]


def granted(engine: DecisionEngine) -> list[int]:
    return [each.reservation_id.int for each in engine.decide(NOW) if isinstance(each, Grant)]


def test_who_is_alone_borrows_everything() -> None:
    engine = make_engine(a=100, b=300)
    for number in range(1, 5):
        queue(engine, number, "a", GpuRequest())
    assert granted(engine) == [1, 2, 3, 4]


def test_guarantee_takes_back_youngest_borrowers() -> None:
    engine = make_engine(a=100, b=300)
    for number in range(1, 5):
        queue(engine, number, "a", GpuRequest())
    engine.decide(NOW)
    waiting = queue(engine, 9, "b", GpuRequest(gpus=2))

    found = preempts(engine)

    assert len(found) == 2
    assert {each.cause for each in found} == {PreemptionCause.GUARANTEE}
    assert {each.for_reservation_id for each in found} == {waiting}
    assert {each.until_at for each in found} == {NOW + timedelta(seconds=30)}
    assert preempts(engine) == []
    engine.apply(*(LeaseEnded(reservation_id=each.reservation_id) for each in found))
    assert granted(engine) == [9]


@pytest.mark.parametrize(
    ("guaranteed", "asked"),
    [
        pytest.param({"a": 400, "b": 300}, GpuRequest(), id="all of it is guaranteed"),
        pytest.param({"a": 300, "b": 300}, GpuRequest(gpus=2), id="part of it is guaranteed"),
        pytest.param({"b": 100}, GpuRequest(gpus=2), id="for what would be borrowed itself"),
    ],
)
def test_nothing_is_taken_back(guaranteed: dict[str, int], asked: GpuRequest) -> None:
    engine = make_engine(**guaranteed)
    queue(engine, 1, "a", GpuRequest(gpus=2))
    queue(engine, 2, "a", GpuRequest(gpus=2))
    engine.decide(NOW)
    queue(engine, 9, "b", asked)
    assert preempts(engine) == []


def test_priority_spares_others_guarantee() -> None:
    engine = make_engine(a=200)
    queue(engine, 1, "a", GpuRequest(gpus=2, preemptible=True))
    queue(engine, 2, "c", GpuRequest(gpus=2, preemptible=True))
    engine.decide(NOW)
    queue(engine, 9, "b", GpuRequest(gpus=2, priority=10))
    [found] = preempts(engine)
    assert (found.reservation_id, found.cause) == (UUID(int=2), PreemptionCause.PRIORITY)


def test_guaranteed_comes_before_borrowed() -> None:
    engine = make_engine(b=200)
    queue(engine, 1, "a", GpuRequest(gpus=4, priority=100))
    queue(engine, 2, "b", GpuRequest(gpus=2))
    assert granted(engine) == [2]


def test_nothing_is_taken_back_twice_for_one_request() -> None:
    engine = make_engine(b=400)
    for number in (1, 2):
        queue(engine, number, "a", GpuRequest(gpus=2))
    engine.decide(NOW)
    queue(engine, 9, "b", GpuRequest(gpus=2))
    [first] = preempts(engine)
    broken = [make_device(number, cordoned=True) for number in range(1, 5)]
    engine.apply(LeaseEnded(reservation_id=first.reservation_id))
    engine.apply(*(DeviceSeen(device=each) for each in broken))
    assert engine.decide(NOW) == ()
    remaining = 3 - first.reservation_id.int
    engine.apply(
        *(
            DeviceSeen(device=make_device(number))
            for number in range(1, 5)
            if number in ((1, 2) if remaining == 1 else (3, 4))
        )
    )
    assert engine.decide(NOW) == ()
