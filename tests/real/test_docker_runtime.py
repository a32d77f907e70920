"""Engines in containers of a real Docker engine, without the hardware."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from schemas.executor import StartExperiment
from schemas.gpu_request import DeviceGrant
from services.executor.processes import ProcessMark
from services.executor.runtimes.docker.container import EngineContainer
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.settings import ExecutorSettings
from tests.docker_engine import PrivateEngine
from tests.docker_images import engine_image
from tests.executor_node import NODE
from tests.runtime_launches import labels_of, launch_of, runtime_settings, start_of

TAG = "test"
READY_SECONDS = 20.0


@dataclass(slots=True)
class World:
    """A runtime on the session's engine."""

    engine: PrivateEngine
    settings: ExecutorSettings
    runtime: DockerRuntime

    def start_of(
        self, parameters: dict[str, Any] | None = None, **overrides: Any
    ) -> StartExperiment:
        return start_of("vllm", parameters, **{"image_tag": TAG, **overrides})

    @asynccontextmanager
    async def running(
        self, command: StartExperiment, **launch: Any
    ) -> AsyncIterator[EngineContainer]:
        """A started engine, ended again."""
        container = await self.runtime.start(launch_of(command, self.settings, **launch))
        try:
            yield container
        finally:
            await container.stop(0.0)

    def containers(self) -> list[Any]:
        """All there are on the engine, whoever made them."""
        return self.engine.client.containers.list(all=True)


@pytest.fixture
def world(docker_engine: PrivateEngine, tmp_path: Path) -> World:
    engine_image(docker_engine.client, f"vllm/vllm-openai:{TAG}")
    settings = runtime_settings(tmp_path, docker_host=docker_engine.base_url)
    return World(docker_engine, settings, DockerRuntime(settings))


def device(uuid: str, index: int, **overrides: Any) -> DeviceGrant:
    given = {"node_id": NODE, "uuid": uuid, "index": index, "name": "GPU"}
    return DeviceGrant(**given | overrides)


async def told(base_url: str) -> dict[str, Any]:
    """What the engine in the container was given."""
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/stub") as response:
        given: dict[str, Any] = await response.json()
        return given


async def test_an_engine_starts_in_a_container_and_leaves_nothing(world: World) -> None:
    command = world.start_of(model="a/model", devices=(device("SIM-1", 0, simulated=True),))
    marks: list[ProcessMark] = []

    async def remember(mark: ProcessMark) -> None:
        marks.append(mark)

    launch = launch_of(command, world.settings, remember)
    container = await world.runtime.start(launch)
    base_url = await container.until_ready(READY_SECONDS)
    given = await told(base_url)
    (found,) = await world.runtime.workloads()
    await container.stop(2.0)

    assert base_url.startswith("http://127.0.0.1:")
    assert given["argv"][:4] == ["serve", "a/model", "--served-model-name", "a/model"]
    assert given["environ"]["GPUSTEWARD_RESERVATION"] == str(command.reservation_id)
    assert given["environ"]["GPUSTEWARD_DEVICES"] == "SIM-1"
    assert given["environ"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert world.engine.devices_of(container.container_id) is None
    assert found.labels == labels_of(command, world.settings)
    assert found.container_ids == (container.container_id,)
    assert found.is_running
    assert marks[0].pid in found.pids
    assert await world.runtime.workloads() == ()
    assert container.container_id not in [each.id for each in world.containers()]
    assert "stub engine serves a/model" in launch.log.tail(20)


async def test_it_gets_exactly_the_granted_devices_and_no_variable_of_cuda(world: World) -> None:
    granted = (device("GPU-b", 2), device("GPU-a", 0), device("GPU-x", 1, node_id="another"))

    async with world.running(world.start_of(devices=granted)) as container:
        given = world.engine.devices_of(container.container_id)

    assert given is not None
    assert given["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert not any(name == "CUDA_VISIBLE_DEVICES" for name in given)
    assert given["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
