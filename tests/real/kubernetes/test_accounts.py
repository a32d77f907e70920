"""The cluster's services with the logins that compose/kubernetes gives them, and nothing more."""

import json
from pathlib import Path

import pytest

from schemas.cluster.nodes import ClusterView, GetCluster
from schemas.executor.attempts import Runtime
from schemas.gpus.device_grant import ClusterPlacement
from services.cluster.app import create_service
from services.cluster.settings import ClusterSettings
from services.executor.journal.journal import Journal
from shared.kubernetes.access import ClusterAccess
from shared.kubernetes.client import KubernetesClient
from shared.testing import eventually
from tests.support.bus import connected_bus
from tests.support.kubernetes.api import Api
from tests.support.kubernetes.caches import CLAIM, bound_claim, mounted
from tests.support.kubernetes.chart import install, token_of
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes, make_dra_nodes, pod_object
from tests.support.kubernetes.ome_stand_in import ome_stand_in
from tests.support.worlds.cluster_executor import (
    ClusterRuntimes,
    cluster_settings,
    cluster_start,
)
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of

ENGINES = "gpusteward-engines"
READY_SECONDS = 60.0
PERMISSIONS = (
    *("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"),
    *("Role", "RoleBinding"),
)


async def install_permissions(plane: ControlPlane) -> None:
    async with plane.api() as api:
        await install(api, *PERMISSIONS)
        await make_device_plugin_nodes(api, ["node-0"])


async def kubeconfig_of(plane: ControlPlane, account: str, directory: Path) -> str:
    file = directory / f"{account}.kubeconfig"
    given = json.loads(plane.kubeconfig().read_text())
    token = await token_of(plane, "gpusteward-cluster", account)
    given["users"][0]["user"] = {"token": token}
    file.write_text(json.dumps(given))
    return str(file)


async def test_the_watcher_sees_all_of_a_cluster(
    empty_cluster: ControlPlane, nats_url: str, tmp_path: Path
) -> None:
    await install_permissions(empty_cluster)
    async with empty_cluster.api() as api:
        await make_dra_nodes(api, ["node-1"])
        await api.create(pod_object("ours", gpus=1, namespace=ENGINES, node_name="node-0"))
    kubeconfig = await kubeconfig_of(empty_cluster, "cluster", tmp_path)
    settings = ClusterSettings(nats_url=nats_url, node_id="east", kubeconfig=kubeconfig)

    async with connected_bus(nats_url, "asker") as bus, create_service(settings).running():

        async def view() -> ClusterView:
            return await bus.query(GetCluster(cluster_id="east"), ClusterView)

        async def is_complete() -> bool:
            return (await view()).is_complete

        await eventually(is_complete, within_seconds=30, what="a complete view")
        assert [each.name for each in (await view()).nodes] == ["node-0", "node-1"]

    async with KubernetesClient(ClusterAccess(kubeconfig=kubeconfig)) as client:
        path = f"/api/v1/namespaces/{ENGINES}/pods/ours/exec"
        parameters = [("command", "true"), ("stdout", "true"), ("container", "main")]
        async with client.websocket(
            path, params=parameters, protocol="v4.channel.k8s.io", largest_bytes=1 << 16
        ) as connection:
            assert connection.protocol == "v4.channel.k8s.io"


@pytest.mark.long
@pytest.mark.parametrize("kind", [Runtime.KUBERNETES, Runtime.OME])
async def test_executor_account_runs_engines_and_keeps_caches(
    ome_cluster: ControlPlane,
    api: Api,
    runtimes: ClusterRuntimes,
    journal: Journal,
    tmp_path: Path,
    kind: Runtime,
) -> None:
    await install_permissions(ome_cluster)
    await api.create_all(bound_claim(ENGINES))
    settings = cluster_settings(
        ome_cluster,
        tmp_path,
        kubeconfig=await kubeconfig_of(ome_cluster, "executor", tmp_path),
        cluster_namespace=ENGINES,
        cluster_compile_cache=CLAIM,
    )
    runtime = runtimes.make(kind, settings, journal)
    place = ClusterPlacement(cluster_id=NODE, gpus=1, node_name="node-0", hostname="node-0")

    async with pod_engines(ome_cluster, tmp_path / "disks"), ome_stand_in(ome_cluster):
        offer = await runtime.offer()
        engine = await runtime.start(launch_of(cluster_start(kind, place=place), settings))
        await engine.until_ready(READY_SECONDS)
        [workload] = await runtime.workloads()
        directories = await mounted(api, ENGINES)
        await engine.stop(1.0)

        assert kind.value not in offer.missing, offer.missing
        assert workload.labels.node_id == settings.node_id
        assert len(directories) == 1
        assert await runtime.workloads() == ()
