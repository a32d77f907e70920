"""Images from a registry on loopback."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import docker.errors
import msgspec
import pytest

from schemas.executor.attempts import FailureKind, StartExperiment
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.settings import ExecutorSettings
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.docker.images import busybox_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.docker.registry import Registry, image_registry
from tests.support.worlds.runtime_launches import runtime_settings, start_of

pytestmark = pytest.mark.long


@pytest.fixture
def registry(docker_engine: PrivateEngine) -> Iterator[Registry]:
    """With an image that the engine does not have, not even its layers."""
    client = docker_engine.client
    image = busybox_image(client)
    with image_registry(client, image) as served:
        client.images.remove(image)
        yield served
    for tag in ("1", "2"):
        try:
            client.images.remove(f"{served.repository}:{tag}")
        except docker.errors.ImageNotFound:
            continue


@pytest.fixture
def settings(docker_engine: PrivateEngine, registry: Registry, tmp_path: Path) -> ExecutorSettings:
    engines = tmp_path / "engines.toml"
    engines.write_text(
        f'[engines.own]\nimage = "{registry.repository}"\ntag = "1"\nport = 8000\nallow = ["*"]\n'
    )
    return runtime_settings(tmp_path, docker_host=docker_engine.base_url, engines_file=str(engines))


@pytest.fixture
def runtime(settings: ExecutorSettings) -> DockerRuntime:
    return DockerRuntime(settings)


def command_of(tag: str | None = None) -> StartExperiment:
    return start_of("own", {}, image_tag=tag)


async def test_image_is_pulled_once_with_progress(
    registry: Registry, runtime: DockerRuntime
) -> None:
    told: list[tuple[float, str]] = []
    pulls = [
        asyncio.create_task(runtime.fetch(command_of(), lambda *report: told.append(report)))
        for _ in range(2)
    ]
    await eventually(lambda: any(0 < fraction < 1 for fraction, _ in told), what="a half pull")
    registry.may_go_on.set()
    await asyncio.wait_for(asyncio.gather(*pulls), 30)

    fractions = [fraction for fraction, _ in told]
    assert len(registry.blobs_asked) == len(set(registry.blobs_asked)) == 2
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert told[-1][1].startswith("1 of 1 layers")
    await runtime.fetch(command_of(), lambda *_: pytest.fail("pulled again"))


async def test_unknown_tag_is_a_missing_image(runtime: DockerRuntime) -> None:
    with pytest.raises(AttemptFailed) as failed:
        await runtime.fetch(command_of("2"), lambda *_: None)

    assert failed.value.failure.kind is FailureKind.IMAGE_MISSING
    assert "manifest unknown" in failed.value.failure.message


async def test_unneeded_pull_is_aborted(registry: Registry, runtime: DockerRuntime) -> None:
    told: list[float] = []
    first, second = (
        asyncio.create_task(runtime.fetch(command_of(), lambda *report: told.append(report[0])))
        for _ in range(2)
    )
    await eventually(lambda: any(told), what="a half pull")
    await cancel_and_wait(first)
    is_joined = not second.done()
    await cancel_and_wait(second)
    registry.may_go_on.set()
    again = asyncio.create_task(runtime.fetch(command_of(), lambda *_: None))
    await asyncio.wait_for(again, 30)

    assert is_joined
    assert len(registry.blobs_asked) > 2


async def test_a_pull_has_a_deadline(settings: ExecutorSettings) -> None:
    runtime = DockerRuntime(msgspec.structs.replace(settings, pull_timeout_seconds=1.0))

    with pytest.raises(AttemptFailed) as failed:
        await runtime.fetch(command_of(), lambda *_: None)

    assert failed.value.failure.kind is FailureKind.IMAGE_PULL_FAILED
    assert "within 1 s" in failed.value.failure.message


@pytest.mark.parametrize("how", [PrivateEngine.stop, PrivateEngine.kill])
async def test_pull_continues_after_docker_restart(
    how: Callable[[PrivateEngine], None],
    docker_engine: PrivateEngine,
    registry: Registry,
    runtime: DockerRuntime,
) -> None:
    told: list[float] = []
    pull = asyncio.create_task(runtime.fetch(command_of(), lambda *report: told.append(report[0])))
    await eventually(lambda: any(told), what="a half pull")
    await asyncio.to_thread(how, docker_engine)
    registry.may_go_on.set()
    await asyncio.to_thread(docker_engine.start)
    await asyncio.wait_for(pull, 30)
    await runtime.fetch(command_of(), lambda *_: pytest.fail("pulled again"))
