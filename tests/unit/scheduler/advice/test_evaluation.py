"""What is said of a request is so: suggestions are granted, reasons empty only for grants."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest, Selector, SelectorKey, SelectorOperator
from schemas.scheduler.reasons import ChangeKind
from services.scheduler.domain.advice import evaluation
from services.scheduler.domain.advice.evaluation import available, evaluate
from services.scheduler.domain.advice.suggestions import TRIALS
from services.scheduler.domain.model.fleet import Device, Node, ReadingState
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    FleetComplete,
    Input,
    Lease,
    LeaseHeld,
    NodeSeen,
    QueuedRequest,
    RequestQueued,
    arriving_request,
)
from services.scheduler.domain.placement.decisions import Grant, Rejection
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, make_device, make_queued, reasons

NODES = ("alpha", "beta", "gamma")


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        Node(
            node_id=node_id,
            labels=draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])),
            cpu_count=draw(st.sampled_from([None, 8.0, 32.0])),
            memory_total_mb=draw(st.sampled_from([None, 64_000])),
            lost=draw(st.sampled_from([False, False, False, True])),
        )
        for node_id in NODES
    ]


@st.composite
def devices(draw: st.DrawFn, number: int) -> Device:
    return make_device(
        number,
        node_id=draw(st.sampled_from(NODES)),
        name=draw(st.sampled_from(["NVIDIA H100", "NVIDIA L4"])),
        used=draw(st.sampled_from([None, 0.0, 0.0, 40.0, 72.5])),
        free_mb=draw(st.sampled_from([None, 20_000, 60_000, 80_000, 80_000])),
        cordoned=draw(st.sampled_from([False, False, False, True])),
        foreign_pids=draw(st.sampled_from([(), (), (), (7,)])),
        reading_state=draw(st.sampled_from([*[ReadingState.FRESH] * 5, ReadingState.STALE])),
    )


SELECTORS = st.sampled_from(
    [
        Selector(key=SelectorKey.LABEL, label="zone", values=("a",)),
        Selector(key=SelectorKey.GPU_MODEL, operator=SelectorOperator.NOT_IN, values=("L4",)),
        Selector(key=SelectorKey.NUMA_NODE, operator=SelectorOperator.EXISTS),
    ]
)
REQUESTS = st.builds(
    GpuRequest,
    gpus=st.integers(1, 4),
    nodes=st.sampled_from([1, 1, 1, 2]),
    min_memory_mb=st.sampled_from([None, 0, 50_000, 90_000]),
    max_utilization_percent=st.sampled_from([0.0, 50.0, 100.0]),
    node_ids=st.sampled_from([(), (), ("alpha",)]),
    gpu_models=st.sampled_from([(), (), ("L4",)]),
    require=st.lists(SELECTORS, max_size=2, unique=True).map(tuple),
    cpu_count=st.sampled_from([None, None, 4.0, 16.0]),
    host_memory_mb=st.sampled_from([None, 32_000]),
    balanced_memory=st.booleans(),
    priority=st.integers(-2, 2),
    expected_duration_seconds=st.sampled_from([None, 30.0, 600.0]),
    preemptible=st.booleans(),
)


@st.composite
def engines(draw: st.DrawFn) -> DecisionEngine:
    """A fleet with leases and a queue, on which everything that could be decided is decided."""
    known = [draw(devices(number)) for number in range(draw(st.integers(0, 9)))]
    engine = DecisionEngine()
    engine.apply(FleetComplete(complete=draw(st.sampled_from([True, True, False]))))
    engine.apply(*(NodeSeen(node=node) for node in draw(nodes())))
    engine.apply(*(DeviceSeen(device=device) for device in known))
    for number in draw(st.sets(st.sampled_from([d.number for d in known] or [0]), max_size=4)):
        engine.apply(*_leases(number, draw(st.sampled_from([None, 60, 900])), known))
    for number, request in enumerate(draw(st.lists(REQUESTS, max_size=5)), start=1):
        queued_at = NOW - timedelta(seconds=draw(st.sampled_from([0, 30, 500])))
        engine.apply(RequestQueued(entry=make_queued(number, request, queued_at=queued_at)))
    engine.decide(NOW)
    return engine


def _leases(number: int, ends_in: int | None, known: Iterable[Device]) -> Iterable[Input]:
    if any(device.number == number for device in known):
        yield LeaseHeld(
            lease=Lease(
                reservation_id=UUID(int=100 + number),
                request=GpuRequest(preemptible=number % 2 == 0, priority=-2),
                numbers=(number,),
                granted_at=NOW - timedelta(minutes=1),
                expected_end_at=NOW + timedelta(seconds=ends_in) if ends_in else None,
            )
        )


def queue_of(engine: DecisionEngine) -> list[QueuedRequest]:
    return [change.entry for change in engine.state() if isinstance(change, RequestQueued)]


def grants(engine: DecisionEngine, entry: QueuedRequest) -> bool:
    return decides(engine, entry, Grant)


def decides(engine: DecisionEngine, entry: QueuedRequest, kind: type[Grant | Rejection]) -> bool:
    """Whether an engine like this one, with this entry in its queue, does so at its next turn."""
    other = DecisionEngine(engine.policy)
    other.apply(*engine.state(), RequestQueued(entry=entry))
    return any(
        isinstance(decision, kind) and decision.reservation_id == entry.reservation_id
        for decision in other.decide(NOW)
    )


@given(engines(), REQUESTS)
def test_what_is_said_of_a_request_is_so(engine: DecisionEngine, request: GpuRequest) -> None:
    """Everything that is said of what waits, and of a newcomer, holds."""
    before = engine.state()
    for entry in (*queue_of(engine), arriving_request(request, NOW)):
        evaluation = evaluate(engine, entry, NOW)

        assert (evaluation.placed is not None) == (evaluation.reasons == ())
        assert (evaluation.placed is not None) == grants(engine, entry)
        assert evaluation.impossible == decides(engine, entry, Rejection)
        if evaluation.suggestion is not None:
            assert evaluation.reasons
            assert grants(engine, replace(entry, request=evaluation.suggestion.request))
        if evaluation.expected_start_at is not None:
            assert evaluation.expected_start_at >= NOW
    assert engine.state() == before


@given(engines(), st.sampled_from([0, 30_000, 60_000]), st.sampled_from([10.0, 50.0, 100.0]))
def test_available_devices_are_the_grantable_ones(
    engine: DecisionEngine, min_memory_mb: int, limit: float
) -> None:
    request = GpuRequest(min_memory_mb=min_memory_mb, max_utilization_percent=limit)
    known = [change.device for change in engine.state() if isinstance(change, DeviceSeen)]
    granted = {
        device.uuid
        for device in known
        if evaluate(
            engine, arriving_request(replace(request, device_uuids=(device.uuid,)), NOW), NOW
        ).placed
    }

    found = {each.device.uuid for node in NODES for each in available(engine, node, request, NOW)}

    assert found == granted


@given(engines())
def test_waiting_request_has_reasons_granted_none(
    engine: DecisionEngine,
) -> None:
    waiting = {entry.reservation_id for entry in queue_of(engine)}
    held = [change.lease for change in engine.state() if isinstance(change, LeaseHeld)]

    assert all(reasons(engine, reservation_id, NOW) for reservation_id in waiting)
    assert not any(reasons(engine, lease.reservation_id, NOW) for lease in held)


def make_engine(*known: Device, queue: Iterable[GpuRequest] = ()) -> DecisionEngine:
    engine = DecisionEngine()
    engine.apply(FleetComplete(complete=True), *(DeviceSeen(device=device) for device in known))
    for number, request in enumerate(queue, start=1):
        engine.apply(RequestQueued(entry=make_queued(number, request, queued_at=NOW)))
    return engine


def suggested(engine: DecisionEngine, entry: QueuedRequest) -> tuple[tuple[ChangeKind, ...], Any]:
    found = evaluate(engine, entry, NOW).suggestion
    assert found is not None
    return found.changes, found.request


def test_impossible_request_is_told_what_would_fit() -> None:
    engine = make_engine(make_device(1), make_device(2))

    newcomer = arriving_request(GpuRequest(gpus=3), NOW)

    changes, request = suggested(engine, newcomer)

    assert evaluate(engine, newcomer, NOW).impossible
    assert changes == (ChangeKind.FEWER_GPUS,)
    assert request.gpus == 2


def test_suggestion_may_overtake_as_last_resort() -> None:
    engine = make_engine(
        make_device(1),
        make_device(2, holder=UUID(int=9), used=100.0, free_mb=0),
        queue=[GpuRequest(gpus=2, priority=3), GpuRequest()],
    )
    engine.apply(*_leases(2, None, [make_device(2)]))

    changes, request = suggested(engine, queue_of(engine)[1])

    assert changes == (ChangeKind.HIGHER_PRIORITY,)
    assert request.priority == 4


def test_request_is_judged_with_another_form() -> None:
    engine = make_engine(make_device(1), queue=[GpuRequest(gpus=2)])
    (entry,) = queue_of(engine)

    asked, changed = evaluate(engine, entry, NOW), evaluate(engine, entry, NOW, GpuRequest(gpus=1))

    assert asked.placed is None
    assert changed.placed is not None
    assert queue_of(engine) == [entry]


def test_too_much_memory_is_told_the_largest() -> None:
    sizes_mb = {1: 24_000, 2: 80_000, 3: 141_000}
    names = {1: "NVIDIA L4", 2: "NVIDIA H100", 3: "NVIDIA H200"}
    fleet = [make_device(n, memory_total_mb=sizes_mb[n], name=names[n]) for n in names]

    def largest_of(**wishes: Any) -> int | None:
        asked = arriving_request(GpuRequest(**wishes), NOW)
        return evaluate(make_engine(*fleet), asked, NOW).largest_memory_mb

    assert largest_of(min_memory_mb=1 << 40) == 141_000
    assert largest_of(min_memory_mb=1 << 40, gpu_models=("H100", "L4")) == 80_000
    assert largest_of(min_memory_mb=1 << 40, gpu_models=("A100",)) is None
    assert largest_of(min_memory_mb=1_000) is None


@pytest.mark.parametrize(("nodes", "trials"), [(8, TRIALS), (9, TRIALS // 4)])
def test_a_gang_of_many_nodes_is_given_fewer_trials(
    nodes: int, trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    monkeypatch.setattr(evaluation, "suggest", lambda *_, trials: given.append(trials))

    evaluate(make_engine(make_device(1)), arriving_request(GpuRequest(nodes=nodes), NOW), NOW)

    assert given == [trials]
