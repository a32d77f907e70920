"""The `density` policy: what a place costs those who usually ask."""

from datetime import timedelta
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from msgspec import json
from msgspec.structs import replace

from schemas.gpus.gpu_request import GpuRequest, Placement
from services.scheduler.domain.model.demand import DemandClass
from services.scheduler.domain.model.fleet import Node
from services.scheduler.domain.model.inputs import DemandSeen, Input, arriving_request
from services.scheduler.domain.placement.density import Density, Room, class_of, demand_of
from services.scheduler.domain.placement.placement import place
from services.scheduler.domain.placement.policy import Policy
from services.scheduler.domain.queue.decision_engine import DecisionEngine
from tests.unit.scheduler.builders import NOW, make_device, make_engine, queue, would_grant
from tests.unit.scheduler.placement.test_search import REQUESTS, histories

SMALL = DemandClass(hundredths=100, cpu_milli=2_000)
LARGE = DemandClass(hundredths=400, cpu_milli=8_000)
REQUESTS_TOO = REQUESTS | st.builds(
    GpuRequest,
    shares=st.sampled_from([0.2, 0.5, 1.5]),
    cpu_count=st.sampled_from([None, 3.0]),
    placement=st.sampled_from(list(Placement)),
)
DEMANDS = st.dictionaries(
    st.builds(
        DemandClass,
        hundredths=st.sampled_from([20, 50, 100, 200]),
        cpu_milli=st.sampled_from([0, 2_000]),
        gpu_models=st.sampled_from([(), ("L4",)]),
    ),
    st.integers(1, 9),
).map(demand_of)


def test_equal_demands_have_equal_densities() -> None:
    first, same, other = (
        Density(demand_of(weights)) for weights in ({SMALL: 1}, {SMALL: 1}, {LARGE: 1})
    )

    assert first == same
    assert first != other


@given(histories(), REQUESTS_TOO, DEMANDS)
def test_density_index_matches_a_full_scan(
    history: tuple[DecisionEngine, int], request: GpuRequest, demand: object
) -> None:
    before, seconds = history
    now = NOW + timedelta(seconds=seconds)
    engine = DecisionEngine(replace(before.policy, density=True))
    engine.apply(*before.state(), DemandSeen(demand=demand))  # type: ignore[arg-type]
    engine.decide(now)

    entry = arriving_request(request, now)
    with engine.what_if(now) as what_if:
        found = what_if.place(entry)
        assert found == place(what_if.context(entry), request)
        assert (what_if.reasons(entry) == ()) == (found is not None)


@given(histories(), REQUESTS_TOO, DEMANDS)
def test_rebuilt_density_engine_decides_the_same(
    history: tuple[DecisionEngine, int], request: GpuRequest, demand: object
) -> None:
    before, seconds = history
    now = NOW + timedelta(seconds=seconds)
    engine = DecisionEngine(replace(before.policy, density=True))
    engine.apply(*before.state(), DemandSeen(demand=demand))  # type: ignore[arg-type]
    engine.decide(now)
    anew = DecisionEngine(json.decode(json.encode(engine.policy), type=Policy))
    anew.apply(*json.decode(json.encode(engine.state()), type=tuple[Input, ...]))

    assert anew.decide(now) == ()
    for each in (engine, anew):
        queue(each, 99, request, queued_at=now)
    assert anew.decide(now) == engine.decide(now)


def test_density_spares_nodes_for_picky_requests() -> None:
    engine = make_engine(
        *(make_device(n, node_id="rare", name="NVIDIA L4") for n in (1, 2)),
        *(make_device(n, node_id="common") for n in (3, 4)),
        density=True,
    )
    insisting = DemandClass(hundredths=100, gpu_models=("L4",))
    engine.apply(DemandSeen(demand=demand_of({insisting: 10, SMALL: 10})))

    placed = would_grant(engine, GpuRequest(), NOW)

    assert placed is not None
    assert placed.node_id == "common"


def test_gpus_without_cpus_go_to_cpuless_requests() -> None:
    engine = make_engine(
        *(make_device(n, node_id="few", index=n) for n in range(4)),
        *(make_device(n, node_id="many", index=n) for n in range(4, 8)),
        nodes=(
            Node(node_id="few", cpu_count=3.0, memory_total_mb=64_000),
            Node(node_id="many", cpu_count=64.0, memory_total_mb=64_000),
        ),
        density=True,
    )
    engine.apply(DemandSeen(demand=demand_of({SMALL: 100})))

    placed = would_grant(engine, GpuRequest(), NOW)

    assert placed is not None
    assert placed.node_id == "few"


def test_spread_spreads_under_any_policy() -> None:
    devices = [make_device(n, node_id="alpha" if n < 4 else "beta") for n in range(8)]
    for density in (False, True):
        engine = make_engine(*devices, density=density)
        queue(engine, 1, GpuRequest())
        [first] = engine.decide(NOW)

        second = would_grant(engine, GpuRequest(placement=Placement.SPREAD), NOW)

        assert second is not None
        assert second.node_id != first.placed.node_id  # type: ignore[union-attr]
        assert first.reservation_id == UUID(int=1)


def test_cost_is_the_requests_that_no_longer_fit() -> None:
    room = Room((50, 100, 100, 100, 100), 8_000, 64_000, ("NVIDIA H100",))
    density = Density(demand_of({SMALL: 1_000}))

    whole = density.cost(room, SMALL)
    broken = density.cost(room, class_of(GpuRequest(shares=0.5)), ((50, 50),))

    assert whole > broken
    assert density.cost(room, LARGE) > 3 * whole
    assert density.value(replace(room, cpu_milli=0)) < density.value(room)


def test_room_shrinks_by_all_requested() -> None:
    room = Room((50, 100, 100), 8_000, 64_000, ("NVIDIA H100",))
    asked = class_of(GpuRequest(gpus=1, cpu_count=2, host_memory_mb=16_000))

    assert room.without(asked) == Room((0, 50, 100), 6_000, 48_000, ("NVIDIA H100",))
    assert room.without(asked, ((50, 20),)).free == (30, 100, 100)


def test_learned_demand_ignores_arrival_order() -> None:
    assert demand_of({SMALL: 3, LARGE: 3}) == demand_of({LARGE: 3, SMALL: 3})
    assert demand_of({SMALL: 30}) != demand_of({SMALL: 3})
