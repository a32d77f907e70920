"""The node of a Kubernetes cluster for a request, and that no two choices are of the same GPUs."""

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from schemas.cluster.nodes import ClusterNode, GpuSupply, NodeGpus, NodeTaint
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import ClusterRequest, GpuRequest, Selector
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.clusters.choice import (
    Choice,
    Cluster,
    ClusterFleet,
)
from services.scheduler.domain.clusters.holdings import ClusterHolding
from services.scheduler.domain.clusters.node_gpus import (
    STALE,
    GpuLoad,
    NodeLoad,
    Thresholds,
    gpus_of,
)
from services.scheduler.domain.clusters.wishes import DRIVER_AT_LEAST, largest_memory_mb
from shared.ids import new_id
from tests.support.worlds.scheduler_cluster import make_cluster_node as node
from tests.support.worlds.scheduler_cluster import of_cluster
from tests.unit.scheduler.builders import NOW

LONG_AGO = NOW - timedelta(hours=1)
MINE = UUID(int=7)
DEFAULTS = Thresholds(30.0, 50.0)


def loads(*gpus: tuple[float | None, float | None]) -> NodeLoad:
    return NodeLoad.of([GpuLoad(*gpu) for gpu in gpus])


def cluster(*nodes: ClusterNode, cluster_id: str = "k8s", **more: Any) -> Cluster:
    by_name = {each.name: each for each in nodes}
    return Cluster(cluster_id=cluster_id, nodes=by_name, **more)


def held(gpus: int, node_name: str | None = "a", **more: Any) -> ClusterHolding:
    fields: dict[str, Any] = {
        "reservation_id": MINE,
        "cluster_id": "k8s",
        "resource": "nvidia.com/gpu",
        "granted_at": LONG_AGO,
    }
    return ClusterHolding(node_name=node_name, gpus=gpus, **(fields | more))


def choose(
    request: GpuRequest, *clusters: Cluster, holdings: tuple[ClusterHolding, ...] = ()
) -> ClusterPlacement:
    found = ClusterFleet(clusters, holdings, NOW).choose(request)
    assert isinstance(found, Choice), found
    return found.placement


def waits(request: GpuRequest, *clusters: Cluster) -> tuple[Reason, ...]:
    found = ClusterFleet(clusters, (), NOW).choose(request)
    assert isinstance(found, tuple), found
    return found


BUSY = loads(*[(80.0, 90.0)] * 8)


@pytest.mark.parametrize(
    ("nodes", "read", "gpus", "want"),
    [
        pytest.param([node("a", requested=2), node("b")], {}, 1, "b", id="more idle GPUs"),
        pytest.param([node("a", requested=8), node("b", 1)], {}, 1, "b", id="what pods leave"),
        pytest.param([node("a", allocatable=1), node("b", 2)], {}, 2, "b", id="allocatable"),
        pytest.param([node("a"), node("b", 2)], {"a": BUSY}, 2, "b", id="the idle, not the free"),
        pytest.param(
            [node("a", 1), node("b", 1)],
            {"a": loads((9.0, 0.0)), "b": loads((8.0, 0.0))},
            1,
            "b",
            id="as many idle: the less used",
        ),
        pytest.param([node("b"), node("a")], {}, 1, "a", id="equal ones by name"),
        pytest.param([node("a", is_cordoned=True), node("b", 1)], {}, 1, "b", id="cordoned"),
        pytest.param([node("a", is_ready=False), node("b", 1)], {}, 1, "b", id="not ready"),
        pytest.param([node("a", hostname=None), node("b", 1)], {}, 1, "b", id="no host name"),
        pytest.param([node("a"), node("b", 1)], {"a": STALE}, 1, "b", id="stale metrics"),
        pytest.param([node("a", 4), node("b", 2)], {"a": loads((99.0, 1.0))}, 2, "a", id="unread"),
        pytest.param(
            [node("a", taints=(NodeTaint(key="spot", effect="NoSchedule"),)), node("b", 1)],
            {},
            1,
            "b",
            id="a taint that is not tolerated",
        ),
        pytest.param(
            [node("a", taints=(NodeTaint(key="nvidia.com/gpu", effect="NoSchedule"),))],
            {},
            1,
            "a",
            id="a taint that is",
        ),
        pytest.param(
            [node("a", taints=(NodeTaint(key="spot", effect="PreferNoSchedule"),))],
            {},
            1,
            "a",
            id="a taint that keeps nothing out",
        ),
        pytest.param([node("a", 8, resource="amd.com/gpu"), node("b", 1)], {}, 1, "b", id="AMD"),
        pytest.param([node("a", 4)], {}, 8, None, id="no node is large enough"),
        pytest.param([node("a")], {"a": BUSY}, 1, None, id="none is idle"),
        pytest.param([], {}, 1, None, id="no node at all"),
    ],
)
def test_nodes_rank_by_idle_gpus_then_use(
    nodes: list[ClusterNode], read: dict[str, NodeLoad], gpus: int, want: str | None
) -> None:
    chosen = choose(of_cluster(gpus), cluster(*nodes, loads=read))

    assert (chosen.cluster_id, chosen.node_name, chosen.hostname) == ("k8s", want, want)
    assert chosen.gpus == gpus
    assert chosen.message


@pytest.mark.parametrize(
    ("used", "full", "want"), [(19.9, 39.9, "a"), (20.0, 0, None), (0, 40, None)]
)
def test_the_thresholds_are_the_requests(used: float, full: float, want: str | None) -> None:
    read = {"a": loads((used, full))}
    request = of_cluster(utilization_threshold_percent=20.0, memory_threshold_percent=40.0)

    assert choose(request, cluster(node("a", 1), loads=read)).node_name == want


@pytest.mark.parametrize(
    ("serves", "least", "want"),
    [("12.4", "12.4", "a"), ("12.3", "12.4", None), ("13.0", "12.4", "a"), (None, "12.4", "a")],
)
def test_node_with_older_driver_label_is_skipped(
    serves: str | None, least: str, want: str | None
) -> None:
    key, operator = DRIVER_AT_LEAST
    request = replace(
        of_cluster(), require=(Selector(key=key, operator=operator, values=(least,)),)
    )

    chosen = choose(request, cluster(replace(node("a"), cuda_driver_version=serves)))

    assert chosen.node_name == want


def test_resource_with_most_left_is_chosen() -> None:
    def offered(resource: str, requested: int) -> NodeGpus:
        return NodeGpus(
            resource=resource,
            supply=GpuSupply.DEVICE_PLUGIN,
            capacity=4,
            allocatable=4,
            requested=requested,
            by_reservation={},
        )

    plugin, claims = offered("nvidia.com/gpu", 3), offered("gpu.nvidia.com", 1)
    shared = offered("nvidia.com/gpu.shared", 0)
    several = replace(node("a"), gpus=(plugin, claims, shared))

    assert gpus_of(several, None) == claims
    assert gpus_of(several, "nvidia.com/gpu") == plugin
    assert gpus_of(several, "nvidia.com/mig-1g.10gb") is None
    assert gpus_of(replace(several, gpus=(shared,)), None) is None


def test_choice_left_to_cluster_tells_why() -> None:
    full = cluster(node("a", 2, requested=1), node("b", 1))

    none_idle = choose(of_cluster(2), full)
    not_asked = choose(of_cluster(1, selects_node=False), full)

    assert none_idle.message == (
        "left to the cluster's scheduler: no node has 2 idle GPUs; the most that one has is 1"
    )
    assert not_asked.message == "left to the cluster's scheduler: the request selects no node"
    assert (none_idle.node_name, none_idle.resource) == (None, "nvidia.com/gpu")


def test_the_supply_of_the_chosen_gpus_is_told() -> None:
    dra = node("b", resource="gpu.nvidia.com", supply=GpuSupply.DRA)
    mig = node("a", 7, resource="nvidia.com/mig-1g.10gb")

    by_default = choose(of_cluster(), cluster(mig, dra))
    by_name = choose(of_cluster(resource="nvidia.com/mig-1g.10gb"), cluster(mig, dra))
    nowhere = choose(of_cluster(9), cluster(dra))

    assert (by_default.node_name, by_default.supply) == ("b", GpuSupply.DRA)
    assert (by_name.node_name, by_name.resource) == ("a", "nvidia.com/mig-1g.10gb")
    assert (nowhere.node_name, nowhere.resource, nowhere.supply) == (
        *(None, "gpu.nvidia.com"),
        GpuSupply.DRA,
    )


def test_named_nodes_are_kept_even_if_busy() -> None:
    known = cluster(node("gpu.a", 8), node("b", 2, requested=1), node("c", 2), loads={"c": BUSY})

    idle = choose(of_cluster(1, node_names=("b", "c")), known)
    free = choose(of_cluster(2, node_names=("b", "c")), known)
    by_id = choose(of_cluster(1, node_names=("gpu-a",)), known)
    (never,) = waits(of_cluster(1, node_names=("z",)), known)

    assert (idle.node_name, free.node_name, by_id.node_name) == ("b", "c", "gpu.a")
    assert never.code is ReasonCode.NODE_MISMATCH


def test_avoided_node_is_the_last_resort() -> None:
    known = cluster(node("gpu.a", 8), node("b", 1), node("c", 8), loads={"c": BUSY})

    other = choose(of_cluster(1, avoided_node_names=("gpu.a",)), known)
    only_idle = choose(of_cluster(2, avoided_node_names=("gpu.a",)), known)
    left = choose(of_cluster(9, avoided_node_names=("gpu.a",)), known)
    among_named = choose(
        of_cluster(2, avoided_node_names=("gpu.a",), node_names=("gpu.a", "c")), known
    )

    assert (other.node_name, only_idle.node_name) == ("b", "gpu.a")
    assert other.message.startswith("keeps off gpu.a; b: 1 of 1 allocatable GPUs idle")
    assert (left.node_name, among_named.node_name) == (None, "gpu.a")


def test_model_memory_and_capability_choose_nodes() -> None:
    h100 = node("a", 4, gpu_model="NVIDIA H100 80GB HBM3", gpu_memory_mb=81_559)
    t4 = node("b", 8, gpu_model="Tesla T4", gpu_memory_mb=15_360)

    assert choose(of_cluster(), cluster(h100, t4)).node_name == "b"
    assert choose(of_cluster(gpu_models=("h100",)), cluster(h100, t4)).node_name == "a"
    assert choose(of_cluster(min_memory_mb=20_000), cluster(h100, t4)).node_name == "a"
    assert choose(of_cluster(min_compute_capability="8.9"), cluster(h100, t4)).node_name == "a"
    (reason,) = waits(of_cluster(gpu_models=("B200",)), cluster(h100, t4))
    assert reason.code is ReasonCode.MODEL_MISMATCH


@pytest.mark.parametrize(
    ("bound", "left"),
    [
        pytest.param({}, 4, id="its pod is not there yet"),
        pytest.param({MINE: 4}, 4, id="its pod is bound, and counted once"),
        pytest.param({MINE: 1}, 4, id="a part of it is"),
        pytest.param({UUID(int=8): 2}, 2, id="another's pod"),
    ],
)
def test_a_holding_counts_until_it_is_given_back(bound: dict[UUID, int], left: int) -> None:
    known = cluster(node("a", 8, requested=sum(bound.values()), by_reservation=bound))
    fleet = ClusterFleet([known], [held(4)], NOW)

    assert fleet.summaries(DEFAULTS)["a"].allocatable_gpus == left
    assert fleet.summaries(DEFAULTS)["a"].idle_gpu_count == left


def test_promised_gpus_are_not_chosen_twice() -> None:
    foreign = {"a": loads(*[(99.0, 99.0)] * 4, *[(0.0, 0.0)] * 4)}
    bound = cluster(node("a", 8, requested=4, by_reservation={MINE: 4}), loads=foreign)
    busy = {"a": loads(*[(99.0, 99.0)] * 4, *[(0.0, 0.0)] * 4)}

    just_bound = choose(of_cluster(1), bound, holdings=(held(4, granted_at=NOW),))
    waiting = choose(of_cluster(1), cluster(node("a"), loads=foreign), holdings=(held(4),))
    long_since = choose(of_cluster(1), replace(bound, loads=busy), holdings=(held(4),))

    assert (just_bound.node_name, waiting.node_name, long_since.node_name) == (None, None, "a")


def test_gpu_given_by_kubelet_is_not_idle() -> None:
    foreign, given, idle = GpuLoad(99.0, 99.0), GpuLoad(0.0, 0.0, is_in_pod=True), GpuLoad(0.0, 0.0)
    read = {"a": NodeLoad.of([foreign, given, idle, idle])}
    known = cluster(node("a", 4, requested=1), loads=read)

    assert choose(of_cluster(2), known).node_name == "a"
    assert choose(of_cluster(3), known).node_name is None


def test_cluster_without_view_is_waited_for() -> None:
    reason = Reason(code=ReasonCode.AWAITING_CLUSTER, message="waits", node_id="k8s")
    silent, other = cluster(node("a"), blocked=reason), cluster(node("b"), cluster_id="other")

    assert waits(of_cluster(), silent) == (reason,)
    assert waits(of_cluster(cluster_id="k8s"), silent, other) == (reason,)
    assert choose(of_cluster(), silent, other).node_name == "b"
    assert choose(of_cluster(node_ids=("other",)), silent, other).cluster_id == "other"
    (unknown,) = waits(of_cluster(cluster_id="nowhere"), other)
    assert "cluster nowhere" in unknown.message
    assert waits(of_cluster())[0].code is ReasonCode.AWAITING_CLUSTER


def test_best_node_of_several_clusters_is_chosen() -> None:
    small, large = cluster(node("a", 2)), cluster(node("b", 4, requested=1), cluster_id="large")

    assert choose(of_cluster(2), small, large).cluster_id == "large"
    assert choose(of_cluster(8), small, large).cluster_id == "large"


def test_equal_node_names_of_clusters_differ() -> None:
    fleet = ClusterFleet([cluster(node("a", 1)), cluster(node("a", 2), cluster_id="two")], (), NOW)

    found = fleet.summaries(DEFAULTS)

    assert {name: each.total_gpus for name, each in found.items()} == {"a": 1, "two/a": 2}


def test_closed_node_has_nothing_in_its_summary() -> None:
    fleet = ClusterFleet(
        [cluster(node("a", 4, is_cordoned=True), node("b", 4, requested=1))], (), NOW
    )

    found = fleet.summaries(DEFAULTS)

    assert {
        name: (each.total_gpus, each.allocatable_gpus, each.idle_gpu_count)
        for name, each in found.items()
    } == {"a": (4, 0, 0), "b": (4, 3, 3)}


# An independent count: what each node was promised, against what it has.
_NODES = st.lists(
    st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), min_size=1, max_size=6
)
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["bind", "end", "tell"]), st.integers(0, 30)),
    ),
    max_size=40,
)


@given(nodes=_NODES, steps=_STEPS)
def test_no_node_is_ever_promised_more_than_it_has(
    nodes: list[tuple[int, int, bool]], steps: list[tuple[str, int]]
) -> None:
    """Requests, binding pods, ends, and a view that is told of pods only now and then."""
    capacity = {f"n{i}": gpus for i, (gpus, _, _) in enumerate(nodes)}
    foreign = {f"n{i}": min(used, gpus) for i, (gpus, used, _) in enumerate(nodes)}
    cordoned = {f"n{i}" for i, (_, _, out) in enumerate(nodes) if out}
    promised: dict[UUID, ClusterHolding] = {}
    bound: set[UUID] = set()

    def view() -> Cluster:
        return cluster(
            *(
                node(
                    name,
                    gpus,
                    is_cordoned=name in cordoned,
                    requested=foreign[name]
                    + sum(promised[r].gpus for r in bound if promised[r].node_name == name),
                    by_reservation={
                        r: promised[r].gpus for r in bound if promised[r].node_name == name
                    },
                )
                for name, gpus in capacity.items()
            )
        )

    told = view()
    for what, number in steps:
        open_ones = sorted(promised)
        if what == "ask":
            placed = choose(of_cluster(number), told, holdings=tuple(promised.values()))
            reservation_id = new_id()
            promised[reservation_id] = held(
                number, placed.node_name, reservation_id=reservation_id, granted_at=NOW
            )
            assert placed.node_name not in cordoned
        elif what == "bind" and open_ones:
            bound.add(open_ones[number % len(open_ones)])
        elif what == "end" and open_ones:
            gone = open_ones[number % len(open_ones)]
            bound.discard(gone)
            del promised[gone]
        elif what == "tell":
            told = view()
        count = Counter(foreign)
        for holding in promised.values():
            if holding.node_name is not None:
                count[holding.node_name] += holding.gpus
        assert all(count[name] <= capacity[name] for name in capacity), count


def test_largest_memory_is_of_usable_known_nodes() -> None:
    small = node("a", gpu_model="L4", gpu_memory_mb=24_000)
    large = node("b", gpu_model="H100", gpu_memory_mb=80_000)
    unknown = node("c", gpu_model="L4")
    wanted = ClusterRequest()

    assert largest_memory_mb([small, large], of_cluster(min_memory_mb=1 << 40), wanted) == 80_000
    assert largest_memory_mb([small, large], of_cluster(gpu_models=("L4",)), wanted) == 24_000
    assert largest_memory_mb([small, unknown], of_cluster(), wanted) is None
    assert largest_memory_mb([], of_cluster(), wanted) is None


def test_gang_gets_all_of_its_nodes_of_one_cluster() -> None:
    fleet = ClusterFleet(
        [
            cluster(node("lone"), cluster_id="east"),
            cluster(node("a"), node("b", requested=5), node("c"), cluster_id="west"),
        ],
        (),
        NOW,
    )
    request = of_cluster(4, nodes=2)

    choice = fleet.choose(request)

    assert isinstance(choice, Choice), choice
    placed = choice.placement
    assert (placed.cluster_id, placed.gpus, placed.total_gpus) == ("west", 4, 8)
    assert [placed.node_name, *(n.node_name for n in placed.other_nodes)] == ["a", "c"]
    # All of it is taken from then on: what is left there is one GPU group a node.
    fleet.take(MINE, request, placed)
    second = fleet.choose(request)
    assert isinstance(second, Choice)
    fleet.take(UUID(int=8), request, second.placement)
    assert isinstance(fleet.choose(request), tuple)


def test_gang_waits_and_is_never_left_to_chance() -> None:
    [reason] = waits(of_cluster(8, nodes=3), cluster(node("a"), node("b"), node("c", requested=1)))

    assert reason.code is ReasonCode.TOO_FEW_NODES
    assert reason.message == "waits for 3 nodes with 8 idle GPUs each; 2 have that"
