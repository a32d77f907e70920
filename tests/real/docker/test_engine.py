"""The container engine that other tests stand on, and the images that they run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker.errors
import pytest
import requests
from docker.models.containers import Container
from docker.types import DeviceRequest

from shared.testing import eventually, run_apart
from tests.support.docker.images import busybox_image, engine_image
from tests.support.docker.leftovers import Place, remove_ownerless
from tests.support.docker.private_engine import PrivateEngine, missing, private_engine
from tests.support.paths import ROOT
from tests.support.ports import free_port

ON_LOOPBACK = {"8000/tcp": ("127.0.0.1", None)}
ABANDON = """
import sys, time
from tests.support.docker.private_engine import PrivateEngine
from tests.support.docker.images import busybox_image
engine = PrivateEngine()
engine.start()
engine.client.containers.run(busybox_image(engine.client), ["sleep", "1000"], detach=True)
print(engine.root.name, engine._watcher.pid, flush=True)
time.sleep(1000)
"""


@contextmanager
def running(
    engine: PrivateEngine, image: str, *command: str, **options: Any
) -> Iterator[Container]:
    container = engine.client.containers.run(image, list(command), detach=True, **options)
    try:
        yield container
    finally:
        container.remove(force=True)


def until(claim: Callable[[], bool], *, what: str) -> None:
    run_apart(eventually(claim, what=what))


def url_of(container: Container) -> str:
    container.reload()
    published = container.ports["8000/tcp"]
    assert published is not None
    return f"http://127.0.0.1:{published[0]['HostPort']}"


def ready(container: Container) -> str:
    """Its address, once it serves; a connection alone says nothing, the engine's proxy takes it."""

    def answers() -> bool:
        try:
            return requests.get(f"{url_of(container)}/health", timeout=1).ok
        except requests.RequestException:
            return False

    until(answers, what="a stub engine that is ready")
    return url_of(container)


def traces(place: Place) -> list[str]:
    """Whatever there still is of an engine."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    mounts = [line for line in lines if f"{place.root}/" in line]
    paths = [place.root, place.lock, place.large, Path("/sys/class/net") / place.bridge]
    cgroups = list(Path("/sys/fs/cgroup").glob(f"**/{place.name}"))
    processes = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            processes += (
                [entry]
                if f"{place.root}/".encode() in entry.joinpath("cmdline").read_bytes()
                else []
            )
        except OSError:
            continue
    return [*mounts, *map(str, [*filter(Path.exists, paths), *cgroups, *processes])]


@contextmanager
def abandoned() -> Iterator[tuple[Place, int]]:
    """A test process with an engine and a container, just killed; its place and its watcher."""
    process = subprocess.Popen(
        [sys.executable, "-c", ABANDON], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        name, watcher = process.stdout.readline().split()
        place = Place(int(name.removeprefix("gs-")))
        assert len(traces(place)) > 5
        yield place, int(watcher)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.long
def test_container_engine_serves_and_sees_its_devices(
    docker_engine: PrivateEngine,
) -> None:
    gpus = DeviceRequest(device_ids=["0", "2"], capabilities=[["gpu"]])
    image = engine_image(docker_engine.client)

    with running(
        docker_engine,
        image,
        *("vllm", "serve", "meta/llama", "--max-model-len", "4096"),
        ports=ON_LOOPBACK,
        device_requests=[gpus],
    ) as container:
        url = ready(container)
        given = requests.get(f"{url}/stub", timeout=30).json()
        question = {"messages": [{"role": "user", "content": "one two"}], "max_tokens": 3}
        answer = requests.post(f"{url}/v1/chat/completions", json=question, timeout=30).json()
        container.stop(timeout=5)
        container.reload()

        assert docker_engine.devices_of(container.id or "") == {"NVIDIA_VISIBLE_DEVICES": "0,2"}

    assert given["argv"] == ["serve", "meta/llama", "--max-model-len", "4096"]
    assert given["environ"]["NVIDIA_VISIBLE_DEVICES"] == "0,2"
    assert "CUDA_VISIBLE_DEVICES" not in given["environ"]
    assert answer["model"] == "meta/llama"
    assert answer["usage"]["completion_tokens"] == 3
    assert container.attrs["State"]["ExitCode"] == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "exit_code", "is_oom", "line"),
    [
        pytest.param(
            ("python3", "-m", "sglang.launch_server", "--model-path", "m", "--stub-exit-after=0.1"),
            1,
            False,
            "stub engine serves m",
            id="exits",
        ),
        pytest.param(
            ("llama-server", "-m", "m", "--stub-lines=2000", "--stub-exit-after=0"),
            1,
            False,
            "line 00001999",
            id="floods its log",
        ),
        pytest.param(("engine", "--stub-allocate"), 137, True, "serves", id="takes all memory"),
    ],
)
def test_an_engine_misbehaves_as_it_is_told(
    docker_engine: PrivateEngine, command: tuple[str, ...], exit_code: int, is_oom: bool, line: str
) -> None:
    image = engine_image(docker_engine.client)

    with running(docker_engine, image, *command, mem_limit="96m", memswap_limit="96m") as container:
        ended = container.wait(timeout=45)
        container.reload()

        assert ended["StatusCode"] == exit_code
        assert container.attrs["State"]["OOMKilled"] is is_oom
        assert line in container.logs().decode()


@pytest.mark.long
def test_environment_makes_engine_ignore_sigterm(
    docker_engine: PrivateEngine,
) -> None:
    tag = engine_image(docker_engine.client, "some-registry/engine:1", entrypoint=["engine"])

    with running(
        docker_engine,
        tag,
        "--model=m",
        environment={"STUB_ENGINE": "--ignore-sigterm"},
        ports=ON_LOOPBACK,
        init=True,
    ) as container:
        ready(container)
        container.kill("SIGTERM")
        container.stop(timeout=0)
        container.reload()

        assert container.attrs["State"]["ExitCode"] == 137


def test_docker_engine_needs_root_and_programs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.support.docker.private_engine.PATH", "/nowhere")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    without_programs = missing()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert missing() == "a private container engine needs root"
    assert "dockerd" in str(without_programs)
    assert "docker.io" in str(without_programs)


@pytest.mark.long
def test_failing_hook_keeps_container_from_starting(
    docker_engine: PrivateEngine,
) -> None:
    image = busybox_image(docker_engine.client)
    gpus = DeviceRequest(count=-1, capabilities=[["gpu"]])
    container = docker_engine.client.containers.create(image, ["true"], device_requests=[gpus])

    try:
        with (
            docker_engine.hook_failing("nvml error: driver not loaded"),
            pytest.raises(docker.errors.APIError, match="nvml error: driver not loaded"),
        ):
            container.start()
        with (
            docker_engine.hook_missing(),
            pytest.raises(docker.errors.APIError, match="nvidia-container-runtime-hook"),
        ):
            container.start()
        container.start()
    finally:
        container.remove(force=True)

    assert docker_engine.devices_of(container.id or "") == {"NVIDIA_VISIBLE_DEVICES": "all"}


@pytest.mark.long
def test_containers_and_ports_outlive_docker(docker_engine: PrivateEngine) -> None:
    image, ports = engine_image(docker_engine.client), {"8000/tcp": ("127.0.0.1", free_port())}

    with running(docker_engine, image, "engine", ports=ports) as container:
        url = ready(container)
        pid = container.attrs["State"]["Pid"]
        docker_engine.kill()
        docker_engine.start()

        assert ready(container) == url
        assert container.attrs["State"]["Pid"] == pid


@pytest.mark.long
def test_two_engines_at_once_do_not_meet(docker_engine: PrivateEngine) -> None:
    with private_engine() as other:
        image, same = engine_image(docker_engine.client), engine_image(other.client)
        with (
            running(docker_engine, image, "engine", "--model=first", ports=ON_LOOPBACK) as first,
            running(other, same, "engine", "--model=second", ports=ON_LOOPBACK) as second,
        ):
            models = [
                requests.get(f"{ready(container)}/v1/models", timeout=30).json()["data"][0]["id"]
                for container in (first, second)
            ]
            inside = [
                container.attrs["NetworkSettings"]["IPAddress"] for container in (first, second)
            ]

            assert models == ["first", "second"]
            assert inside[0] != inside[1]
            assert [c.id for c in other.client.containers.list(all=True)] == [second.id]
        place = Place(int(other.root.name.removeprefix("gs-")))

    assert traces(place) == []


@pytest.mark.long
def test_killed_test_process_leaves_nothing() -> None:
    with abandoned() as (place, _):
        sockets = place.shim_sockets()
        assert [path.is_socket() for path in sockets] == [True]

    until(lambda: not traces(place), what=f"no trace of {place.name}")
    assert not any(path.exists() for path in sockets)


@pytest.mark.long
def test_killed_watcher_leaves_nothing() -> None:
    with abandoned() as (place, watcher):
        os.kill(watcher, signal.SIGKILL)
    assert traces(place)

    began = time.monotonic()
    remove_ownerless()

    assert traces(place) == []
    assert time.monotonic() - began < 10
