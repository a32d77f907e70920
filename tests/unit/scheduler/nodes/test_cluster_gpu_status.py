"""GPUs of clusters' nodes beside those that agents report."""

from typing import Any

from schemas.cluster.node_selection import ClusterGpu
from schemas.cluster.nodes import ClusterGpuReading
from services.scheduler.domain.clusters.choice import Cluster, ClusterFleet
from services.scheduler.domain.clusters.gpu_status import gpu_status
from services.scheduler.domain.clusters.node_gpus import STALE
from tests.support.worlds.scheduler_cluster import make_cluster_node
from tests.unit.scheduler.builders import NOW


def of_agent(node: str, index: int = 0, **fields: Any) -> ClusterGpu:
    given = {"gpu_uuid": f"GPU-{index}", "gpu_model": "A100", "has_metrics": True, **fields}
    return ClusterGpu(node_name=node, gpu_index=index, allocatable=False, **given)


def status(*nodes: Any, own: tuple[ClusterGpu, ...] = (), **more: Any) -> list[ClusterGpu]:
    cluster = Cluster(cluster_id="k8s", nodes={each.name: each for each in nodes}, **more)
    return gpu_status(own, ClusterFleet([cluster], (), NOW))


def test_cluster_and_own_nodes_are_listed_together() -> None:
    alone = of_agent("z")

    found = status(make_cluster_node("b", 2), make_cluster_node("a", 1), own=(alone,))

    assert [(gpu.node_name, gpu.gpu_index, gpu.cluster_id) for gpu in found] == [
        ("a", 0, "k8s"),
        ("b", 0, "k8s"),
        ("b", 1, "k8s"),
        ("z", 0, None),
    ]
    assert found[-1] == alone


def test_node_read_twice_is_listed_once() -> None:
    read = (of_agent("a", 0, utilization_percent=90.0), of_agent("a", 1, has_metrics=False))

    first, second = status(make_cluster_node("a", 2), own=read)

    assert (first.gpu_uuid, first.utilization_percent) == ("GPU-0", 90.0)
    assert (second.gpu_uuid, second.has_metrics) == (None, False)


def test_least_used_gpus_count_as_free() -> None:
    readings = tuple(
        ClusterGpuReading(index=index, memory_used_mb=used, memory_total_mb=100)
        for index, used in enumerate((50, 10, 90, 0))
    )

    found = status(make_cluster_node("a", 4, requested=2, readings=readings))

    assert [gpu.gpu_index for gpu in found if gpu.allocatable] == [1, 3]
    assert [gpu.memory_usage_percent for gpu in found] == [50.0, 10.0, 90.0, 0.0]
    assert all(gpu.has_metrics for gpu in found)


def test_of_equal_memory_the_less_utilized_is_free() -> None:
    readings = tuple(
        ClusterGpuReading(index=index, utilization_percent=percent)
        for index, percent in enumerate((80.0, 20.0))
    )

    found = status(make_cluster_node("a", 2, requested=1, readings=readings))

    assert [gpu.allocatable for gpu in found] == [False, True]
    assert [gpu.memory_usage_percent for gpu in found] == [None, None]


def test_stale_readings_are_not_shown() -> None:
    readings = (ClusterGpuReading(index=0, memory_used_mb=50, memory_total_mb=100),)

    (gpu,) = status(make_cluster_node("a", 1, readings=readings), loads={"a": STALE})

    assert gpu.is_stale
    assert (gpu.memory_used_mb, gpu.has_metrics) == (None, False)


def test_the_model_is_the_node_s_else_its_resource() -> None:
    named, unnamed = status(
        make_cluster_node("a", 1, gpu_model="NVIDIA-L4", gpu_memory_mb=23_034),
        make_cluster_node("b", 1),
    )

    assert (named.gpu_model, named.memory_total_mb) == ("NVIDIA-L4", 23_034)
    assert (unnamed.gpu_model, unnamed.memory_total_mb) == ("nvidia.com/gpu", None)


def test_memory_without_use_is_no_percentage() -> None:
    readings = (ClusterGpuReading(index=0, memory_total_mb=100),)

    (gpu,) = status(make_cluster_node("a", 1, readings=readings))

    assert (gpu.memory_total_mb, gpu.memory_usage_percent) == (100, None)
