"""GPUs of a cluster that plugins divide: no exclusive work lands there, and people see why."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.cluster.node_selection import ClusterGpu
from schemas.cluster.nodes import ClusterNode, GpuSharing, GpuSupply, NodeGpus
from schemas.gpus.device_grant import ClusterPlacement
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reasons import Reason, ReasonCode
from services.scheduler.domain.clusters.choice import Choice, Cluster, ClusterFleet, selection
from services.scheduler.domain.clusters.divided import doubt_units
from services.scheduler.domain.clusters.gpu_status import gpu_status
from services.scheduler.domain.clusters.node_gpus import GpuLoad, NodeLoad, Thresholds
from tests.support.worlds.scheduler_cluster import make_cluster_node, of_cluster
from tests.unit.scheduler.builders import NOW

GPU = "nvidia.com/gpu"
SHARED_LABEL = "nvidia.com/gpu.sharing-strategy"
NOTE = f"{SHARED_LABEL}=time-slicing: a unit of nvidia.com/gpu is one of 12 shares of a GPU"
BUSY = {"t4": NodeLoad.of([GpuLoad(100.0, 60.0)])}


def t4(name: str = "t4", held: int = 0, **more: Any) -> ClusterNode:
    """A GPU of which 12 pods may have a share, as the cluster's service tells it."""
    gpus = NodeGpus(
        resource=GPU,
        supply=GpuSupply.DEVICE_PLUGIN,
        capacity=1,
        allocatable=1,
        requested=held,
        units_per_gpu=12,
        allocatable_units=12,
        requested_units=held,
        sharing=GpuSharing.TIME_SLICING,
        note=NOTE,
    )
    labels = {SHARED_LABEL: "time-slicing"}
    return replace(make_cluster_node(name), gpus=(gpus,), labels=labels, **more)


def refused(name: str = "mig", resource: str = GPU, **more: Any) -> ClusterNode:
    gpus = NodeGpus(
        resource=resource,
        supply=GpuSupply.DEVICE_PLUGIN,
        capacity=0,
        allocatable=0,
        requested=0,
        is_refused=True,
        note="nvidia.com/gpu.product=A100-MIG-1g.5gb: a unit is a MIG instance; ask for one",
    )
    return replace(make_cluster_node(name), gpus=(gpus,), **more)


def fleet(*nodes: ClusterNode, **more: Any) -> ClusterFleet:
    cluster = Cluster(cluster_id="k8s", nodes={each.name: each for each in nodes}, **more)
    return ClusterFleet([cluster], (), NOW)


def placed(request: GpuRequest, *nodes: ClusterNode, **more: Any) -> ClusterPlacement:
    found = fleet(*nodes, **more).choose(request)
    assert isinstance(found, Choice), found
    return found.placement


@pytest.mark.parametrize("load", [{}, BUSY], ids=["not read", "busy"])
@pytest.mark.parametrize(
    "request_", [of_cluster(1), of_cluster(1, resource=GPU), of_cluster(12)], ids=repr
)
def test_whole_gpus_are_never_of_a_shared_board(
    load: dict[str, NodeLoad], request_: GpuRequest
) -> None:
    placement = placed(request_, t4(), loads=load)

    assert placement.node_name is None
    assert f"the most that one has is 0; t4: {NOTE}" in placement.message


def test_a_share_of_a_board_is_given_out_as_a_share() -> None:
    request = of_cluster(1, resource=GPU, units=1)

    assert placed(request, t4(held=11), loads=BUSY).node_name == "t4"
    assert placed(request, t4(held=12)).node_name is None


@pytest.mark.parametrize("units", [None, 1], ids=["whole", "in parts"])
def test_what_is_refused_is_given_out_in_no_way(units: int | None) -> None:
    nodes = (replace(refused(), gpus=(replace(refused().gpus[0], allocatable=8, capacity=8),)),)

    placement = placed(of_cluster(1, resource=GPU, units=units), *nodes)

    assert placement.node_name is None
    assert "mig: nvidia.com/gpu.product=A100-MIG-1g.5gb" in placement.message


def test_whole_gpus_beside_divided_ones_are_chosen() -> None:
    assert placed(of_cluster(2), t4(), refused(), make_cluster_node("z", 2)).node_name == "z"


def test_shared_instances_are_no_instances() -> None:
    resource = "nvidia.com/mig-1g.5gb"
    shared = refused("a", resource)
    whole = make_cluster_node("b", 7, resource=resource)

    assert placed(of_cluster(1, resource=resource), shared, whole).node_name == "b"
    left = placed(of_cluster(8, resource=resource), shared, whole)
    assert (left.node_name, left.avoided_hostnames) == (None, ("a",))


def test_left_pods_avoid_unlabelled_nodes() -> None:
    nodes = (t4(), refused("hami"), refused("nameless", hostname=None), make_cluster_node("z", 1))

    whole = placed(of_cluster(2), *nodes)
    share = placed(of_cluster(1, resource=GPU, units=13), *nodes)
    not_asked = placed(of_cluster(1, selects_node=False), *nodes)

    assert whole.avoided_hostnames == not_asked.avoided_hostnames == ("hami",)
    assert selection(Choice(placement=whole)).avoided_hostnames == ("hami",)
    assert share.avoided_hostnames == ()


def test_named_divided_node_is_refused() -> None:
    found = fleet(t4(), make_cluster_node("z")).choose(of_cluster(1, node_names=("t4",)))

    assert isinstance(found, tuple)
    (reason,) = found
    assert isinstance(reason, Reason)
    assert reason.code is ReasonCode.NODE_MISMATCH
    assert NOTE in reason.message


@pytest.mark.parametrize(
    ("nodes", "told", "ending"),
    [(2, 2, NOTE), (3, 2, "; and 1 more node"), (5, 2, "; and 3 more nodes")],
)
def test_of_many_divided_nodes_two_are_told(nodes: int, told: int, ending: str) -> None:
    message = placed(of_cluster(1), *(t4(f"t4-{n}") for n in range(nodes))).message

    assert message.count(NOTE) == told
    assert message.endswith(ending)


def test_summaries_count_boards_and_shares() -> None:
    found = fleet(
        t4(held=5), t4("cordoned", is_cordoned=True), refused(), make_cluster_node("z", 8)
    ).summaries(Thresholds(30.0, 50.0))

    assert {
        name: (
            *(each.total_gpus, each.allocatable_gpus, each.idle_gpu_count),
            *(each.total_shares, each.free_shares),
        )
        for name, each in found.items()
    } == {
        "t4": (1, 0, 0, 12, 7),
        "cordoned": (1, 0, 0, 12, 0),
        "mig": (0, 0, 0, 0, 0),
        "z": (8, 8, 8, 0, 0),
    }
    assert (found["t4"].note, found["z"].note) == (NOTE, "")


def test_shared_board_is_listed_once_not_free() -> None:
    read = ClusterGpu(
        node_name="t4",
        gpu_index=0,
        gpu_uuid="GPU-1",
        gpu_model="Tesla T4",
        allocatable=False,
        utilization_percent=100.0,
        has_metrics=True,
    )

    by_agent = gpu_status([read], fleet(t4(), loads=BUSY))
    (unread,) = gpu_status([], fleet(t4()))

    assert by_agent == [replace(read, cluster_id="k8s", note=NOTE)]
    assert (unread.gpu_index, unread.allocatable, unread.note) == (0, False, NOTE)


@pytest.mark.parametrize(
    ("counted", "read", "labels", "doubted"),
    [
        pytest.param(12, 1, {}, True, id="twelve units of one GPU"),
        pytest.param(8, 4, {}, True, id="two units of each"),
        pytest.param(8, 7, {}, False, id="a GPU is lost, and not yet taken off"),
        pytest.param(8, 8, {}, False, id="whole GPUs"),
        pytest.param(8, None, {}, False, id="not all are read"),
        pytest.param(12, 1, {"gpusteward.io/gpus": "whole"}, False, id="an operator says so"),
    ],
)
def test_more_units_than_boards_are_no_whole_gpus(
    counted: int, read: int | None, labels: dict[str, str], *, doubted: bool
) -> None:
    load = NodeLoad.of([GpuLoad(99.0, 9.0)] * (read or 2), is_all=read is not None)
    plain = make_cluster_node("a", counted, labels=labels)

    (gpus,) = doubt_units(plain, load).gpus

    assert gpus.is_refused is doubted
    if doubted:
        assert (gpus.capacity, gpus.allocatable) == (read, 0)
        assert gpus.note.startswith(f"{counted} nvidia.com/gpu on {read} GPUs that are read: ")


def test_shares_that_are_told_are_not_doubted() -> None:
    assert doubt_units(t4(), NodeLoad.of([GpuLoad(99.0, 9.0)], is_all=True)) == t4()
