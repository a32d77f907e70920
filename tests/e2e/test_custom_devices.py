"""Custom devices as their user knows them: imported, asked for, and given by their definitions."""

import json
from pathlib import Path
from typing import Any

import pytest

from shared.testing import eventually, short_directory
from tests.support.kubernetes.command_line import devices
from tests.support.kubernetes.control_plane import ControlPlane
from tests.support.kubernetes.engines import pod_engines
from tests.support.kubernetes.nodes import node_object
from tests.support.processes.platform import PlatformProcess
from tests.support.worlds.cluster_executor import IMAGE

pytestmark = [pytest.mark.long, pytest.mark.timeout(480)]

NPU, MEMORY = "vendor.example/npu", "vendor.example/npu-memory"
GROUP = {"custom_name": "npu", "group": "npu"}
DEFINITIONS = [
    {**GROUP, "key": NPU, "default_value": 2, "description_zh": "神经网络处理器"},
    {**GROUP, "key": MEMORY, "default_value": 16, "requests": "disabled"},
]


def task_file(path: Path, **gpus: Any) -> str:
    task = {
        "task_name": "on-npus",
        "deployment_mode": "kubernetes",
        "model": {"id_or_path": "a-model"},
        "base_runtime": "simulated",
        "gpus": {"resource": NPU, **gpus},
        "benchmark": {
            "task": "text-to-text",
            "traffic_scenarios": ["D(100,100)"],
            "num_concurrency": [1],
            "max_requests_per_iteration": 5,
        },
    }
    path.write_text(json.dumps(task))
    return str(path)


async def test_custom_device_task_gets_defaults_or_rule(
    empty_cluster: ControlPlane,
) -> None:
    with short_directory() as directory:
        (directory / "npu.json").write_text(json.dumps(DEFINITIONS))
        engines = directory / "engines.toml"
        engines.write_text(f'[engines.simulated]\nimage = "{IMAGE}"\ntag = "test"\n')
        platform = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--cluster", "test", "--cluster-id", "k8s"),
            environment={
                "KUBECONFIG": str(empty_cluster.kubeconfig()),
                "GPUSTEWARD_EXECUTOR_ENGINES_FILE": str(engines),
                "GPUSTEWARD_EXECUTOR_CLUSTER_ACCESS": "pod",
            },
        )
        async with empty_cluster.api() as api, pod_engines(empty_cluster):
            await api.create(node_object("node-0", resource=NPU, resources={MEMORY: 64}))
            listed = await devices(empty_cluster, "import", str(directory / "npu.json"))
            await platform.start()
            try:
                file = task_file(directory / "task.json")

                async def can_run() -> bool:
                    return (await platform.command("validate", file))[0] == 0

                await eventually(can_run, within_seconds=120, every_seconds=0.5, what="a cluster")
                wrong = task_file(directory / "wrong.json", resource_amounts={"other.com/npu": 1})
                code, out, err = await platform.command("validate", wrong)
                ran = await platform.command("run", file)
                _, listing = await platform.request("GET", "/api/v1/tasks")
                [task] = listing["tasks"]
                [experiment] = await platform.experiments(task["task_id"])
                _, offered = await platform.request("GET", "/api/v1/cluster/devices")
            finally:
                await platform.stop()

    assert "神经网络处理器" in listed
    assert (code, "(rule group)" in out + err) == (2, True), out + err
    assert ran[0] == 0, ran
    assert experiment["engine"]["kubernetes"]["devices"]["limits"] == {NPU: 2, MEMORY: 16}
    assert experiment["request"]["gpus"] == 2
    assert [each["definition"]["key"] for each in offered["devices"]] == [NPU, MEMORY]
