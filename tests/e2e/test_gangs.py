"""An experiment over two machines, from the task file to its measured GPUs."""

from collections.abc import Iterator

import psutil
import pytest

from shared.testing import eventually, run_apart, short_directory
from tests.support.processes.platform import (
    PlatformProcess,
    assert_sound,
    marked_processes,
    quick_task,
)
from tests.support.processes.second_machine import second_machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

NODES = ("alpha", "beta")


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data", arguments=("--simulate", "--node-id", NODES[0])
        )
        try:
            run_apart(running.start())
            installation = str(running.directory.installation_id())
            with second_machine(running, directory / "second", NODES[1]):
                yield running
        finally:
            run_apart(running.stop())
        assert marked_processes(installation) == []


async def two_nodes(platform: PlatformProcess) -> None:
    """Wait until both have fresh devices and an executor."""

    async def has_joined() -> bool:
        _, found = await platform.request("GET", "/api/v1/gpus")
        fresh = {gpu["node_id"] for gpu in found["gpus"] if gpu.get("fresh", False)}
        _, nodes = await platform.request("GET", "/api/v1/nodes")
        offering = {node["node_id"] for node in nodes["nodes"] if node["runtimes"]}
        return fresh & offering >= set(NODES)

    await eventually(has_joined, within_seconds=60, every_seconds=0.2, what="two nodes")


async def until_free(platform: PlatformProcess) -> None:
    """Wait until every device of the tasks may be granted again."""

    async def is_free() -> bool:
        _, found = await platform.request("GET", "/api/v1/reservations")
        return not any(each["quarantined"] for each in found["reservations"])

    await eventually(is_free, within_seconds=60, every_seconds=0.2, what="devices free again")


def executor_of(node_id: str, data_dir: str) -> psutil.Process:
    """The process of a node's executor, whichever supervisor has it."""
    wanted = {"GPUSTEWARD_NODE_ID": node_id, "GPUSTEWARD_DATA_DIR": data_dir}
    for process in psutil.process_iter():
        try:
            is_executor = "services.executor" in process.cmdline()
            if is_executor and wanted.items() <= process.environ().items():
                return process
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    raise AssertionError(f"no executor of {node_id}")


async def test_two_machine_task_uses_gpus_of_both(
    platform: PlatformProcess,
) -> None:
    await two_nodes(platform)
    task = quick_task("gang", gpus={"count": 4, "num_nodes": 2})
    task["parameters"] = {"ttft-seconds": [0.005], "tpot-seconds": [0.001]}
    task["benchmark"]["max_requests_per_iteration"] = 1000
    task_id = await platform.submit(task)

    view = await platform.until_finished(task_id)

    assert view["state"] == "completed", view
    [experiment] = await platform.experiments(task_id)
    stats = experiment["gpu_monitoring"]["gpu_stats"]
    assert len(stats) == 4
    assert {key.partition("/")[0] for key in stats} == set(NODES)
    assert all(stat["utilization"]["samples"] for stat in stats.values())
    await assert_sound(platform, task_id)
    await until_free(platform)


@pytest.mark.parametrize("node", NODES, ids=["the coordinator's", "the other's"])
async def test_two_machine_task_outlives_an_executor(platform: PlatformProcess, node: str) -> None:
    await two_nodes(platform)
    task = quick_task(f"killed-{node}", gpus={"count": 4, "num_nodes": 2})
    task["parameters"] = {"ttft-seconds": [0.05], "tpot-seconds": [0.01]}
    task["benchmark"]["max_requests_per_iteration"] = 40
    task_id = await platform.submit(task)

    async def is_measured() -> bool:
        _, found = await platform.request("GET", f"/api/v1/tasks/{task_id}/experiments")
        [experiment] = found["experiments"]
        _, whole = await platform.request(
            "GET", f"/api/v1/experiments/{experiment['experiment_id']}"
        )
        return any(each.get("phase") == "measuring" for each in whole["attempts"])

    await eventually(is_measured, within_seconds=60, every_seconds=0.1, what="a measured gang")
    own = platform.data_dir if node == NODES[0] else platform.data_dir.with_name("second")
    executor_of(node, str(own)).kill()

    view = await platform.until_finished(task_id)

    [experiment] = await platform.experiments(task_id)
    assert view["state"] == "completed", (view, experiment)
    outcomes = [attempt["outcome"] for attempt in experiment["attempts"]]
    assert outcomes == ["interrupted", "succeeded"]
    await assert_sound(platform, task_id)
    await until_free(platform)
