"""The indexes find what a look at everything finds, and keep finding it as the fleet changes."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import json

from schemas.gpus.gpu_request import (
    GpuRequest,
    Placement,
    Preference,
    Selector,
    SelectorKey,
    SelectorOperator,
)
from schemas.telemetry.readings import HealthState
from services.scheduler.domain.indexes.filter_index import FilterIndex
from services.scheduler.domain.model.fleet import Device, Node, ReadingState
from services.scheduler.domain.model.inputs import (
    DeviceSeen,
    Input,
    LeaseEnded,
    NodeGone,
    NodeSeen,
    RequestQueued,
    arriving_request,
)
from services.scheduler.domain.model.state import State
from services.scheduler.domain.placement.placement import place
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.placement.request_shape import shape_of
from services.scheduler.domain.queue import placement_search
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from services.scheduler.domain.queue.scheduling_cycle import SchedulingCycle
from tests.unit.scheduler.builders import (
    NOW,
    hold,
    make_device,
    make_engine,
    make_queued,
    queue,
    would_grant,
)

NODES = ("alpha", "beta", "gamma", "delta")


def links(place: int) -> list[tuple[int, ...]]:
    """What may be known of a GPU: nothing, that it is one of a pair, only its NUMA node."""
    pair = place - place % 2
    return [(), (place, *(pair,) * 5, 0), (*(place,) * 6, 0)]


@st.composite
def devices(draw: st.DrawFn, number: int) -> Device:
    return make_device(
        number,
        node_id=NODES[number % len(NODES)],
        name=draw(st.sampled_from(["NVIDIA H100", "NVIDIA L4"])),
        used=draw(st.sampled_from([0.0, 0.0, 10.0, 40.0, 90.0, None])),
        free_mb=draw(st.sampled_from([80_000, 80_000, 70_000, 60_000, 45_000, 0, None])),
        cordoned=draw(st.sampled_from([False] * 7 + [True])),
        health=draw(st.sampled_from([HealthState.OK] * 7 + [HealthState.LOST])),
        reading_state=draw(st.sampled_from([ReadingState.FRESH] * 5 + [*ReadingState])),
        numa_node=draw(st.sampled_from([None, 0, 1])),
        link_groups=draw(st.sampled_from(links(number // len(NODES)))),
        foreign_pids=draw(st.sampled_from([(), (), (), (77,)])),
    )


@st.composite
def nodes(draw: st.DrawFn, node_id: str) -> Node:
    return Node(
        node_id=node_id,
        labels=draw(st.sampled_from([{}, {"zone": "a"}, {"zone": "b"}])),
        cpu_count=draw(st.sampled_from([None, 4.0, 16.0])),
        memory_total_mb=draw(st.sampled_from([None, 64_000])),
        lost=draw(st.sampled_from([False] * 7 + [True])),
        admitted=draw(st.sampled_from([True] * 7 + [False])),
    )


def selector(key: str, *values: str, **more: Any) -> Selector:
    return Selector(key=SelectorKey(key), values=values, **more)


SELECTORS = [
    selector("numa_node", "0"),
    selector("gpu_index", "1", "2", "6"),
    selector("label", "a", label="zone"),
    selector("label", "a", label="zone", operator=SelectorOperator.NOT_IN),
    selector("gpu_model", "l4"),
    selector("gpu_uuid", "GPU-1", "GPU-2", "GPU-5"),
    selector("node", "beta", "gamma"),
]
REQUESTS = st.builds(
    GpuRequest,
    gpus=st.integers(1, 3),
    nodes=st.sampled_from([1, 1, 1, 2, 3]),
    min_memory_mb=st.sampled_from([None, None, 0, 50_000, 90_000]),
    max_utilization_percent=st.sampled_from([50.0, 50.0, 5.0]),
    node_ids=st.sampled_from([(), (), ("alpha", "beta")]),
    balanced_memory=st.sampled_from([False, False, True]),
    placement=st.sampled_from(list(Placement)),
    cpu_count=st.sampled_from([None, None, 3.0]),
    min_compute_capability=st.sampled_from([None, None, "8.0", "8.9"]),
    require=st.sampled_from([(), (), (), *((s,) for s in SELECTORS)]),
    prefer=st.sampled_from(
        [(), (), *((Preference(selector=s, weight=2),) for s in SELECTORS)],
    ),
    priority=st.sampled_from([0, 0, 0, 3]),
    preemptible=st.booleans(),
    mixed_models=st.sampled_from([False, False, True]),
    expected_duration_seconds=st.sampled_from([None, 10.0, 60.0]),
)


@st.composite
def histories(draw: st.DrawFn) -> tuple[DecisionEngine, int]:
    """An engine that has seen a fleet and some requests, and has decided now and then."""
    count = draw(st.integers(0, 14))
    engine = make_engine(
        *(draw(devices(number)) for number in range(count)),
        nodes=tuple(draw(nodes(node_id)) for node_id in NODES),
    )
    now = NOW
    number = 0
    for _ in range(draw(st.integers(0, 8))):
        match draw(st.sampled_from(["request", "request", "release", "reading", "node", "gone"])):
            case "request":
                number += 1
                queue(engine, number, draw(REQUESTS), queued_at=now)
            case "release":
                engine.apply(LeaseEnded(reservation_id=UUID(int=draw(st.integers(1, 8)))))
            case "reading" if count:
                engine.apply(DeviceSeen(device=draw(devices(draw(st.integers(0, count - 1))))))
            case "node":
                engine.apply(NodeSeen(node=draw(nodes(draw(st.sampled_from(NODES))))))
            case "gone":
                engine.apply(NodeGone(node_id="delta"))
            case _:
                pass
        if draw(st.booleans()):
            engine.decide(now)
        now += timedelta(seconds=draw(st.sampled_from([0, 1, 12])))
    engine.decide(now)
    return engine, int((now - NOW).total_seconds())


@given(histories(), REQUESTS)
def test_index_matches_a_full_scan(
    history: tuple[DecisionEngine, int], request: GpuRequest
) -> None:
    engine, seconds = history
    now = NOW + timedelta(seconds=seconds)

    entry = arriving_request(request, now)
    with engine.what_if(now) as what_if:
        found = what_if.place(entry)
        assert found == place(what_if.context(entry), request)
        assert (what_if.reasons(entry) == ()) == (found is not None)


@given(histories(), REQUESTS)
def test_rebuilt_engine_decides_the_same(
    history: tuple[DecisionEngine, int], request: GpuRequest
) -> None:
    engine, seconds = history
    now = NOW + timedelta(seconds=seconds)
    anew = DecisionEngine(engine.policy)
    anew.apply(*json.decode(json.encode(engine.state()), type=tuple[Input, ...]))

    assert anew.decide(now) == ()
    for each in (engine, anew):
        queue(each, 99, request, queued_at=now)
    assert anew.decide(now) == engine.decide(now)


@pytest.mark.parametrize("key", ["numa_node", "label", "gpu_model"])
def test_filter_of_empty_fleet_finds_later_nodes(key: str) -> None:
    wanted = {s.key.value: s for s in reversed(SELECTORS)}[key]
    engine = make_engine()
    request = GpuRequest(require=(wanted,))
    assert would_grant(engine, request, NOW) is None

    engine.apply(
        NodeSeen(node=Node(node_id="alpha", labels={"zone": "a"})),
        DeviceSeen(device=make_device(1, name="NVIDIA L4", numa_node=0)),
    )

    assert would_grant(engine, request, NOW) is not None


def test_reserved_best_device_yields_to_the_next() -> None:
    free_mb = {1: 80_000, 2: 60_000, 3: 70_000, 4: 50_000, 5: 50_000, 6: 50_000}
    engine = make_engine(
        *(make_device(n, node_id=NODES[(n - 1) // 2], free_mb=mb) for n, mb in free_mb.items()),
        *(make_device(n + 7, node_id=NODES[n]) for n in range(3)),
    )
    for number in (7, 8, 9):
        hold(engine, number, number)
    queue(engine, 1, GpuRequest(gpus=2, device_uuids=("GPU-1", "GPU-7")))
    assert engine.decide(NOW) == ()

    placed = would_grant(engine, GpuRequest(), NOW)

    assert placed is not None
    assert placed.numbers == {3}


@pytest.mark.parametrize(
    ("placement", "want"), [(Placement.PACK, "beta"), (Placement.SPREAD, "alpha")]
)
def test_equal_nodes_follow_the_placement(placement: Placement, want: str) -> None:
    engine = make_engine(*(make_device(n, node_id=NODES[n // 2]) for n in range(4)))
    hold(engine, 9, 3)
    prefer = (Preference(selector=selector("gpu_model", "h100"), weight=2),)

    placed = would_grant(engine, GpuRequest(placement=placement, prefer=prefer), NOW)

    assert placed is not None
    assert placed.node_id == want


@pytest.mark.parametrize("waiting", range(3))
def test_unused_filters_are_bounded(waiting: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three, and one for each filter that is in use and therefore never forgotten."""
    monkeypatch.setattr(placement_search, "MAX_FILTER_INDEXES", 3)
    cycle = SchedulingCycle(State(), Policy())

    def indexes(what: str, number: int) -> list[FilterIndex]:
        asked = [GpuRequest(gpu_models=(f"{what} {each}",)) for each in range(number)]
        return [cycle.search.filter_index(shape_of(each).filter, each) for each in asked]

    for number in range(waiting):
        asked = GpuRequest(gpu_models=(f"used {number}",))
        cycle.apply(RequestQueued(entry=make_queued(number, asked)))
    used, unused = indexes("used", waiting), indexes("unused", 3 + waiting)

    assert indexes("unused", 3 + waiting) == unused
    indexes("one more", 1)
    assert indexes("used", waiting) == used
    assert indexes("unused", 1) != unused[:1]
