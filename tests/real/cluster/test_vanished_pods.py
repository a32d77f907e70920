"""Pods that are deleted by force from a real API, foreign and ours: their GPUs are not free."""

from pathlib import Path

from schemas.cluster.nodes import VanishedPod
from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterPlacement
from shared.labels import RESERVATION_LABEL
from shared.testing import eventually
from tests.support.kubernetes.api import path_to
from tests.support.kubernetes.cluster_view import ReceivedView, watched_cluster
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes, pod_object
from tests.support.worlds.cluster_executor import (
    cluster_settings,
    cluster_start,
    runtimes_of_clusters,
)
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

GPU = "nvidia.com/gpu"


def vanished(view: ReceivedView, node: str) -> tuple[VanishedPod, ...]:
    return view.nodes[node].vanished


async def until_requested(view: ReceivedView, node: str, gpus: int) -> None:
    await eventually(
        lambda: view.requested().get(node) == gpus, within_seconds=20, what=f"{gpus} GPUs requested"
    )


async def test_force_deleted_pods_keep_their_gpus(
    empty_cluster: ControlPlane, nats_url: str, tmp_path: Path
) -> None:
    settings = cluster_settings(empty_cluster, tmp_path)
    command = cluster_start(
        place=ClusterPlacement(cluster_id=NODE, gpus=4, node_name="node-1", hostname="node-1")
    )
    async with empty_cluster.api() as api, pod_engines(empty_cluster):
        await make_device_plugin_nodes(api, ["node-0", "node-1"])
        data_dir = tmp_path / "watcher"
        async with watched_cluster(
            nats_url, empty_cluster.kubeconfig(), data_dir=str(data_dir)
        ) as view:
            await api.create_all(
                pod_object(name, node_name="node-0", resource=GPU, gpus=gpus)
                for name, gpus in (("forced", 2), ("orderly", 3))
            )
            await until_requested(view, "node-0", 5)
            async with runtimes_of_clusters() as runtimes:
                runtime = runtimes.make(Runtime.KUBERNETES, settings)
                engine = await runtime.start(launch_of(command, settings))
                await engine.until_ready(60.0)
                await until_requested(view, "node-1", 4)
                [ours] = await api.items(
                    path_to("v1", "Pod", "default"), labelSelector=RESERVATION_LABEL
                )

                await api.delete(path_to("v1", "Pod", "default", "forced"), gracePeriodSeconds=0)
                await api.delete(path_to("v1", "Pod", "default", "orderly"))
                await api.delete(
                    path_to("v1", "Pod", "default", ours["metadata"]["name"]), gracePeriodSeconds=0
                )
                await engine.stop(1.0)
                assert await runtime.workloads() == ()

            await until_requested(view, "node-0", 0)
            await until_requested(view, "node-1", 0)
            assert [(p.name, p.units) for p in vanished(view, "node-0")] == [("forced", {GPU: 2})]
            [own] = vanished(view, "node-1")
            assert own.reservation_id == command.reservation_id

        # Another life of the watcher knows of them, though the API does not.
        async with watched_cluster(
            nats_url, empty_cluster.kubeconfig(), data_dir=str(data_dir)
        ) as view:
            await view.until_complete()
            assert [p.name for p in vanished(view, "node-0")] == ["forced"]
            when = "2126-01-01T00:00:00+00:00"
            await api.merge(
                path_to("v1", "Node", name="node-0"),
                {"metadata": {"annotations": {"gpusteward.io/confirmed-empty-at": when}}},
            )
            await eventually(lambda: not vanished(view, "node-0"), what="nobody on node-0")
