"""What a namespace may hold: never more, and nobody else waits for it."""

from datetime import timedelta
from uuid import UUID

import msgspec

from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.advice.evaluation import evaluate
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    Input,
    LeaseEnded,
    NodeSeen,
    QuotaSet,
    RequestQueued,
)
from services.scheduler.domain.model.namespaces import Held, Quota
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.decisions import Grant, Rejection, TimeOut
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, make_device, make_queued


def make_engine(gpus: int = 4, **limits: int) -> DecisionEngine:
    """A node of GPUs; limits in hundredths by namespace."""
    engine = DecisionEngine()
    engine.apply(NodeSeen(node=Node(node_id="alpha")))
    engine.apply(*(DeviceSeen(device=make_device(number)) for number in range(1, gpus + 1)))
    engine.apply(*(QuotaSet(quota=Quota(namespace=n, limit=limits[n])) for n in limits))
    engine.apply(FleetComplete(complete=True))
    return engine


def queue(engine: DecisionEngine, number: int, namespace: str, request: GpuRequest) -> None:
    engine.apply(RequestQueued(entry=make_queued(number, request, namespace=namespace)))


def granted(engine: DecisionEngine) -> list[int]:
    """The requests that are granted now."""
    decided = engine.decide(NOW)
    return [each.reservation_id.int for each in decided if isinstance(each, Grant)]


def test_a_namespace_never_holds_more_than_its_limit() -> None:
    engine = make_engine(a=200)
    for number in (1, 2, 3):
        queue(engine, number, "a", GpuRequest())
    assert granted(engine) == [1, 2]
    assert granted(engine) == []
    engine.apply(LeaseEnded(reservation_id=UUID(int=1)))
    assert granted(engine) == [3]


def test_quota_blocked_request_blocks_no_other() -> None:
    engine = make_engine(a=100)
    queue(engine, 1, "a", GpuRequest())
    assert granted(engine) == [1]
    queue(engine, 2, "a", GpuRequest())
    queue(engine, 3, "b", GpuRequest(gpus=3))
    assert granted(engine) == [3]


def test_shares_count_by_their_size() -> None:
    engine = make_engine(a=100)
    for number in (1, 2, 3, 4, 5):
        queue(engine, number, "a", GpuRequest(shares=0.25))
    assert granted(engine) == [1, 2, 3, 4]


def test_request_above_limit_is_refused() -> None:
    engine = make_engine(a=250)
    queue(engine, 1, "a", GpuRequest(gpus=3))
    [decision] = engine.decide(NOW)
    assert isinstance(decision, Rejection)
    assert [each.code for each in decision.reasons] == [ReasonCode.EXCEEDS_QUOTA]
    assert decision.reasons[0].message == (
        "namespace a may hold 2.5 GPUs at most, and this asks for 3"
    )


def test_raised_limit_admits_lowered_ends_nothing() -> None:
    engine = make_engine(a=100)
    queue(engine, 1, "a", GpuRequest())
    queue(engine, 2, "a", GpuRequest())
    queue(engine, 3, "a", GpuRequest())
    assert granted(engine) == [1]
    engine.apply(QuotaSet(quota=Quota(namespace="a", limit=200)))
    assert granted(engine) == [2]
    engine.apply(QuotaSet(quota=Quota(namespace="a", limit=100)))
    assert granted(engine) == []
    engine.apply(QuotaSet(quota=Quota(namespace="a")))
    assert granted(engine) == [3]


def test_quota_reason_tells_what_would_fit() -> None:
    engine = make_engine(a=300)
    queue(engine, 1, "a", GpuRequest(gpus=2))
    queue(engine, 2, "a", GpuRequest(gpus=2))
    assert granted(engine) == [1]
    (waiting,) = engine.waiting
    found = evaluate(engine, waiting, NOW)
    assert [each.code for each in found.reasons] == [ReasonCode.OVER_QUOTA]
    assert found.reasons[0].message == (
        "namespace a holds 2 of the 3 GPUs that it may hold; this needs 2 more"
    )
    assert found.suggestion is not None
    assert found.suggestion.request.gpus == 1


def test_quota_time_out_is_told() -> None:
    engine = make_engine(a=100)
    queue(engine, 1, "a", GpuRequest())
    queue(engine, 2, "a", GpuRequest())
    assert granted(engine) == [1]
    [decision] = engine.decide(NOW + timedelta(hours=1))
    assert isinstance(decision, TimeOut)
    assert [each.code for each in decision.reasons] == [ReasonCode.OVER_QUOTA]


def test_rebuilt_engine_knows_the_quotas() -> None:
    engine = make_engine(a=100)
    queue(engine, 1, "a", GpuRequest())
    assert granted(engine) == [1]
    again = DecisionEngine()
    recorded = msgspec.json.encode(engine.state())
    again.apply(*msgspec.json.decode(recorded, type=tuple[Input, ...]))
    queue(again, 2, "a", GpuRequest())
    assert granted(again) == []


def test_what_a_node_does_not_say_is_no_capacity() -> None:
    state = State()
    state.apply(NodeSeen(node=Node(node_id="silent")))
    state.apply(NodeSeen(node=Node(node_id="beta", cpu_count=1.5, memory_total_mb=100)))

    assert state.capacity() == Held(hundredths=0, cpu_milli=1_500, memory_mb=100)
