"""A task of embeddings over the whole platform: every place says the same, and none of tokens."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from shared.testing import run_apart, short_directory
from tests.support.processes.platform import PlatformProcess, assert_sound, quick_task

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
BENCHMARK = {
    "traffic_scenarios": ["E(32)"],
    "batch_size": 4,
    "num_concurrency": [2],
    "max_time_per_iteration": 0.5,
    "max_requests_per_iteration": 20,
    "tool": "builtin",
}


@pytest.fixture(scope="module")
def platform() -> Iterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data", environment={"GPUSTEWARD_LOCAL_TOKEN": "always"}
        )
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


def task_of(name: str, **benchmark: Any) -> dict[str, Any]:
    task = quick_task(name, parameters={"item-seconds": [0.02, 0.1]})
    task["benchmark"] = {**BENCHMARK, **benchmark}
    task["optimization"] = {
        **task["optimization"],
        "objective": "maximize_throughput",
        "constraints": "e2e:p99<30s, items>1/s",
    }
    return task


async def test_embeddings_run_from_file_to_report(platform: PlatformProcess) -> None:
    task_id = await platform.submit(task_of("embeddings"))
    view = await platform.until_finished(task_id, within_seconds=120)

    experiments = await platform.experiments(task_id)
    assert view["state"] == "completed", [each["reason"] for each in experiments]
    assert "E(32): each request has 4 inputs" in view["notes"]
    best, other = sorted(experiments, key=lambda each: -each["objective_score"])
    assert best["parameters"] == {"item-seconds": 0.02}
    assert best["metrics"]["mean_items_per_second"] > other["metrics"]["mean_items_per_second"]
    for absent in ("mean_ttft", "mean_tpot", "mean_output_throughput", "max_output_throughput"):
        assert best["metrics"][absent] is None
    assert best["gpu_monitoring"] is None or best["gpu_monitoring"]["tokens_per_joule"] is None

    detail_path = f"/api/v1/experiments/{best['experiment_id']}"
    _, detail = await platform.request("GET", detail_path)
    [level] = detail["benchmark"]["levels"]
    assert level["batch_size"] == 4
    assert level["stats"]["ttft"] is level["stats"]["num_output_tokens"] is None
    assert level["mean_output_throughput_tokens_per_s"] is None
    assert level["items_per_second"] == best["metrics"]["max_items_per_second"]

    _, report = await platform.request("GET", f"/api/v1/reports/tasks/{task_id}")
    assert report["best"]["experiment_id"] == view["best_experiment_id"] == best["experiment_id"]
    assert report["best"]["score"] == best["objective_score"]
    status, shown, _ = await platform.command("show", "embeddings", "--wide")
    assert status == 0
    assert f"{best['metrics']['mean_items_per_second']:.1f}" in shown
    assert "items/s" in shown
    assert "ttft" not in shown
    await assert_sound(platform, task_id)


async def test_load_elsewhere_is_told_by_tool(platform: PlatformProcess) -> None:
    task_id = await platform.submit(task_of("rerank", traffic_scenarios=["R(32,8)"]))
    await platform.until_finished(task_id, within_seconds=120)
    [first, *_] = await platform.experiments(task_id)

    _, commands = await platform.request(
        "GET", f"/api/v1/experiments/{first['experiment_id']}/commands"
    )
    by_tool = {each["tool"]: each for each in commands["levels"][0]["commands"]}
    assert "--batch-size 4" in by_tool["builtin"]["command"]
    assert "cohere-rankings" in by_tool["aiperf"]["command"]
    assert "one after the other" in by_tool["genai-bench"]["reason"]


async def test_goal_that_is_not_measured_is_refused(platform: PlatformProcess) -> None:
    task = task_of("refused")
    task["optimization"] = {**task["optimization"], "objective": "minimize_ttft"}

    status, problem = await platform.request("POST", "/api/v1/tasks", task)

    assert status == 400
    assert "come whole and have no tokens" in json.dumps(problem)
