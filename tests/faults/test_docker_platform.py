"""Tasks in containers of a real engine, under accidents: nothing is left, and the truth is told.

The engine in the image is simulated, and so are the GPUs; everything between is real.
"""

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shared.testing import eventually, short_directory
from tests.support.docker.images import engine_image, stub_engines_file
from tests.support.docker.private_engine import PrivateEngine
from tests.support.processes.platform import PlatformProcess, assert_sound, marked_processes

IMAGE = "vllm/vllm-openai"
TAG = "test"
LEFT_WITHIN_SECONDS = 15.0


def docker_task(name: str, **overrides: Any) -> dict[str, Any]:
    """A task in containers: one experiment of a few seconds."""
    task: dict[str, Any] = {
        "task_name": name,
        "deployment_mode": "docker",
        "model": {"id_or_path": "org/model"},
        "base_runtime": "vllm",
        "runtime_image_tag": TAG,
        "parameters": {"ttft-seconds": [0.02], "tpot-seconds": [0.002]},
        "optimization": {"timeout_per_iteration": 120, "max_attempts": 10},
        "benchmark": {
            "traffic_scenarios": ["D(20,20)"],
            "num_concurrency": [2],
            "max_time_per_iteration": 0.1,
            "max_requests_per_iteration": 150,
            "tool": "builtin",
        },
    }
    return {**task, **overrides}


@asynccontextmanager
async def platform_on(engine: PrivateEngine) -> AsyncIterator[PlatformProcess]:
    """A platform whose executor uses this engine; nothing of it may be left in the end."""
    engine_image(engine.client, f"{IMAGE}:{TAG}", entrypoint=["vllm", "serve"])
    with short_directory() as directory:
        platform = PlatformProcess(
            directory / "data",
            environment={
                "GPUSTEWARD_EXECUTOR_DOCKER_HOST": engine.base_url,
                "GPUSTEWARD_EXECUTOR_ENGINES_FILE": stub_engines_file(directory),
            },
        )
        await platform.start()
        installation = str(platform.directory.installation_id())
        try:
            yield platform
        finally:
            await platform.stop()
        assert marked_processes(installation) == []


def containers(engine: PrivateEngine) -> list[str]:
    return [each["Id"] for each in engine.client.api.containers(all=True)]


async def phase_of(platform: PlatformProcess, task_id: str) -> str | None:
    experiments = await platform.experiments(task_id)
    attempts = experiments[0]["attempts"] if experiments else []
    return attempts[-1].get("phase") if attempts else None


async def until_phase(platform: PlatformProcess, task_id: str, phases: set[str]) -> None:
    async def reached() -> bool:
        return await phase_of(platform, task_id) in phases

    await eventually(reached, within_seconds=60, every_seconds=0.02, what=f"one of {phases}")


async def assert_all_is_free(platform: PlatformProcess) -> None:
    async def free() -> bool:
        _, body = await platform.request("GET", "/api/v1/gpus")
        return all(gpu["state"] == "free" for gpu in body["gpus"])

    await eventually(free, within_seconds=30, what="every GPU free")


async def kill_executor(platform: PlatformProcess) -> float:
    platform.kill("executor", signal.SIGKILL)
    return time.monotonic()


PHASES: list[tuple[str, set[str], dict[str, Any]]] = [
    ("starting", {"starting", "loading"}, {"start-delay-seconds": [3.0]}),
    ("loading", {"loading"}, {"start-delay-seconds": [4.0]}),
    ("serving", {"measuring"}, {}),
    ("removing", {"draining", "tearing_down"}, {"ignore-sigterm": [True]}),
]


@pytest.mark.long
@pytest.mark.timeout(500)
async def test_killed_executor_leaves_no_container(
    docker_engine: PrivateEngine,
) -> None:
    async with platform_on(docker_engine) as platform:
        for name, phases, parameters in PHASES:
            task = docker_task(f"killed-while-{name}")
            task["parameters"] |= parameters
            task_id = await platform.submit(task)
            await until_phase(platform, task_id, phases)
            before = set(containers(docker_engine))
            killed_at = await kill_executor(platform)
            await eventually(
                lambda before=before: not before & set(containers(docker_engine)),  # type: ignore[misc]
                within_seconds=LEFT_WITHIN_SECONDS,
                what=f"the container of the {name} attempt removed",
            )
            assert time.monotonic() - killed_at < LEFT_WITHIN_SECONDS
            view = await platform.until_finished(task_id)
            assert view["state"] == "completed", json.dumps(view)
            await assert_sound(platform, task_id)
        await assert_all_is_free(platform)
        assert containers(docker_engine) == []


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_restarted_container_engine_ends_truthfully(
    docker_engine: PrivateEngine, how: str
) -> None:
    def away() -> None:
        docker_engine.kill() if how == "kill" else docker_engine.stop()
        docker_engine.start()

    async with platform_on(docker_engine) as platform:
        for phases in ({"loading"}, {"measuring"}):
            [phase] = phases
            task = docker_task(f"engine-{how}-while-{phase}")
            if phase == "loading":
                task["parameters"]["start-delay-seconds"] = [3.0]
            task_id = await platform.submit(task)
            await until_phase(platform, task_id, phases)
            await asyncio.to_thread(away)
            view = await platform.until_finished(task_id)
            assert view["state"] in {"completed", "failed"}, json.dumps(view)
            await assert_sound(platform, task_id)
            await eventually(
                lambda: containers(docker_engine) == [],
                within_seconds=LEFT_WITHIN_SECONDS,
                what="no container",
            )
        await assert_all_is_free(platform)


def _kind(experiment: dict[str, Any]) -> str | None:
    failure = experiment["attempts"][-1].get("failure")
    return failure["kind"] if failure else None


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_impossible_container_fails_with_reason(
    docker_engine: PrivateEngine,
) -> None:
    wrong: list[tuple[str, dict[str, Any], set[str]]] = [
        ("absent", {"runtime_image_tag": "absent"}, {"image_missing", "image_pull_failed"}),
        (
            "dies",
            {"parameters": {"stub-exit-after": [1], "stub-exit-code": [3]}},
            {"engine_exited"},
        ),
        ("out-of-memory", {"parameters": {"stub-print": ["CUDA out of memory. Tried to"],
                                          "stub-exit-after": [1], "stub-exit-code": [1]}},
         {"gpu_out_of_memory"}),
    ]  # fmt: skip
    async with platform_on(docker_engine) as platform:
        for name, overrides, kinds in wrong:
            task_id = await platform.submit(docker_task(name, **overrides))
            view = await platform.until_finished(task_id)
            [experiment] = await platform.experiments(task_id)
            assert view["state"] == "failed", json.dumps(view)
            assert _kind(experiment) in kinds, json.dumps(experiment)
            assert experiment["attempts"][-1]["failure"]["hint"]
            await eventually(
                lambda: containers(docker_engine) == [],
                within_seconds=LEFT_WITHIN_SECONDS,
                what="no container",
            )
        await assert_all_is_free(platform)
