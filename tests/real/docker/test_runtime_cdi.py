"""GPUs given to containers by their CDI names: devices of the kernel's own stand in for them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from docker.models.containers import Container

from schemas.executor.attempts import Failure, FailureKind
from schemas.gpus.device_grant import DeviceGrant
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.docker.client import ContainerEngine
from services.executor.runtimes.docker.host import engine_info
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.runtime import Launch
from services.executor.settings import ExecutorSettings
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine, missing_cdi, private_engine
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import launch_of, runtime_settings, start_of

TAG = "test"
GPUS = ("GPU-a", "GPU-b", "GPU-c")


def specification() -> dict[str, Any]:
    """What `nvidia-ctk cdi generate` writes, as far as Docker cares."""

    def device(name: str) -> dict[str, Any]:
        node = {"path": f"/dev/nvidia-{name}", "hostPath": "/dev/null"}
        return {"name": name, "containerEdits": {"deviceNodes": [node], "env": [f"GAVE_{name}=1"]}}

    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [device(name) for name in GPUS],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }


@pytest.fixture(scope="module")
def cdi_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateEngine]:
    if (reason := missing_cdi()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("cdi")
    (directory / "nvidia.json").write_text(json.dumps(specification()))
    config = {"features": {"cdi": True}, "cdi-spec-dirs": [str(directory)]}
    with private_engine(config=config) as engine:
        yield engine


@pytest.fixture
def settings(tmp_path: Path) -> ExecutorSettings:
    return runtime_settings(tmp_path, docker_device_ids="cdi")


def runtime_on(engine: PrivateEngine, settings: ExecutorSettings) -> DockerRuntime:
    engine_image(engine.client, f"vllm/vllm-openai:{TAG}")
    return DockerRuntime(msgspec.structs.replace(settings, docker_host=engine.base_url))


def launch_with(settings: ExecutorSettings, *uuids: str) -> Launch:
    """Of an engine that was granted these, in the order that they have on the node."""
    devices = tuple(
        DeviceGrant(node_id=NODE, uuid=uuid, index=index, name="GPU")
        for index, uuid in enumerate(uuids)
    )
    return launch_of(start_of("vllm", image_tag=TAG, devices=devices), settings)


def told(container: Container, *command: str) -> str:
    """What a command writes that runs in it."""
    written = container.exec_run(list(command)).output
    assert isinstance(written, bytes)
    return written.decode()


async def refusal(runtime: DockerRuntime, launch: Launch) -> Failure:
    """Why the container could not be started; nothing is left of it."""
    with pytest.raises(AttemptFailed) as raised:
        await runtime.start(launch)
    assert await runtime.workloads() == ()
    return raised.value.failure


async def test_container_gets_granted_devices_by_cdi_name(
    cdi_engine: PrivateEngine, settings: ExecutorSettings
) -> None:
    container = await runtime_on(cdi_engine, settings).start(
        launch_with(settings, "GPU-c", "GPU-a")
    )
    try:
        inside = cdi_engine.client.containers.get(container.container_id)
        devices = told(inside, "ls", "/dev")
        environment = told(inside, "cat", "/proc/1/environ")
    finally:
        await container.stop(0.0)

    given = dict(line.partition("=")[::2] for line in environment.split("\0"))
    there = [name for name in devices.split() if name.startswith("nvidia")]
    assert there == ["nvidia-GPU-a", "nvidia-GPU-c"]
    assert sorted(name for name in given if name.startswith("GAVE_")) == [
        "GAVE_GPU-a",
        "GAVE_GPU-c",
    ]
    assert given["GPUSTEWARD_DEVICES"] == "GPU-c,GPU-a"
    assert given["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert "CUDA_VISIBLE_DEVICES" not in given
    assert cdi_engine.devices_of(container.container_id) is None, "and not by the hook as well"


async def test_device_without_specification_fails_start(
    cdi_engine: PrivateEngine, settings: ExecutorSettings
) -> None:
    launch = launch_with(settings, "GPU-a", "GPU-x")

    failure = await refusal(runtime_on(cdi_engine, settings), launch)

    assert failure.kind is FailureKind.GPU_UNAVAILABLE
    assert "nvidia.com/gpu=GPU-x" in failure.message
    assert "nvidia-ctk cdi generate" in failure.hint


async def test_cdi_devices_cause_no_warning(
    cdi_engine: PrivateEngine,
) -> None:
    host = await ContainerEngine(cdi_engine.base_url).call(engine_info)

    assert host.gpu_warning is None
