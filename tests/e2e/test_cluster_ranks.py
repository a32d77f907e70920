"""A task whose engine runs over two nodes of a cluster, from its file to its measurements."""

import os
from pathlib import Path

import pytest

from shared.testing import short_directory
from tests.support.kubernetes.api import path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import make_device_plugin_nodes
from tests.support.processes.platform import PlatformProcess, assert_sound, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]


def engines_file(directory: Path) -> Path:
    path = directory / "engines.toml"
    path.write_text('[engines.simulated]\nimage = "gpusteward/simulated"\ntag = "test"\n')
    return path


async def test_task_over_two_nodes_of_a_cluster(empty_cluster: ControlPlane) -> None:
    with short_directory() as directory:
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--cluster", "test", "--cluster-id", "k8s"),
            environment={
                "KUBECONFIG": os.fspath(empty_cluster.kubeconfig()),
                "GPUSTEWARD_EXECUTOR_CLUSTER_ACCESS": "pod",
                "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC": "network-encrypted",
                "GPUSTEWARD_EXECUTOR_ENGINES_FILE": str(engines_file(directory)),
            },
        )
        task = quick_task("ranks", deployment_mode="kubernetes")
        task["gpus"] = {"count": 8, "num_nodes": 2}
        task["parameters"] = {"ttft-seconds": [0.005, 0.01]}
        async with empty_cluster.api() as api, pod_engines(empty_cluster):
            await make_device_plugin_nodes(api, ["node-0", "node-1"])
            try:
                await platform.start()
                task_id = await platform.submit(task)

                view = await platform.until_finished(task_id, within_seconds=120)

                assert view["state"] == "completed", platform.logs()
                experiments = await platform.experiments(task_id)
                assert [e["state"] for e in experiments] == ["succeeded", "succeeded"]
                assert {e["gpu_info"]["count"] for e in experiments} == {8}
                await assert_sound(platform, task_id)
                async with platform.postgres() as connection:
                    holdings = await connection.fetch(
                        "SELECT node_name, released_at IS NOT NULL AS is_released"
                        " FROM scheduler.cluster_holding ORDER BY reservation_id, rank"
                    )
                left = await api.items(
                    path_to("v1", "Pod", "default"), labelSelector="gpusteward.reservation"
                )
            finally:
                await platform.stop()
        assert {row["node_name"] for row in holdings} == {"node-0", "node-1"}
        assert len(holdings) == 4
        assert all(row["is_released"] for row in holdings)
        assert left == []
