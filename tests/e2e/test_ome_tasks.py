"""Tasks of mode ome from their file to the result table, in a real control plane.

OME's controller and kubelet are stand-ins, the engine behind `status.url` and the GPUs that the
agent on a node reads are simulated ones.
"""

import asyncio
import json
import os
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import pytest

from schemas.telemetry.readings import GpuPod
from services.telemetry.app import create_service
from services.telemetry.domain.pods import PodDevices
from services.telemetry.settings import TelemetrySettings
from shared.testing import eventually, short_directory
from shared.waiting import cancel_and_wait
from tests.support.fakes.kubelet import FakeKubelet, encoded
from tests.support.kubernetes.api import Api, path_to
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.nodes import GPU_RESOURCE
from tests.support.kubernetes.ome_stand_in import missing_crds, ome_stand_in
from tests.support.kubernetes.ome_world import CLUSTER, NAMESPACE, OME, engine_named, furnish
from tests.support.processes.platform import PlatformProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]

FILES = ("ome_with_presets_task.json", "pvc_task.json", "simple_task.json")


@asynccontextmanager
async def agent_on(
    node: str, platform: PlatformProcess, api: Api, directory: Path
) -> AsyncIterator[dict[str, list[str]]]:
    """A telemetry agent beside a kubelet that gives pods GPUs; their UUIDs by the pod's name."""
    code, made, err = await platform.command("agent-credentials", node)
    assert code == 0, err
    endpoint = platform.directory.read_endpoint()
    assert endpoint is not None
    kubelet = FakeKubelet(directory / "kubelet.sock")
    settings = TelemetrySettings(
        source="simulated",
        simulate=True,
        nats_url=str(endpoint.nats_url),
        nats_credentials=made.strip(),
        node_id=node,
        data_dir=str(directory / "agent"),
        pod_resources_socket=str(kubelet.socket),
        metrics=False,
    )
    given: dict[str, list[str]] = {}
    uuids: list[str] = []

    async def are_seen() -> bool:
        _, body = await platform.request("GET", "/api/v1/gpus")
        uuids[:] = [gpu["uuid"] for gpu in body["gpus"] if gpu["node_id"] == node]
        return bool(uuids)

    async def give() -> None:
        while True:
            pods = {
                pod["metadata"]["name"]: pod
                for pod in await api.items(path_to("v1", "Pod", NAMESPACE))
                if pod["spec"].get("nodeName") == node
            }
            for name, pod in pods.items():
                taken = {uuid for other in pods for uuid in given.get(other, ())}
                limits = pod["spec"]["containers"][0]["resources"]["limits"]
                free = [uuid for uuid in uuids if uuid not in taken]
                given.setdefault(name, free[-int(limits[GPU_RESOURCE]) :])
            kubelet.answer = encoded(
                [
                    PodDevices(
                        pod=GpuPod(NAMESPACE, name, "ome-container"), device_ids=tuple(given[name])
                    )
                    for name in pods
                ]
            )
            await asyncio.sleep(0.2)

    async with create_service(settings).running():
        await eventually(are_seen, within_seconds=30, what=f"the GPUs of {node}")
        with kubelet.serving():
            giving = asyncio.create_task(give())
            try:
                yield given
            finally:
                await cancel_and_wait(giving)


async def assert_joined(platform: PlatformProcess, given: dict[str, list[str]]) -> None:
    """Every experiment's figures are those of the stored samples of the GPUs that its pod had."""
    _, tasks = await platform.request("GET", "/api/v1/tasks")
    experiments = [e for t in tasks["tasks"] for e in await platform.experiments(t["task_id"])]
    assert len(experiments) >= len(FILES)
    async with platform.postgres() as connection:
        for each in experiments:
            seen, info = each["gpu_monitoring"], each["gpu_info"]
            assert seen["gpu_stats"], seen
            assert sorted(info["device_ids"]) in [sorted(uuids) for uuids in given.values()]
            assert {detail["node_id"] for detail in info["details"]} == {"gpu-0"}
            levels = each["benchmark"]["levels"]
            windows = [
                [datetime.fromisoformat(level[end]) for end in ("started_at", "finished_at")]
                for level in levels
            ]
            for stats in seen["gpu_stats"].values():
                rows = await connection.fetch(
                    "SELECT observed_at, power_draw_w FROM results.stored_sample"
                    " JOIN results.device USING (device_no)"
                    " WHERE node_id = 'gpu-0' AND device_uuid = $1",
                    stats["uuid"],
                )
                power = [
                    row["power_draw_w"]
                    for row in rows
                    if any(start <= row["observed_at"] <= end for start, end in windows)
                ]
                told = stats["power_draw_w"]
                assert stats["utilization"]["samples"] == len(power)
                assert (told["min"], told["max"]) == (min(power), max(power))
                assert told["mean"] == pytest.approx(statistics.fmean(power))


def task_file(name: str) -> Path:
    path = Path(os.environ.get("GPUSTEWARD_TEST_DATA") or "nowhere") / "tasks" / name
    if not path.is_file():
        pytest.skip("needs the autotuner's task files: set GPUSTEWARD_TEST_DATA to their folder")
    return path


async def test_autotuner_ome_files_run_to_results(
    empty_cluster: ControlPlane,
) -> None:
    if (reason := missing_crds()) is not None:
        pytest.skip(reason)
    printed: list[tuple[int | None, str, str]] = []
    files = [task_file(name) for name in FILES]
    served = [json.loads(file.read_text())["benchmark"]["model_name"] for file in files]
    async with (
        empty_cluster.api() as api,
        engine_named(*set(served)) as urls,
        ome_stand_in(empty_cluster) as ome,
    ):
        await furnish(api)
        with short_directory() as directory:
            platform = PlatformProcess(
                directory / "data",
                arguments=("--simulate", "--cluster", "test", "--cluster-id", CLUSTER),
                environment={
                    "GPUSTEWARD_KUBECONFIG": str(empty_cluster.kubeconfig()),
                    "GPUSTEWARD_EXECUTOR_CLUSTER_NAMESPACES": NAMESPACE,
                    "GPUSTEWARD_EXECUTOR_ENGINE_TRAFFIC": "network-encrypted",
                },
            )
            try:
                await platform.start()
                await until_offered(platform)
                async with agent_on("gpu-0", platform, api, directory) as given:
                    for file, name in zip(files, served, strict=True):
                        ome.url_of = lambda _, url=urls[name]: url  # type: ignore[misc]
                        printed.append(await platform.command("run", str(file)))
                    placed = await platform.command("cluster")
                    await assert_joined(platform, given)
            finally:
                await platform.stop()
        left = [
            *await api.items(path_to(OME, "InferenceService")),
            *await api.items(path_to("v1", "Pod"), labelSelector="gpusteward.reservation"),
        ]

    for code, out, err in printed:
        assert code == 0, f"{out}\n{err}"
        assert "completed" in out
        assert "GPUs while measured" in out
    assert "gpu-0" in placed[1], placed
    assert left == []


async def until_offered(platform: PlatformProcess) -> None:
    """Until the cluster's executor has said what it can run."""
    said = ""

    async def is_valid() -> bool:
        nonlocal said
        file = task_file("ome_with_presets_task.json")
        code, out, err = await platform.command("validate", str(file))
        said = f"{out}\n{err}"
        return code == 0

    try:
        await eventually(is_valid, within_seconds=90, every_seconds=0.5, what="mode ome")
    except AssertionError as error:
        raise AssertionError(f"{error}: {said}\n{platform.logs()}") from error
