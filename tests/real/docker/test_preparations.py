"""Images that are pulled for what waits for GPUs, from a registry on loopback."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import docker.errors
import msgspec
import pytest

from schemas.executor.attempts import EngineSpec, FailureKind, Runtime
from schemas.orchestrator.experiments import StartsWaiting, WaitingStart
from services.executor.domain.verdict import AttemptFailed
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.runtimes.runtime import RuntimeUnavailable
from services.executor.settings import ExecutorSettings
from shared.clock import utcnow
from shared.testing import eventually
from shared.waiting import cancel_and_wait
from tests.support.docker.images import busybox_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.docker.registry import TAG, Registry, image_registry
from tests.support.worlds.executor import (
    NODE,
    Scheduler,
    executor_process,
    make_settings,
    scheduling,
    until_answering,
)
from tests.support.worlds.runtime_launches import start_of

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

WANTED = EngineSpec(runtime=Runtime.DOCKER, engine="own", model="m")


@pytest.fixture
def registry(docker_engine: PrivateEngine) -> Iterator[Registry]:
    """With an image that the engine does not have, not even its layers."""
    client = docker_engine.client
    image = busybox_image(client)
    with image_registry(client, image) as served:
        client.images.remove(image)
        yield served
    if has_image(docker_engine, served):
        client.images.remove(f"{served.repository}:{TAG}")


@pytest.fixture
def settings(
    docker_engine: PrivateEngine, registry: Registry, nats_url: str, tmp_path: Path
) -> ExecutorSettings:
    engines = tmp_path / "engines.toml"
    engines.write_text(
        f'[engines.own]\nimage = "{registry.repository}"\ntag = "{TAG}"\n'
        'port = 8000\nallow = ["*"]\n'
    )
    return make_settings(
        nats_url,
        tmp_path / "data",
        docker_host=docker_engine.base_url,
        engines_file=str(engines),
        prepare_spare_disk_percent=0.0,
    )


def has_image(engine: PrivateEngine, registry: Registry) -> bool:
    try:
        engine.client.images.get(f"{registry.repository}:{TAG}")
    except docker.errors.ImageNotFound:
        return False
    return True


async def until_asked(registry: Registry, times: int = 1) -> None:
    await eventually(
        lambda: len(registry.blobs_asked) >= 2 * times, within_seconds=60, what="a pull"
    )


async def test_attempt_joins_and_outlives_preparing_pull(
    docker_engine: PrivateEngine, registry: Registry, settings: ExecutorSettings
) -> None:
    runtime, start = DockerRuntime(settings), start_of("own", {})
    joined = asyncio.Event()
    preparing = asyncio.create_task(runtime.prepare(WANTED))
    await until_asked(registry)
    fetching = asyncio.create_task(runtime.fetch(start, lambda *_: joined.set()))
    await asyncio.sleep(0)  # it has asked for the image
    await cancel_and_wait(preparing)
    registry.may_go_on.set()
    await asyncio.wait_for(fetching, 60)

    assert len(registry.blobs_asked) == 2
    assert has_image(docker_engine, registry)
    assert await runtime.prepare(WANTED) == "", "it is there"


async def test_nothing_is_pulled_onto_full_disk(
    docker_engine: PrivateEngine, registry: Registry, settings: ExecutorSettings
) -> None:
    runtime = DockerRuntime(msgspec.structs.replace(settings, prepare_spare_disk_percent=100.0))

    with pytest.raises(AttemptFailed, match="pulled when it is needed") as failed:
        await runtime.prepare(WANTED)

    assert failed.value.failure.kind is FailureKind.DISK_FULL
    assert registry.blobs_asked == []
    assert not has_image(docker_engine, registry)


async def test_a_docker_that_is_away_is_told(settings: ExecutorSettings) -> None:
    away = msgspec.structs.replace(settings, docker_host="unix:///nowhere/docker.sock")

    with pytest.raises(RuntimeUnavailable):
        await DockerRuntime(away).prepare(WANTED)


async def tell(scheduler: Scheduler, start: WaitingStart) -> None:
    await scheduler.bus.publish_live(
        StartsWaiting(observed_at=utcnow(), executor_id=NODE, starts=(start,))
    )


async def test_next_executor_repeats_pull_of_killed_one(
    docker_engine: PrivateEngine,
    registry: Registry,
    settings: ExecutorSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUSTEWARD_EXECUTOR_PREPARE_SPARE_DISK_PERCENT", "0")
    start = WaitingStart(task_id=uuid4(), experiment_id=uuid4(), attempt_id=uuid4(), engine=WANTED)

    async def asked(times: int) -> None:
        async def is_asked() -> bool:
            await tell(scheduler, start)
            return len(registry.blobs_asked) >= 2 * times

        await eventually(is_asked, within_seconds=60, what="a pull")

    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await asked(1)
            first.kill()
            first.wait()
        had_image = has_image(docker_engine, registry)
        with executor_process(settings):
            await until_answering(scheduler)
            await asked(2)
            registry.may_go_on.set()
            await eventually(
                lambda: has_image(docker_engine, registry), within_seconds=60, what="the image"
            )
            await eventually(lambda: bool(scheduler.progress), within_seconds=60, what="a word")
            running = await scheduler.running()

    assert not had_image
    assert running.attempts == ()
    (told,) = {one.message for one in scheduler.progress}
    assert told == f"while it waited, on {NODE}: {registry.repository}:{TAG} was pulled"
