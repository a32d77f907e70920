"""Engines in containers while their Docker engine is restarted, killed, or away."""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import docker.errors
import pytest

from schemas.executor.attempts import FailureKind, StartExperiment
from schemas.gpus.device_grant import DeviceGrant
from services.executor.domain.verdict import AttemptFailed
from services.executor.host.processes import running_workload
from services.executor.runtimes.docker.container import EngineContainer
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.runtime import Launch, RuntimeUnavailable
from services.executor.settings import ExecutorSettings
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine, private_engine
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import labels_of, launch_of, runtime_settings, start_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

TAG = "test"
READY_SECONDS = 30.0
GOES: dict[str, Callable[[PrivateEngine], None]] = {
    "SIGTERM": PrivateEngine.stop,
    "SIGKILL": PrivateEngine.kill,
}


@pytest.fixture
def engine(docker_engine: PrivateEngine) -> PrivateEngine:
    engine_image(docker_engine.client, f"vllm/vllm-openai:{TAG}")
    return docker_engine


@pytest.fixture
def settings(docker_engine: PrivateEngine, tmp_path: Path) -> ExecutorSettings:
    return runtime_settings(tmp_path, docker_host=docker_engine.base_url)


@pytest.fixture
def runtime(settings: ExecutorSettings) -> DockerRuntime:
    return DockerRuntime(settings)


def command_of(parameters: dict[str, Any] | None = None) -> StartExperiment:
    return start_of("vllm", parameters, image_tag=TAG)


@asynccontextmanager
async def running(runtime: DockerRuntime, launch: Launch) -> AsyncIterator[EngineContainer]:
    container = await runtime.start(launch)
    try:
        yield container
    finally:
        await container.stop(0.0)


@asynccontextmanager
async def away(engine: PrivateEngine, how: str) -> AsyncIterator[None]:
    """Meanwhile nobody answers."""
    await asyncio.to_thread(GOES[how], engine)
    try:
        yield
    finally:
        await asyncio.to_thread(engine.start)


async def answers(base_url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{base_url}/health") as response,
        ):
            return response.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False


@pytest.mark.parametrize("how", GOES)
async def test_loading_and_serving_engines_outlive_restart(
    how: str, engine: PrivateEngine, settings: ExecutorSettings, runtime: DockerRuntime
) -> None:
    command = command_of({"start-delay-seconds": 2, "stub-lines": 500})
    launch = launch_of(command, settings)
    async with running(runtime, launch) as container:
        ready = asyncio.create_task(container.until_ready(READY_SECONDS))
        async with away(engine, how):
            with pytest.raises(RuntimeUnavailable):
                await runtime.workloads()
            await asyncio.sleep(0.3)
        base_url = await ready
        ended = asyncio.create_task(container.until_ended())
        async with away(engine, how):
            await asyncio.sleep(0.3)
        await eventually(lambda: answers(base_url), what="an engine that answers again")
        (found,) = await runtime.workloads()
        is_over = ended.done()
        await cancel_and_wait(ended)

    numbers = re.findall(r"^line (\d{8})", launch.log.path.read_text(), re.MULTILINE)
    assert not is_over
    assert found.container_ids == (container.container_id,)
    assert [int(number) for number in numbers] == list(range(500))


@pytest.mark.parametrize("how", GOES)
async def test_engine_stops_in_time_while_docker_is_away(
    how: str, engine: PrivateEngine, settings: ExecutorSettings, runtime: DockerRuntime
) -> None:
    command = command_of({"ignore-sigterm": True})
    label = labels_of(command, settings)
    container = await runtime.start(launch_of(command, settings))
    await container.until_ready(READY_SECONDS)
    async with away(engine, how):
        began_at = time.monotonic()
        stopping = asyncio.create_task(container.stop(0.5))
        await eventually(lambda: not running_workload(label), what="no process of it")
        took_seconds = time.monotonic() - began_at
        is_over = stopping.done()
    await asyncio.wait_for(stopping, 15)

    assert took_seconds < 3
    assert not is_over
    assert await runtime.workloads() == ()
    with pytest.raises(docker.errors.NotFound):
        engine.client.containers.get(container.container_id)


async def test_engine_stops_in_time_while_docker_hangs(
    engine: PrivateEngine, settings: ExecutorSettings, runtime: DockerRuntime
) -> None:
    command = command_of()
    label = labels_of(command, settings)
    container = await runtime.start(launch_of(command, settings))
    assert engine.pid is not None
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        began_at = time.monotonic()
        stopping = asyncio.create_task(container.stop(0.2))
        await eventually(lambda: not running_workload(label), what="no process of it")
        took_seconds = time.monotonic() - began_at
        offer = await runtime.offer()
    finally:
        os.kill(engine.pid, signal.SIGCONT)
    await asyncio.wait_for(stopping, 15)

    assert took_seconds < 4
    assert "did not answer within" in offer.missing["docker"]
    assert await runtime.workloads() == ()


@pytest.mark.parametrize("how", GOES)
@pytest.mark.parametrize("delay_seconds", [0.0, 0.1, 0.3, 0.6])
async def test_docker_loss_during_start_leaves_nothing(
    how: str,
    delay_seconds: float,
    engine: PrivateEngine,
    settings: ExecutorSettings,
    runtime: DockerRuntime,
) -> None:
    command = command_of()
    starting = asyncio.create_task(runtime.start(launch_of(command, settings)))
    await asyncio.sleep(delay_seconds)
    async with away(engine, how):
        pass
    try:
        container = await asyncio.wait_for(starting, 30)
    except AttemptFailed as error:
        assert error.failure.kind is FailureKind.RUNTIME_UNAVAILABLE  # noqa: PT017  # or it works
    else:
        removing = asyncio.create_task(container.stop(0.2))
        await asyncio.sleep(delay_seconds)
        async with away(engine, how):
            pass
        await asyncio.wait_for(removing, 30)

    assert await runtime.workloads() == ()
    assert running_workload(labels_of(command, settings)) == []


@pytest.mark.parametrize("how", GOES)
async def test_engine_ended_by_docker_says_so(how: str, tmp_path: Path) -> None:
    """Without live restore; a killed one stops it when it comes back."""
    with private_engine(live_restore=False) as engine:
        engine_image(engine.client, f"vllm/vllm-openai:{TAG}")
        settings = runtime_settings(tmp_path, docker_host=engine.base_url)
        async with running(DockerRuntime(settings), launch_of(command_of(), settings)) as container:
            await container.until_ready(READY_SECONDS)
            ended = asyncio.create_task(container.until_ended())
            async with away(engine, how):
                await asyncio.sleep(0.3)
            failure = await asyncio.wait_for(ended, 20)

    assert failure.kind is FailureKind.RUNTIME_UNAVAILABLE
    assert "live-restore" in failure.hint


async def test_docker_without_toolkit_gives_no_gpus(
    engine: PrivateEngine, settings: ExecutorSettings, runtime: DockerRuntime
) -> None:
    granted = DeviceGrant(node_id=NODE, uuid="GPU-a", index=0, name="GPU")
    command = start_of("vllm", image_tag=TAG, devices=(granted,))
    with engine.hook_missing():
        await asyncio.to_thread(engine.restart)
        with pytest.raises(AttemptFailed) as failed:
            await runtime.start(launch_of(command, settings))
    await asyncio.to_thread(engine.restart)

    assert failed.value.failure.kind is FailureKind.GPU_UNAVAILABLE
    assert "could not select device driver" in failed.value.failure.message
    assert "nvidia-container-toolkit" in failed.value.failure.hint
    assert await runtime.workloads() == ()


async def test_unused_absent_docker_counts_as_empty(tmp_path: Path) -> None:
    settings = runtime_settings(tmp_path, docker_host=f"unix://{tmp_path}/none.sock")
    runtime = DockerRuntime(settings)
    labels = labels_of(command_of(), settings)

    offer = await runtime.offer()
    found = await runtime.workloads()
    await asyncio.wait_for(runtime.end(labels), 5)

    assert offer.engines == ()
    assert "not installed, or not running" in offer.missing["docker"]
    assert found == ()
