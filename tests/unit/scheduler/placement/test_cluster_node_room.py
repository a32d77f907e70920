"""What of a cluster's node counts beside its GPUs: room, wishes, past use, what is left over."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.cluster.nodes import ClusterNode, HostAmounts
from schemas.gpus.gpu_request import (
    GpuRequest,
    NodeRanking,
    Preference,
    Selector,
    SelectorKey,
    SelectorOperator,
)
from schemas.scheduler.reasons import ReasonCode
from services.scheduler.domain.clusters.choice import (
    Choice,
    Cluster,
    ClusterFleet,
    selection,
)
from services.scheduler.domain.clusters.holdings import ClusterHolding
from services.scheduler.domain.clusters.host_room import host_needs
from services.scheduler.domain.model.inputs import QueuedRequest
from services.scheduler.leader.cluster_decisions import decide_in_turn
from services.scheduler.observations.past_use import PastUse
from shared.ids import new_id
from tests.support.worlds.scheduler_cluster import make_cluster_node as node
from tests.support.worlds.scheduler_cluster import of_cluster
from tests.unit.scheduler.builders import NOW


def amounts(cpus: float = 0, memory_mb: int = 0, storage_mb: int = 0, pods: int = 0) -> HostAmounts:
    return HostAmounts(
        cpu_milli=round(cpus * 1000),
        memory_mb=memory_mb,
        ephemeral_storage_mb=storage_mb,
        pods=pods,
    )


def roomy(
    name: str, gpus: int = 8, *, asked: HostAmounts | None = None, **more: Any
) -> ClusterNode:
    """A node of 64 CPUs, 500,000 MB of memory and of storage, and 110 pods."""
    return node(
        name,
        gpus,
        allocatable_host=amounts(64, 500_000, 500_000, 110),
        requested_host=asked or amounts(),
        **more,
    )


def fleet(
    *nodes: ClusterNode, holdings: tuple[ClusterHolding, ...] = (), **more: Any
) -> ClusterFleet:
    cluster = Cluster(cluster_id="k8s", nodes={each.name: each for each in nodes}, **more)
    return ClusterFleet([cluster], holdings, NOW)


def chosen(request: GpuRequest, *nodes: ClusterNode, **more: Any) -> str | None:
    found = fleet(*nodes, **more).choose(request)
    assert isinstance(found, Choice), found
    return found.placement.node_name


FULL = amounts(60, 400_000, 450_000, 40)


@pytest.mark.parametrize(
    ("request_", "want"),
    [
        pytest.param(of_cluster(1), "full", id="nothing beside GPUs"),
        pytest.param(of_cluster(1, cpu_count=4.0), "full", id="CPUs that are left"),
        pytest.param(of_cluster(1, cpu_count=4.5), "free", id="more CPUs than are left"),
        pytest.param(of_cluster(1, host_memory_mb=100_001), "free", id="more memory"),
        pytest.param(of_cluster(1, pod_ephemeral_storage_mb=50_001), "free", id="more storage"),
        pytest.param(
            of_cluster(1, cpu_count=64.0, pod_cpu_count=2.0), "full", id="what the pod itself asks"
        ),
        pytest.param(of_cluster(1, host_memory_mb=600_000), None, id="more than any node has"),
    ],
)
def test_node_without_room_is_not_chosen(request_: GpuRequest, want: str | None) -> None:
    assert chosen(request_, roomy("full", 8, asked=FULL), roomy("free", 4)) == want


def test_unknown_room_excludes_no_node() -> None:
    of_old_kubelet = node("a", allocatable_host=amounts(64, 500_000, 0, 110))
    request = of_cluster(1, cpu_count=8.0, pod_ephemeral_storage_mb=1_000)

    assert chosen(request, node("a")) == "a"
    assert chosen(request, of_old_kubelet) == "a"


def test_node_with_all_its_pods_is_not_chosen() -> None:
    assert chosen(of_cluster(1), roomy("a", asked=amounts(pods=110)), roomy("b", 1)) == "b"


def test_reason_names_what_was_requested() -> None:
    request = of_cluster(1, cpu_count=63.5, host_memory_mb=400_000)

    found = selection(fleet(roomy("a", asked=amounts(32))).choose(request))

    assert found.node_id is None
    assert "an idle GPU with room for 63.5 CPUs and 400000 MB of memory" in found.message


def test_named_nodes_are_kept_without_room() -> None:
    request = of_cluster(1, cpu_count=8.0, node_names=("a", "b"))

    assert chosen(request, roomy("a", asked=FULL), roomy("b", 1), roomy("c")) == "b"
    assert chosen(request, roomy("a", asked=FULL), roomy("c")) == "a"


def test_promised_pod_counts_until_it_is_bound() -> None:
    mine = UUID(int=7)

    def promised(request: GpuRequest) -> ClusterHolding:
        return ClusterHolding(
            reservation_id=mine,
            cluster_id="k8s",
            node_name="a",
            resource="nvidia.com/gpu",
            gpus=1,
            granted_at=NOW - timedelta(hours=1),
            host=host_needs(request),
        )

    request = of_cluster(1, cpu_count=40.0)
    bound = roomy("a", requested=1, by_reservation={mine: 1}, asked=amounts(20))

    assert chosen(request, roomy("a"), roomy("b", 1), holdings=(promised(request),)) == "b"
    assert chosen(request, bound, roomy("b", 1), holdings=(promised(request),)) == "a"


def test_joint_requests_share_a_nodes_room() -> None:
    queued = [
        QueuedRequest(
            reservation_id=new_id(),
            request=of_cluster(1, cpu_count=30.0),
            arrival=number,
            queued_at=NOW,
            wait_deadline_at=NOW + timedelta(hours=1),
        )
        for number in range(4)
    ]

    placed, _ = decide_in_turn(queued, fleet(roomy("a"), roomy("b", 2)))

    names = [each.placement.node_name for each in placed.values()]
    assert names == ["a", "a", "b", "b"]


def liked(*weighted: tuple[Selector, int]) -> tuple[Preference, ...]:
    return tuple(Preference(selector=each, weight=weight) for each, weight in weighted)


ZONE = Selector(key=SelectorKey.LABEL, label="zone", values=("east",))
NAMED = Selector(key=SelectorKey.NODE, values=("b",))


@pytest.mark.parametrize(
    ("prefer", "want"),
    [
        pytest.param((), "a", id="nothing: the most idle one"),
        pytest.param(liked((ZONE, 1)), "c", id="a label"),
        pytest.param(liked((ZONE, 1), (NAMED, 2)), "b", id="the greater weight"),
        pytest.param(
            liked((Selector(key=SelectorKey.GPU_MODEL, values=("H100",)), 1)), "b", id="a model"
        ),
    ],
)
def test_preference_beats_idle_gpus(prefer: tuple[Preference, ...], want: str) -> None:
    nodes = (
        node("a", 8, gpu_model="A100"),
        node("b", 4, gpu_model="NVIDIA H100"),
        node("c", 2, gpu_model="A100", labels={"zone": "east"}),
    )

    assert chosen(of_cluster(1, prefer=prefer), *nodes) == want
    assert chosen(of_cluster(8, prefer=prefer), *nodes) == "a"  # a wish, not a demand


def test_required_label_is_kept_and_told() -> None:
    east = node("a", 1, labels={"zone": "east"})
    request = of_cluster(1, require=(ZONE,))

    assert chosen(request, east, node("b", 8)) == "a"
    assert chosen(of_cluster(4, require=(ZONE,)), east, node("b", 8)) == "a"
    never = fleet(node("b")).choose(request)
    assert isinstance(never, tuple)
    assert [each.code for each in never] == [ReasonCode.NODE_MISMATCH]
    not_b = Selector(key=SelectorKey.NODE, operator=SelectorOperator.NOT_IN, values=("b",))
    assert chosen(of_cluster(1, require=(not_b,)), east, node("b", 8)) == "a"


def test_less_used_of_equal_nodes_is_chosen() -> None:
    nodes = (node("a", 4), node("b", 4))

    assert chosen(of_cluster(1), *nodes, past_use={"a": 25.0, "b": 2.0}) == "b"
    assert chosen(of_cluster(1), *nodes, past_use={"a": 25.0}) == "b"


def test_fuller_of_equal_nodes_is_chosen() -> None:
    """So that what is wholly free stays so: `b` has a free GPU that is busy by itself."""
    from services.scheduler.domain.clusters.node_gpus import GpuLoad, NodeLoad

    read = {
        "a": NodeLoad.of([GpuLoad(40.0, 0.0), *[GpuLoad(0.0, 0.0)] * 3]),
        "b": NodeLoad.of([GpuLoad(10.0, 0.0)] * 3),
    }

    assert chosen(of_cluster(1), node("a", 4), node("b", 3), loads=read) == "b"


@pytest.mark.parametrize(("gpus", "want"), [(1, "c"), (2, "b"), (3, "b"), (5, "a")])
def test_least_fragmenting_leaves_the_fewest(gpus: int, want: str) -> None:
    nodes = (node("a", 8), node("b", 8, requested=5), node("c", 1))

    assert chosen(of_cluster(gpus, ranking=NodeRanking.LEAST_FRAGMENTING), *nodes) == want
    assert chosen(of_cluster(gpus), *nodes) == "a"


def test_summary_tells_past_use_and_host_room() -> None:
    found = selection(
        fleet(roomy("a", asked=amounts(4, 1_000)), past_use={"a": 7.5}).choose(of_cluster(1))
    )

    assert found.hostname == "a"
    assert found.summary is not None
    assert found.summary.past_utilization_percent == 7.5
    assert found.summary.free_host == amounts(60, 499_000, 500_000, 110)


def test_past_use_halves_and_skips_gaps() -> None:
    past = PastUse(half_life_seconds=100.0, longest_seconds=100.0)

    past.record("a", 80.0, 0.0)
    past.record("a", None, 50.0)
    past.record("a", 0.0, 100.0)
    half = past.mean("a")
    past.record("a", 0.0, 1_000_000.0)

    assert (half, past.mean("a"), past.mean("b")) == (40.0, 20.0, None)


_NODE = st.builds(
    lambda name, gpus, used, cpus, zone: roomy(
        f"n{name}",
        gpus,
        requested=min(used, gpus),
        asked=amounts(cpus, cpus * 1_000),
        labels={"zone": zone},
    ),
    st.integers(0, 9),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 64),
    st.sampled_from(["east", "west"]),
)
_REQUEST = st.builds(
    lambda gpus, cpus, prefers, requires, ranking: of_cluster(
        gpus,
        cpu_count=cpus,
        prefer=liked((ZONE, 3)) if prefers else (),
        require=(ZONE,) if requires else (),
        ranking=ranking,
    ),
    st.integers(1, 8),
    st.sampled_from([None, 1.0, 16.0, 63.0]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(NodeRanking),
)


@given(nodes=st.lists(_NODE, max_size=8), requests=st.lists(_REQUEST, min_size=1, max_size=8))
def test_select_node_matches_a_deployment(
    nodes: list[ClusterNode], requests: list[GpuRequest]
) -> None:
    """Asked before each, on what those before it have taken; never more than there is."""
    by_name = {each.name: each for each in nodes}
    known = fleet(*by_name.values())
    taken: dict[str, list[GpuRequest]] = {}

    for request in requests:
        said = selection(known.choose(request))
        queued = QueuedRequest(
            reservation_id=new_id(),
            request=request,
            arrival=1,
            queued_at=NOW,
            wait_deadline_at=NOW + timedelta(hours=1),
        )
        placed, _ = decide_in_turn([queued], known)
        got = placed[queued.reservation_id].placement.node_name if placed else None
        assert said.node_id == got
        if got is not None and not request.require:
            taken.setdefault(got, []).append(request)

    for name, granted in taken.items():
        has = by_name[name]
        cpus = sum(each.cpu_count or 0 for each in granted)
        assert sum(each.gpus for each in granted) <= has.gpus[0].allocatable - has.gpus[0].requested
        assert cpus * 1000 + has.requested_host.cpu_milli <= 64_000 or not cpus
