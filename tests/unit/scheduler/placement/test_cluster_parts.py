"""Parts of a cluster's GPUs: what fits for certain, and no node is promised more than it has."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cluster.nodes import ClusterNode, GpuSharing, NodeGpus
from schemas.errors import ErrorCode
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuRequest, NodeRanking
from services.scheduler.domain.clusters.choice import Choice, Cluster, ClusterFleet
from services.scheduler.domain.clusters.node_gpus import STALE, GpuLoad, NodeLoad
from services.scheduler.domain.clusters.parts import PartNeed, PartsInFlight, parts_free
from services.scheduler.intake.validation import check_wanted
from shared.errors import RefusedError
from shared.ids import new_id
from tests.support.worlds.scheduler_cluster import make_cluster_node, of_cluster
from tests.unit.scheduler.builders import NOW

CORE, MPS, SHARED = "tencent.com/vcuda-core", "nvidia.com/mps-core", "nvidia.com/gpu.shared"


def divided(
    name: str, gpus: int = 1, *pods: int, resource: str = CORE, memory: int | None = None
) -> ClusterNode:
    """A node whose GPUs are 100 units each, of which pods hold so many each; memory in units."""
    return make_cluster_node(
        name,
        resource=resource,
        gpus=gpus,
        requested=sum(-(-units // 100) for units in pods),
    ).__class__(
        name=name,
        node_id=name,
        hostname=name,
        is_ready=True,
        is_cordoned=False,
        gpus=(
            NodeGpus(
                resource=resource,
                supply=make_cluster_node("a").gpus[0].supply,
                capacity=gpus,
                allocatable=gpus,
                requested=sum(-(-units // 100) for units in pods),
                units_per_gpu=100,
                allocatable_units=gpus * 100,
                requested_units=sum(pods),
                allocatable_memory_units=memory,
                whole_requested=sum(units // 100 for units in pods if units % 100 == 0),
            ),
        ),
    )


def sliced(name: str, gpus: int, slices: int, held: int = 0, resource: str = SHARED) -> ClusterNode:
    whole = make_cluster_node(name)
    return whole.__class__(
        name=name,
        node_id=name,
        hostname=name,
        is_ready=True,
        is_cordoned=False,
        gpus=(
            NodeGpus(
                resource=resource,
                supply=whole.gpus[0].supply,
                capacity=gpus,
                allocatable=gpus,
                requested=held,
                units_per_gpu=slices,
                allocatable_units=gpus * slices,
                requested_units=held,
                sharing=GpuSharing.TIME_SLICING,
            ),
        ),
    )


def fleet_of(*nodes: ClusterNode, **more: Any) -> ClusterFleet:
    cluster = Cluster(cluster_id="k8s", nodes={each.name: each for each in nodes}, **more)
    return ClusterFleet([cluster], (), NOW)


def placed(request: GpuRequest, *nodes: ClusterNode, **more: Any) -> ClusterPlacement:
    found = fleet_of(*nodes, **more).choose(request)
    assert isinstance(found, Choice), found
    return found.placement


def part(units: int, resource: str = CORE, **more: Any) -> GpuRequest:
    return of_cluster(1, resource=resource, units=units, **more)


@pytest.mark.parametrize(
    ("gpus", "pods", "need", "free"),
    [
        pytest.param(1, [], 30, 3, id="a free GPU has three of 30"),
        pytest.param(1, [30], 30, 2, id="the only one: what is left counts exactly"),
        pytest.param(1, [60], 50, 0, id="too little is left on it"),
        pytest.param(2, [60], 50, 2, id="the other one is untouched"),
        pytest.param(2, [60, 60], 50, 0, id="80 are free, and 50 on none"),
        pytest.param(2, [30, 30], 50, 1, id="both have 70, wherever the parts are"),
        pytest.param(2, [10, 10], 80, 1, id="on one GPU or on both: one has 80"),
        pytest.param(2, [60, 20], 60, 1, id="120 of two: one has 60"),
        pytest.param(2, [100, 60], 40, 1, id="a whole card and a part"),
        pytest.param(4, [200], 100, 2, id="whole cards"),
    ],
)
def test_part_fits_wherever_others_are(
    gpus: int, pods: Sequence[int], need: int, free: int
) -> None:
    (counted,) = divided("a", gpus, *pods).gpus

    assert parts_free(counted, PartNeed(need), PartsInFlight()) == free


def test_memory_that_belongs_to_a_part_counts_too() -> None:
    (counted,) = divided("a", 2, memory=2 * 60).gpus

    def free(memory: int, promised: int = 0) -> int:
        in_flight = PartsInFlight(promised and 10, promised, gpus=1 if promised else 0)
        return parts_free(counted, PartNeed(10, memory), in_flight)

    assert [free(6), free(30), free(31), free(61)] == [20, 4, 2, 0]
    assert free(40, promised=30) == 1


def test_parts_are_placed_held_and_told_as_such() -> None:
    known = fleet_of(divided("a", 1, 30), divided("b", 1, 80))

    first = known.choose(part(30))
    assert isinstance(first, Choice)
    known.take(new_id(), part(30), first.placement)
    second = known.choose(part(50))

    assert first.placement.node_name == "a"
    assert (first.placement.units, first.placement.resource) == (30, CORE)
    assert first.placement.message == "a: room for 2 of 30 tencent.com/vcuda-core on one GPU"
    assert isinstance(second, Choice)
    assert second.placement.node_name is None
    assert "no node has 50 tencent.com/vcuda-core on one GPU" in second.placement.message
    third = known.choose(part(40))
    assert isinstance(third, Choice)
    assert third.placement.node_name == "a"


def test_stale_shared_gpu_takes_no_part() -> None:
    busy = NodeLoad.of([GpuLoad(90.0, 90.0)])

    assert placed(part(30), divided("a", 1, 30), loads={"a": busy}).node_name == "a"
    assert placed(part(30), divided("a", 1, 30), loads={"a": STALE}).node_name is None


def test_least_fragmenting_fills_parts_first() -> None:
    nodes = (divided("a", 1), divided("b", 1, 60))

    assert placed(part(30), *nodes).node_name == "a"
    assert placed(part(30, ranking=NodeRanking.LEAST_FRAGMENTING), *nodes).node_name == "b"


def test_slices_are_counted_but_no_whole_gpus() -> None:
    own_name = sliced("own", 2, 4, held=7, resource="nvidia.com/gpu")
    renamed = sliced("renamed", 2, 4, held=6)

    assert placed(part(1, "nvidia.com/gpu"), own_name).node_name == "own"
    assert placed(part(2, "nvidia.com/gpu"), own_name).node_name is None
    assert placed(part(1, SHARED), own_name, renamed).node_name == "renamed"
    assert placed(of_cluster(2, resource=SHARED), renamed).node_name == "renamed"
    assert placed(of_cluster(3, resource=SHARED), renamed).node_name is None
    assert placed(of_cluster(1), own_name, make_cluster_node("whole", 1)).node_name == "whole"
    assert placed(of_cluster(1), own_name).node_name is None
    assert placed(part(1, "nvidia.com/gpu"), make_cluster_node("whole", 8)).node_name is None


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (part(30, "amd.com/gpu"), "units"),
        (part(100), "units"),
        (of_cluster(1, units=30), "resource"),
        (of_cluster(1, memory_units=30), "memory_units"),
        (part(30, "nvidia.com/gpu", memory_units=3), "memory_units"),
    ],
)
def test_units_that_no_plugin_serves_are_refused(request_: GpuRequest, path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        check_wanted(request_)

    assert (refused.value.code, refused.value.path) == (
        ErrorCode.BAD_REQUEST,
        f"$.request.cluster.{path}",
    )


@given(
    gpus=st.integers(1, 3),
    held=st.lists(st.one_of(st.integers(1, 99), st.just(100)), max_size=5),
    asked=st.lists(st.integers(1, 99), max_size=6),
    data=st.data(),
)
def test_promised_parts_fit_in_any_layout(
    gpus: int, held: list[int], asked: list[int], data: st.DataObject
) -> None:
    """The plugin is the adversary: it puts every part on any GPU that has room for it."""
    room = [100] * gpus

    def bind(units: int) -> bool:
        able = [number for number, free in enumerate(room) if free >= units]
        if able:
            room[data.draw(st.sampled_from(able))] -= units
        return bool(able)

    pods = [units for units in held if bind(units)]
    for units in asked:
        (counted,) = divided("a", gpus, *pods).gpus
        if parts_free(counted, PartNeed(units), PartsInFlight()) > 0:
            assert bind(units), (room, pods, units)
            pods.append(units)


@given(
    gpus=st.integers(1, 3),
    asked=st.lists(st.one_of(st.integers(1, 99), st.just(100)), min_size=1, max_size=8),
    data=st.data(),
)
def test_promised_parts_fit_in_any_order(gpus: int, asked: list[int], data: st.DataObject) -> None:
    """Some pods are bound and told at once; the others come at the end, in any order."""
    room = [100] * gpus
    told: list[int] = []
    waiting: dict[UUID, int] = {}

    def bind(units: int) -> None:
        able = [number for number, free in enumerate(room) if free >= units]
        assert able, (room, told, waiting, units)
        room[data.draw(st.sampled_from(able))] -= units

    def view() -> ClusterFleet:
        known = fleet_of(divided("a", gpus, *told))
        for reservation_id, units in waiting.items():
            known.take(reservation_id, request_of(units), known_place(units))
        return known

    for units in asked:
        found = view().choose(request_of(units))
        assert isinstance(found, Choice)
        if found.placement.node_name is None:
            continue
        if data.draw(st.booleans()):
            bind(units)
            told.append(units)
        else:
            waiting[new_id()] = units
    for units in data.draw(st.permutations(list(waiting.values()))):
        bind(units)


def request_of(units: int) -> GpuRequest:
    return of_cluster(1, resource=CORE) if units == 100 else part(units)


def known_place(units: int) -> ClusterPlacement:
    return ClusterPlacement(
        cluster_id="k8s",
        gpus=1,
        node_name="a",
        resource=CORE,
        units=None if units == 100 else units,
    )


def test_holding_counts_until_its_pod_is_bound() -> None:
    mine = UUID(int=7)
    known = fleet_of(divided("a", 1))
    chosen = known.choose(part(70))
    assert isinstance(chosen, Choice)
    known.take(mine, part(70), chosen.placement)

    again = known.choose(part(40))
    whole = known.choose(of_cluster(1, resource=CORE))

    assert isinstance(again, Choice)
    assert isinstance(whole, Choice)
    assert (again.placement.node_name, whole.placement.node_name) == (None, None)


@pytest.mark.parametrize(("gpus", "want"), [(1, None), (2, "a")])
def test_promised_whole_card_leaves_no_part(gpus: int, want: str | None) -> None:
    known = fleet_of(divided("a", gpus))
    card = of_cluster(1, resource=CORE)
    chosen = known.choose(card)
    assert isinstance(chosen, Choice)
    known.take(new_id(), card, chosen.placement)

    beside = known.choose(part(60))

    assert isinstance(beside, Choice)
    assert beside.placement.node_name == want
