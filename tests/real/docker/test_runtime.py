"""Engines in containers of a real Docker engine, without the hardware."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
import pytest

from schemas.executor.attempts import Failure, FailureKind, StartExperiment
from schemas.gpus.device_grant import DeviceGrant, DeviceShare, ShareKind
from services.executor.domain.verdict import AttemptFailed
from services.executor.host.processes import ProcessMark
from services.executor.runtimes.docker.client import ContainerEngine
from services.executor.runtimes.docker.container import EngineContainer
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.docker.spec import Abilities, ContainerParts
from services.executor.runtimes.docker.starting import Starting
from services.executor.settings import ExecutorSettings
from shared.errors import RefusedError
from shared.testing import eventually
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.processes.secret_search import process_texts
from tests.support.worlds.executor import NODE
from tests.support.worlds.runtime_launches import (
    LOG_LIMIT_BYTES,
    labels_of,
    launch_of,
    runtime_settings,
    start_of,
)

TAG = "test"
PLANTED = "hf_planted_for_a_container"
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
    given: dict[str, Any] = {"node_id": NODE, "uuid": uuid, "index": index, "name": "GPU"}
    return DeviceGrant(**given | overrides)


def made_of(runtime: DockerRuntime, command: StartExperiment) -> ContainerParts:
    """What the runtime would make for it."""
    return runtime._made(command, "m")  # noqa: SLF001  # to take a port that Docker would not


async def told(base_url: str) -> dict[str, Any]:
    """What the engine in the container was given."""
    async with aiohttp.ClientSession() as session, session.get(f"{base_url}/stub") as response:
        given: dict[str, Any] = await response.json()
        return given


@pytest.mark.long
async def test_compile_cache_is_kept_by_image_id(world: World, tmp_path: Path) -> None:
    runtime = DockerRuntime(
        msgspec.structs.replace(world.settings, compile_cache_dir=str(tmp_path / "caches"))
    )
    directory = tmp_path / "caches" / "files"
    directory.mkdir(parents=True)
    images: list[str] = []

    def take(image: str) -> Path:
        images.append(image)
        return directory

    launch = launch_of(world.start_of(), world.settings, take_cache=take)
    container = await runtime.start(launch)
    try:
        (made,) = world.containers()
        mounts = {each["Destination"]: each for each in made.attrs["Mounts"]}
        assert set(images) == {made.image.id}
        assert mounts["/var/cache/compiled"]["Source"] == str(directory)
        assert mounts["/var/cache/compiled"]["RW"]
        assert "VLLM_CACHE_ROOT=/var/cache/compiled/vllm" in made.attrs["Config"]["Env"]
    finally:
        await container.stop(0.0)


async def test_engine_starts_in_container_and_leaves_nothing(world: World) -> None:
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


async def test_runtime_offers_images_and_says_what_is_missing(world: World) -> None:
    offer = await world.runtime.offer()

    assert offer.version == world.engine.client.version()["Version"]
    assert {"vllm", "sglang", "llamacpp"} <= set(offer.engines)
    assert "[engines.simulated]" in offer.missing["simulated"]
    assert "nvidia-container-toolkit" in offer.missing["docker"]


async def test_runtime_offers_cuda_of_present_images(world: World) -> None:
    images = {
        "told": "ENV NVIDIA_REQUIRE_CUDA='cuda>=12.4 brand=tesla,driver>=470,driver<471'",
        "labelled": "LABEL com.nvidia.cuda.version=11.8.0",
        "v9-cu121": "ENV A=b",
    }

    def make() -> None:
        api = world.engine.client.api
        made = api.create_container(f"vllm/vllm-openai:{TAG}", ["true"])["Id"]
        for tag, change in images.items():
            api.commit(made, "lmsysorg/sglang", tag, changes=[change])
        api.remove_container(made)

    await asyncio.to_thread(make)
    try:
        offer = await world.runtime.offer()
    finally:
        for tag in images:
            await asyncio.to_thread(world.engine.client.images.remove, f"lmsysorg/sglang:{tag}")

    assert offer.image_cuda == {
        "sglang:told": "12.4",
        "sglang:labelled": "11.8",
        "sglang:v9-cu121": "12.1",
    }


async def test_device_share_needs_daemon_and_whole_gpu(world: World) -> None:
    half = DeviceShare(kind=ShareKind.MPS, compute_percent=50)
    for granted, said in (
        (device("GPU-a", 0, share=half), "nvidia-cuda-mps-control"),
        (device("MIG-a", 0, share=half, mig_profile="1g.10gb"), "whole MIG instance"),
    ):
        with pytest.raises(RefusedError, match=said) as refused:
            world.runtime.check(world.start_of(devices=(granted,)))
        assert refused.value.path == "$.devices[0].share"


async def test_container_gets_only_granted_devices(world: World) -> None:
    granted = (device("GPU-b", 2), device("GPU-a", 0), device("GPU-x", 1, node_id="another"))

    async with world.running(world.start_of(devices=granted)) as container:
        given = world.engine.devices_of(container.container_id)

    assert given is not None
    assert given["NVIDIA_VISIBLE_DEVICES"] == "GPU-a,GPU-b"
    assert not any(name == "CUDA_VISIBLE_DEVICES" for name in given)
    assert given["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"


async def failed(awaitable: Awaitable[Any]) -> Failure:
    """Why it failed."""
    with pytest.raises(AttemptFailed) as raised:
        await awaitable
    return raised.value.failure


async def test_docker_without_cdi_names_alternatives(world: World) -> None:
    if world.engine.client.info().get("CDISpecDirs"):
        pytest.skip("this Docker gives devices by their CDI names without being told to")
    runtime = DockerRuntime(msgspec.structs.replace(world.settings, docker_device_ids="cdi"))
    launch = launch_of(world.start_of(devices=(device("GPU-a", 0),)), world.settings)

    failure = await failed(runtime.start(launch))

    assert failure.kind is FailureKind.GPU_UNAVAILABLE
    assert "Docker 25 to 27 need" in failure.hint
    assert await runtime.workloads() == ()


async def test_container_gets_only_the_hub_token(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    monkeypatch.setenv("OPERATORS_OWN", "secret")

    async with world.running(world.start_of()) as container:
        given = await told(await container.until_ready(READY_SECONDS))

    assert given["environ"]["HF_TOKEN"] == "hf_of_the_node"
    assert "OPERATORS_OWN" not in given["environ"]


async def test_failed_start_leaves_no_container(world: World) -> None:
    """The driver is broken for one, and the image of the other lacks the program."""
    broken = world.start_of(devices=(device("GPU-a", 0),))
    missing = start_of("own", image_tag="1")
    engine_image(world.engine.client, "gpusteward-test/own:1")
    engines = Path(world.settings.data_dir) / "engines.toml"
    engines.write_text(
        '[engines.own]\nimage = "gpusteward-test/own"\ntag = "1"\nport = 8000\n'
        'entrypoint = ["/no/such/program"]\nallow = ["*"]\n'
    )
    settings = msgspec.structs.replace(world.settings, engines_file=str(engines))

    with world.engine.hook_failing("nvidia-container-cli: initialization error: driver"):
        no_driver = await failed(world.runtime.start(launch_of(broken, world.settings)))
    container = await DockerRuntime(settings).start(launch_of(missing, settings))
    no_program = await failed(container.until_ready(READY_SECONDS))
    await container.stop(0.0)

    assert no_driver.kind is FailureKind.GPU_UNAVAILABLE
    assert "initialization error" in no_driver.message
    assert no_driver.hint
    assert no_program.kind is FailureKind.ENGINE_MISSING
    assert await world.runtime.workloads() == ()


@pytest.mark.long
async def test_engine_exit_while_loading_is_explained(world: World) -> None:
    parameters = {
        "stub-print": "torch.OutOfMemoryError: CUDA out of memory.",
        "stub-exit-after": 0.1,
        "stub-exit-code": 3,
        "stub-hang": True,
    }
    async with world.running(world.start_of(parameters)) as container:
        failure = await failed(container.until_ready(READY_SECONDS))

    assert failure.kind is FailureKind.GPU_OUT_OF_MEMORY
    assert failure.exit_code == 3
    assert any("CUDA out of memory" in line for line in failure.log_tail)


@pytest.mark.long
async def test_out_of_memory_differs_from_kill(world: World) -> None:
    greedy = world.start_of({"stub-allocate": True}, host_memory_mb=128)
    async with world.running(greedy) as container:
        failure = await asyncio.wait_for(container.until_ended(), 30)
    async with world.running(world.start_of()) as container:
        ended = asyncio.create_task(container.until_ended())
        world.engine.client.containers.get(container.container_id).kill()
        killed = await asyncio.wait_for(ended, 10)
    async with world.running(world.start_of()) as container:
        ended = asyncio.create_task(container.until_ended())
        world.engine.client.containers.get(container.container_id).remove(force=True)
        removed = await asyncio.wait_for(ended, 10)

    assert (failure.kind, failure.exit_code) == (FailureKind.OUT_OF_MEMORY, -9)
    assert (killed.kind, killed.exit_code) == (FailureKind.ENGINE_EXITED, -9)
    assert "removed" in removed.message


async def test_taken_port_is_retried_without_leftovers(world: World) -> None:
    command = world.start_of()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        starting = Starting(
            engine=ContainerEngine(world.settings.docker_host),
            launch=launch_of(command, world.settings),
            made=msgspec.structs.replace(
                made_of(world.runtime, command), host_port=taken.getsockname()[1]
            ),
            abilities=Abilities(raises_limits=False),
            settings=world.settings,
        )
        failure = await failed(starting.run())

    assert failure.kind is FailureKind.PORT_TAKEN
    assert await world.runtime.workloads() == ()


async def test_absent_image_is_not_started(world: World) -> None:
    """No registry can be reached here, so it cannot be pulled either."""
    command = world.start_of(image_tag="no-such-tag")

    pulled = await failed(world.runtime.fetch(command, lambda *_: None))
    started = await failed(world.runtime.start(launch_of(command, world.settings)))

    assert pulled.kind in {FailureKind.IMAGE_PULL_FAILED, FailureKind.IMAGE_MISSING}
    assert "vllm/vllm-openai:no-such-tag" in pulled.message
    assert started.kind is FailureKind.IMAGE_MISSING
    assert started.hint


async def test_an_image_that_is_there_is_not_pulled(world: World) -> None:
    await world.runtime.fetch(world.start_of(), lambda *_: pytest.fail("pulled"))


@pytest.mark.long
async def test_model_is_mounted_only_from_roots(world: World, tmp_path: Path) -> None:
    root = tmp_path / "models"
    (root / "own").mkdir(parents=True)
    (root / "own" / "weights").write_text("x")
    (root / "out").symlink_to("/etc")
    settings = msgspec.structs.replace(world.settings, model_roots=str(root))
    runtime = DockerRuntime(settings)

    for model in ("/etc", "out", "own/../../x"):
        with pytest.raises(RefusedError) as refused:
            runtime.check(world.start_of(model=model))
        assert refused.value.path == "$.model.id_or_path"
    container = await runtime.start(launch_of(world.start_of(model="own"), settings))
    try:
        await container.until_ready(READY_SECONDS)
        shell = world.engine.client.containers.get(container.container_id)
        seen, text = shell.exec_run(["cat", f"{root}/own/weights"])
        written, _ = shell.exec_run(["touch", f"{root}/own/weights"])
    finally:
        await container.stop(0.0)

    assert (seen, text) == (0, b"x")
    assert written != 0


@pytest.mark.long
async def test_two_executors_on_one_engine_never_meet(world: World, tmp_path: Path) -> None:
    """Another installation, another node of ours, and a container that is nobody's: all of one
    reservation, as far as they have labels.
    """
    command = world.start_of()
    elsewhere = msgspec.structs.replace(command, executor_id="node-2")
    other = runtime_settings(tmp_path / "other", docker_host=world.settings.docker_host)
    beside = msgspec.structs.replace(
        world.settings, node_id="node-2", data_dir=str(tmp_path / "beside")
    )
    own = await world.runtime.start(launch_of(command, world.settings))
    strangers = [
        await DockerRuntime(other).start(launch_of(command, other)),
        await DockerRuntime(beside).start(launch_of(elsewhere, beside)),
    ]
    foreign = world.engine.client.containers.run(
        f"vllm/vllm-openai:{TAG}",
        ["engine", "--stub-hang"],
        labels={"gpusteward.reservation": str(command.reservation_id)},
        detach=True,
    )
    try:
        found = [each.container_ids for each in await world.runtime.workloads()]
        await world.runtime.end(labels_of(command, world.settings))
        left = {each.id: each.status for each in world.containers()}
        await own.stop(0.0)
    finally:
        for stranger in strangers:
            await stranger.stop(0.0)
        foreign.remove(force=True)

    assert found == [(own.container_id,)]
    alive = {*(each.container_id for each in strangers), foreign.id}
    assert left.keys() == alive
    assert set(left.values()) == {"running"}


@pytest.mark.long
async def test_gang_rank_serves_on_host_network(world: World) -> None:
    command = world.start_of()

    async with world.running(command, rank_parameters={"node-rank": 1}) as container:
        given = await told(await container.until_ready(READY_SECONDS))

    argv = given["argv"]
    assert argv[argv.index("--node-rank") + 1] == "1"
    assert argv[argv.index("--host") + 1] == "127.0.0.1"


@pytest.mark.long
async def test_what_is_written_is_kept_within_its_bound(world: World) -> None:
    command = world.start_of({"stub-lines": 20_000})
    launch = launch_of(command, world.settings)
    container = await world.runtime.start(launch)
    try:
        await container.until_ready(READY_SECONDS)
        await eventually(lambda: "line 00019999" in launch.log.tail(20), what="the last line")
    finally:
        await container.stop(0.0)

    assert launch.log.path.stat().st_size > 1 << 20
    assert launch.log.path.stat().st_blocks * 512 <= LOG_LIMIT_BYTES + (64 << 10)


@pytest.mark.long
async def test_secret_is_in_engines_environment_alone(world: World) -> None:
    command = world.start_of(secrets=("HF_TOKEN",))

    async with world.running(command, secrets={"HF_TOKEN": PLANTED}) as engine:
        await engine.until_ready(READY_SECONDS)
        [made] = world.containers()
        pids = [int(row[1]) for row in made.top()["Processes"]]
        environments = [psutil.Process(pid).environ().get("HF_TOKEN") for pid in pids]
        elsewhere = [
            (pid, kind)
            for pid, kind, text in process_texts()
            if PLANTED.encode() in text and pid not in {*pids, os.getpid()}
        ]

    assert set(environments) == {PLANTED}
    assert elsewhere == []
    assert PLANTED not in str(made.attrs["Config"]["Cmd"]) + str(made.labels)
