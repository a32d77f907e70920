"""A cluster of a platform as its user knows it: joined, used, waited for, robbed of its executor.

OME's controller and Kueue are stand-ins, and the engine behind `status.url` a simulated one.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from shared.client import DeployedService, OMEController
from shared.client.aio_deployments import deploy_inference_service
from shared.errors import RefusedError
from shared.testing import eventually, short_directory
from tests.support.kubernetes.api import Api, Object, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.kueue import GATE, QUOTA, admit, hold, kueue_kind
from tests.support.kubernetes.nodes import node_object
from tests.support.kubernetes.ome_stand_in import ome_stand_in
from tests.support.kubernetes.ome_world import (
    CLUSTER,
    MODEL,
    NAMESPACE,
    engine_named,
    furnish,
)
from tests.support.kubernetes.webhooks import gating_webhook
from tests.support.processes.platform import PlatformProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]

FINISH_SECONDS = 180.0
REQUESTS = 150  # a measurement of some 10 s
SERVED_NAME = "the-model"


def task_file(directory: Path, *, requests: int) -> Path:
    file = directory / "task.json"
    task = {
        "task_name": "in-a-cluster",
        "deployment_mode": "ome",
        "model": {"id_or_path": MODEL, "namespace": NAMESPACE},
        "base_runtime": "sglang",
        "clusterbasemodel_config": {"preset": MODEL},
        "clusterservingruntime_config": {"preset": "sglang-llama-small"},
        "parameters": {"tp-size": [1]},
        "optimization": {"strategy": "grid_search", "objective": "minimize_latency"},
        "benchmark": {
            "task": "text-to-text",
            "model_name": SERVED_NAME,
            "traffic_scenarios": ["D(100,100)"],
            "num_concurrency": [1],
            "max_requests_per_iteration": requests,
        },
    }
    file.write_text(json.dumps(task))
    return file


@asynccontextmanager
async def cluster_with_ome(plane: ControlPlane) -> AsyncIterator[Api]:
    async with plane.api() as api, engine_named(SERVED_NAME) as urls, ome_stand_in(plane) as ome:
        await furnish(api)
        ome.url_of = lambda _: urls[SERVED_NAME]
        yield api


@asynccontextmanager
async def started(platform: PlatformProcess) -> AsyncIterator[PlatformProcess]:
    try:
        await platform.start()
        yield platform
    finally:
        await platform.stop()


async def said(platform: PlatformProcess, *arguments: str) -> str:
    code, out, err = await platform.command(*arguments)
    assert code == 0, f"{arguments}: {out}\n{err}"
    return out


async def until_said(platform: PlatformProcess, text: str, *arguments: str) -> None:
    seen: list[Any] = []

    async def is_said() -> bool:
        seen[:] = await platform.command(*arguments)
        return seen[0] == 0 and text in seen[1]

    try:
        await eventually(is_said, within_seconds=120, every_seconds=0.5, what=f"{text!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}: {seen}\n{platform.logs()}") from error


async def phases(platform: PlatformProcess, task_id: str) -> list[tuple[str, ...]]:
    """Of every attempt state and phase, of the task's only experiment."""
    [experiment] = await platform.experiments(task_id)
    return [(each["outcome"], each["phase"]) for each in experiment["attempts"]]


async def pods(api: Api) -> list[Object]:
    path = path_to("v1", "Pod", NAMESPACE)
    return await api.items(path, labelSelector="gpusteward.reservation")


async def test_script_deploys_on_the_chosen_node(
    ome_cluster: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page of its users has it, with their names."""
    kubeconfig = str(ome_cluster.kubeconfig())

    def deploy(experiment_id: str, **more: bool) -> DeployedService:
        return OMEController().deploy_inference_service(
            task_name="my-task",
            experiment_id=experiment_id,
            namespace=NAMESPACE,
            model_name=MODEL,
            runtime_name="sglang-llama-small",
            parameters={"tp-size": 1},
            **more,
        )

    with short_directory() as directory:
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--cluster", "test", "--cluster-id", CLUSTER),
            environment={"KUBECONFIG": kubeconfig},
        )
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        monkeypatch.setenv("GPUSTEWARD_DATA_DIR", str(platform.data_dir))
        async with cluster_with_ome(ome_cluster) as api, started(platform):
            await until_said(platform, "Selected node 'gpu-0'", "select-node", "1")
            chosen = await asyncio.to_thread(deploy, "1")
            left = await asyncio.to_thread(deploy, "2", enable_gpu_selection=False)
            with pytest.raises(RefusedError, match="ServingRuntime or ClusterServingRuntime"):
                await deploy_inference_service("t", "3", NAMESPACE, MODEL, "no-such", {})

            async def are_bound() -> bool:
                found = await api.items(
                    path_to("v1", "Pod", NAMESPACE), labelSelector="ome.io/inferenceservice"
                )
                return [pod["spec"].get("nodeName") for pod in found] == ["gpu-0"] * 2

            await eventually(are_bound, within_seconds=60, what="both pods on the open node")
            made = await api.get(
                path_to("ome.io/v1beta1", "InferenceService", NAMESPACE, "my-task-exp1")
            )

    assert chosen == DeployedService("my-task-exp1", NAMESPACE, "gpu-0")
    assert left.node_name is None
    assert "nodeAffinity" in made["spec"]["engine"]["affinity"]


async def test_task_is_measured_on_part_of_a_gpu(
    ome_cluster: ControlPlane,
) -> None:
    cores, memory = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
    with short_directory() as directory:
        file = task_file(directory, requests=REQUESTS)
        task = json.loads(file.read_text())
        file.write_text(json.dumps(task | {"gpus": {"vgpu_cores": 30, "vgpu_memory_mb": 4000}}))
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--cluster", "test", "--cluster-id", CLUSTER),
            environment={
                "KUBECONFIG": str(ome_cluster.kubeconfig()),
                "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACES": NAMESPACE,
                "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC": "network-encrypted",
            },
        )
        reserve = ("reserve", "--cluster", CLUSTER, "--vgpu-memory", "4000", "--vgpu-cores")
        async with cluster_with_ome(ome_cluster) as api, started(platform):
            labels = {f"models.ome.io/clusterbasemodel.{MODEL}": "Ready"}
            await api.create(
                node_object(
                    "vgpu-0", resource=None, resources={cores: 100, memory: 60}, labels=labels
                )
            )
            await until_said(platform, "1 experiments", "validate", str(file))
            submitted = json.loads(await said(platform, "submit", str(file), "--json"))

            async def is_bound() -> bool:
                return [pod["spec"].get("nodeName") for pod in await pods(api)] == ["vgpu-0"]

            await eventually(is_bound, within_seconds=120, what="the pod on the divided GPU")
            [pod] = await pods(api)
            beside = await said(platform, *reserve, "60")
            too_much = await said(platform, *reserve, "20")
            view = await platform.until_finished(submitted["task_id"], FINISH_SECONDS)

    [container] = pod["spec"]["containers"]
    assert {name: container["resources"]["limits"][name] for name in (cores, memory)} == {
        cores: "30",
        memory: "16",
    }
    assert f"{cores}: 60" in beside
    assert "vgpu-0" in beside
    assert "left to the cluster's scheduler" in too_much
    assert view["state"] == "completed", view


async def test_kueue_hold_is_explained(
    ome_cluster: ControlPlane,
) -> None:
    with short_directory() as directory:
        file = task_file(directory, requests=REQUESTS)
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--cluster", "test", "--cluster-id", CLUSTER),
            environment={
                "KUBECONFIG": str(ome_cluster.kubeconfig()),
                "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACES": NAMESPACE,
                "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC": "network-encrypted",
            },
        )
        async with cluster_with_ome(ome_cluster) as api, kueue_kind(api), started(platform):
            await until_said(platform, "1 experiments", "validate", str(file))
            async with gating_webhook(ome_cluster, GATE):
                task = json.loads(await said(platform, "submit", str(file), "--json"))
                task_id = task["task_id"]
                await until_said(platform, GATE, "why", task_id)
                [pod] = await pods(api)
                await hold(api, pod)
                await until_said(platform, QUOTA, "why", task_id)
            await admit(api, pod)

            async def is_measured() -> bool:
                return (await phases(platform, task_id))[-1][1] == "measuring"

            await eventually(is_measured, within_seconds=120, what="a measurement")
            platform.kill("cluster-executor")
            view = await platform.until_finished(task_id, FINISH_SECONDS)
            attempts = await phases(platform, task_id)
            shown = await said(platform, "show", task_id)
            left = [
                *await pods(api),
                *await api.items(path_to("ome.io/v1beta1", "InferenceService")),
            ]

    assert view["state"] == "completed", view
    assert [outcome for outcome, _ in attempts] == ["interrupted", "succeeded"]
    assert "succeeded" in shown
    assert left == []


@contextmanager
def joined_cluster(plane: ControlPlane, data_dir: Path, nats: str, user: Path) -> Iterator[None]:
    """`gpusteward agent --cluster`, as on another machine."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("GPUSTEWARD_")}
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "services.cli", "agent", "--cluster", "test"),
            *("--nats", nats, "--credentials", str(user), "--data-dir", str(data_dir)),
        ],
        env={
            **inherited,
            "KUBECONFIG": str(plane.kubeconfig()),
            "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACES": NAMESPACE,
            "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC": "network-encrypted",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=40)


async def test_remote_cluster_joins_and_runs_a_task(
    ome_cluster: ControlPlane,
) -> None:
    with short_directory() as directory:
        file = task_file(directory, requests=5)
        platform = PlatformProcess(directory / "data")
        async with cluster_with_ome(ome_cluster) as api, started(platform):
            made = await said(platform, "agent-credentials", CLUSTER)
            [user] = [each for each in made.split() if each.endswith(".json")]
            endpoint = platform.directory.read_endpoint()
            assert endpoint is not None
            with joined_cluster(
                ome_cluster, directory / "second", str(endpoint.nats_url), Path(user)
            ):
                await until_said(platform, CLUSTER, "node", "admit", CLUSTER)
                await until_said(platform, "gpu-0", "cluster")
                await until_said(platform, "1 experiments", "validate", str(file))
                code, out, err = await platform.command("run", str(file))
            left = await pods(api)

    assert code == 0, f"{out}\n{err}"
    assert "1 of 1 experiments succeeded" in out
    assert left == []
