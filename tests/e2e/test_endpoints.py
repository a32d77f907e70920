"""Servers that run already, measured by tasks: as they are, one at a time, with their GPUs."""

from collections.abc import Iterator
from typing import Any

import pytest

from shared.testing import eventually, run_apart, short_directory
from tests.support.known_servers.running_server import SERVED_MODEL, running_server
from tests.support.processes.platform import PlatformProcess

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

KEY = "key_of_the_server_1f0c"


@pytest.fixture(scope="module")
def running_platform() -> Iterator[PlatformProcess]:
    with short_directory() as directory:
        running = PlatformProcess(
            directory / "data",
            arguments=("--simulate", "--node-id", "gpu-01"),
            environment={"GPUSTEWARD_LOCAL_TOKEN": "always"},
        )
        try:
            run_apart(running.start())
            yield running
        finally:
            run_apart(running.stop())


@pytest.fixture
async def platform(running_platform: PlatformProcess) -> PlatformProcess:
    await eventually(running_platform.is_ready, within_seconds=60, what="a whole platform")
    return running_platform


def endpoint_task(name: str, url: str | list[str], **overrides: Any) -> dict[str, Any]:
    endpoint = {"url": url, **overrides.pop("endpoint", {})}
    benchmark = {
        "traffic_scenarios": ["D(20,20)"],
        "num_concurrency": [2],
        "max_time_per_iteration": 0.1,
        "max_requests_per_iteration": 30,
        "tool": "builtin",
        **overrides.pop("benchmark", {}),
    }
    return {
        "task_name": name,
        "model": {"id_or_path": SERVED_MODEL},
        "base_runtime": "openai",
        "endpoint": endpoint,
        "optimization": {"objective": "minimize_latency", "timeout_per_iteration": 60},
        "benchmark": benchmark,
        **overrides,
    }


async def test_faster_of_two_servers_is_best_with_its_gpus(platform: PlatformProcess) -> None:
    async with running_server(tpot_seconds=0.01) as (slow, _), running_server() as (fast, at_once):
        task = endpoint_task(
            "two", [slow, f"{fast}/v1"], endpoint={"node": "gpu-01", "gpu_indices": [0]}
        )
        view = await platform.until_finished(await platform.submit(task))
        experiments = await platform.experiments(view["task_id"])

    assert view["state"] == "completed", view
    best = next(e for e in experiments if e["experiment_id"] == view["best_experiment_id"])
    assert best["parameters"] == {"endpoint.url": f"{fast}/v1"}
    assert best["engine"]["endpoint"]["devices"][0]["index"] == 0
    assert best["gpu_info"]["indices"] == [0]
    assert max(at_once) <= 3  # its load, and who looks whether it still answers
    async with platform.postgres() as connection:
        assert not await connection.fetchval("SELECT count(*) FROM scheduler.reservation")


async def test_monitoring_of_its_gpus_is_the_experiments(platform: PlatformProcess) -> None:
    async with running_server() as (url, _):
        task = endpoint_task(
            "monitored",
            url,
            endpoint={"node": "gpu-01", "gpu_indices": [1]},
            benchmark={"max_requests_per_iteration": 2_000, "max_time_per_iteration": 0.08},
        )
        view = await platform.until_finished(await platform.submit(task))
        [experiment] = await platform.experiments(view["task_id"])

    monitoring = experiment["gpu_monitoring"]
    assert list(monitoring["gpu_stats"]) == ["1"]
    assert monitoring["sample_count"] > 0


async def test_key_of_a_secret_is_sent_and_stored_nowhere(platform: PlatformProcess) -> None:
    status, body = await platform.request(
        "POST", "/api/v1/secrets/SERVER_KEY?namespace=default", {"value": KEY}
    )
    assert status in {200, 201}, body
    async with running_server(key=KEY) as (url, _):
        with_key = endpoint_task(
            "keyed", url, endpoint={"api_key": "SERVER_KEY"}, secrets=["SERVER_KEY"]
        )
        view = await platform.until_finished(await platform.submit(with_key))
        [experiment] = await platform.experiments(view["task_id"])
        without = endpoint_task("keyless", url)
        without["optimization"]["max_attempts"] = 1
        refused = await platform.until_finished(await platform.submit(without))

    assert view["state"] == "completed", experiment
    assert KEY not in str(experiment)
    assert refused["state"] == "failed"


async def test_server_that_dies_fails_its_experiment_in_words(platform: PlatformProcess) -> None:
    async with running_server(tpot_seconds=0.05) as (url, at_once):
        task = endpoint_task("dying", url, benchmark={"max_requests_per_iteration": 5_000})
        task["optimization"]["max_attempts"] = 1
        task_id = await platform.submit(task)

        async def is_loaded() -> bool:
            return max(at_once) >= 2

        await eventually(is_loaded, within_seconds=40, what="a load")
    view = await platform.until_finished(task_id)
    [experiment] = await platform.experiments(task_id)

    assert view["state"] == "failed"
    assert "stopped answering" in experiment["failure"]["message"]


async def test_two_tasks_at_one_server_take_turns(platform: PlatformProcess) -> None:
    async with running_server() as (url, at_once):
        ids = [await platform.submit(endpoint_task(f"turn-{n}", url)) for n in range(2)]
        views = [await platform.until_finished(task_id) for task_id in ids]
        experiments = [(await platform.experiments(task_id))[0] for task_id in ids]

    assert [view["state"] for view in views] == ["completed", "completed"]
    spans = sorted(
        (each["attempts"][0]["started_at"], each["attempts"][0]["finished_at"])
        for each in experiments
    )
    assert spans[0][1] <= spans[1][0]
    assert max(at_once) <= 3


async def test_executor_killed_under_load_repeats_the_measurement(
    platform: PlatformProcess,
) -> None:
    async with running_server(tpot_seconds=0.01) as (url, at_once):
        task = endpoint_task("killed", url, benchmark={"max_requests_per_iteration": 200})
        task_id = await platform.submit(task)

        async def is_loaded() -> bool:
            return max(at_once) >= 2

        await eventually(is_loaded, within_seconds=40, what="a load")
        platform.kill("executor")
        view = await platform.until_finished(task_id)
        [experiment] = await platform.experiments(task_id)

    assert view["state"] == "completed", view
    assert [each["outcome"] for each in experiment["attempts"]] == ["interrupted", "succeeded"]


async def test_server_is_tried_before_it_is_measured(platform: PlatformProcess) -> None:
    async with running_server(key=KEY) as (url, _):
        server = {"url": url, "api_key": KEY}
        question = {"model": SERVED_MODEL, "messages": [{"role": "user", "content": "hello"}]}
        path = "/api/v1/nodes/gpu-01"
        listed = await platform.request("POST", f"{path}/served-models", server)
        answered = await platform.request("POST", f"{path}/ask-server", server | question)
        keyless = await platform.request("POST", f"{path}/ask-server", {"url": url} | question)
    gone = await platform.request("POST", f"{path}/served-models", server)
    metadata = await platform.request(
        "POST", f"{path}/served-models", {"url": "http://169.254.169.254"}
    )

    assert listed[1]["models"] == [SERVED_MODEL]
    assert answered[0] == 200
    assert answered[1]["text"]
    assert "401" in keyless[1]["detail"]
    assert (gone[0], metadata[0]) == (503, 400)
    assert "metadata" in metadata[1]["detail"]
