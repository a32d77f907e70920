"""One engine over several nodes of a real control plane: it starts, fails and ends as a whole."""

from pathlib import Path

import pytest

from schemas.errors import ErrorCode
from schemas.executor.attempts import FailureKind, Runtime
from schemas.gpus.device_grant import ClusterNodeName, ClusterPlacement
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.kubernetes.plan import rank_name
from shared.errors import RefusedError
from tests.support.kubernetes.api import Api, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import PodEngines
from tests.support.kubernetes.leader_worker_sets import CRD_PATH, install_kind
from tests.support.kubernetes.ome_stand_in import OmeStandIn
from tests.support.worlds.cluster_executor import ClusterRuntimes, cluster_settings, cluster_start
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

READY_SECONDS = 60.0
TWO_NODES = ClusterPlacement(
    cluster_id=NODE,
    gpus=4,
    node_name="node-0",
    hostname="node-0",
    resource="nvidia.com/gpu",
    other_nodes=(ClusterNodeName(node_name="node-1", hostname="node-1"),),
)


async def everything(api: Api) -> list[str]:
    """What there is of ours, by name."""
    kinds = (("apps/v1", "Deployment"), ("v1", "Service"), ("v1", "Pod"))
    return [
        item["metadata"]["name"]
        for version, kind in kinds
        for item in await api.items(
            path_to(version, kind, "default"), labelSelector="gpusteward.reservation"
        )
    ]


async def test_engine_over_two_nodes_starts_and_ends_as_one(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=TWO_NODES)
    launch = launch_of(command, settings)

    engine = await runtime.start(launch)
    await engine.until_ready(READY_SECONDS)
    pods = await api.items(path_to("v1", "Pod", "default"), labelSelector="gpusteward.rank")
    [workload] = await runtime.workloads()
    first_log = launch.log.tail(50)
    await engine.stop(1.0)

    by_rank = {pod["metadata"]["labels"]["gpusteward.rank"]: pod for pod in pods}
    assert {rank: pod["spec"]["nodeName"] for rank, pod in by_rank.items()} == {
        "0": "node-0",
        "1": "node-1",
    }
    assert {pod["metadata"]["labels"]["gpusteward.epoch"] for pod in pods} == {str(command.epoch)}
    assert len(workload.container_ids) == 2
    assert "[rank 1] " in first_log
    assert await everything(api) == []


async def test_ome_engine_over_two_nodes_is_one_engine(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    ome: OmeStandIn,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    await install_kind(api)
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.OME, settings)
    command = cluster_start(Runtime.OME, place=TWO_NODES)
    launch = launch_of(command, settings)

    engine = await runtime.start(launch)
    await engine.until_ready(READY_SECONDS)
    pods = await api.items(path_to("v1", "Pod", "default"), labelSelector="gpusteward.reservation")
    [workload] = await runtime.workloads()
    first_log = launch.log.tail(50)
    worker = next(pod for pod in pods if pod["spec"]["nodeName"] == "node-1")
    engines.processes[worker["metadata"]["uid"]].kill()
    why = await engine.until_ended()
    await engine.stop(1.0)

    index = "leaderworkerset.sigs.k8s.io/worker-index"
    by_index = {pod["metadata"]["labels"][index]: pod["spec"]["nodeName"] for pod in pods}
    assert by_index == {"0": "node-0", "1": "node-1"}
    assert {pod["metadata"]["labels"]["gpusteward.epoch"] for pod in pods} == {str(command.epoch)}
    assert len(workload.container_ids) == 2
    assert "[rank 1] " in first_log
    assert why.kind is FailureKind.RANK_FAILED
    assert why.message.startswith("rank 1 on node-1: ")
    assert await everything(api) == []


async def test_ome_without_leader_worker_sets_says_so(
    empty_cluster: ControlPlane,
    api: Api,
    ome: OmeStandIn,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    await api.delete(CRD_PATH)
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.OME, settings)
    launch = launch_of(cluster_start(Runtime.OME, place=TWO_NODES), settings)

    with pytest.raises(AttemptFailed, match="the cluster has no LeaderWorkerSets") as failed:
        await runtime.start(launch)

    assert failed.value.failure.kind is FailureKind.RUNTIME_UNAVAILABLE
    assert await everything(api) == []


async def test_rank_that_dies_ends_the_engine_with_its_reason(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    command = cluster_start(place=TWO_NODES)
    engine = await runtime.start(launch_of(command, settings))
    await engine.until_ready(READY_SECONDS)
    [member] = await api.items(path_to("v1", "Pod", "default"), labelSelector="gpusteward.rank=1")
    engines.processes[member["metadata"]["uid"]].kill()

    why = await engine.until_ended()
    await engine.stop(1.0)

    assert why.kind is FailureKind.RANK_FAILED
    assert why.message.startswith("rank 1 on node-1: ")
    assert await everything(api) == []


async def test_rank_without_room_starts_nothing_and_is_named(
    empty_cluster: ControlPlane,
    api: Api,
    engines: PodEngines,
    runtimes: ClusterRuntimes,
    tmp_path: Path,
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.KUBERNETES, settings)
    await api.merge(path_to("v1", "Node", name="node-1"), {"spec": {"unschedulable": True}})
    command = cluster_start(place=TWO_NODES)
    engine = await runtime.start(launch_of(command, settings))

    with pytest.raises(AttemptFailed) as failed:
        await engine.until_ready(6.0)
    await engine.stop(1.0)

    assert f"rank 1: pod {rank_name(command, 1)}" in failed.value.failure.message
    assert "cannot be scheduled" in failed.value.failure.message
    assert await everything(api) == []


async def test_engine_without_ranks_is_refused(
    empty_cluster: ControlPlane, runtimes: ClusterRuntimes, tmp_path: Path
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path, engine_traffic="plaintext")
    runtime = runtimes.make(Runtime.KUBERNETES, settings)

    with pytest.raises(RefusedError, match="serves on one node only") as refused:
        runtime.check(cluster_start(engine="llamacpp", place=TWO_NODES))

    assert refused.value.code is ErrorCode.UNSUPPORTED
