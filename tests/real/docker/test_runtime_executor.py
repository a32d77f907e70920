"""Whole attempts in containers: an executor, its scheduler, and a Docker engine that may go."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.executor.attempts import (
    AttemptFinished,
    AttemptOutcome,
    AttemptPhaseChanged,
    EngineSpec,
    FailureKind,
    Runtime,
    StartExperiment,
)
from schemas.scheduler.reservations import RenewReservation
from services.executor.app import create_service
from services.executor.settings import ExecutorSettings
from shared.testing import eventually
from tests.support.docker.images import engine_image
from tests.support.docker.private_engine import PrivateEngine
from tests.support.idle_clock import idle_time
from tests.support.worlds.executor import (
    ENDLESS,
    FAST,
    Scheduler,
    accept,
    executor_process,
    make_cancel,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
    until_answering,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(120)]

# Idle ones: 0.4 s are the executor's, the rest the container engine's, which is no child of ours.
GONE_SECONDS = 5.0


@pytest.fixture
def settings(docker_engine: PrivateEngine, nats_url: str, tmp_path: Path) -> ExecutorSettings:
    name, _, tag = engine_image(docker_engine.client).rpartition(":")
    engines = tmp_path / "engines.toml"
    engines.write_text(f'[engines.simulated]\nimage = "{name}"\ntag = "{tag}"\n')
    return make_settings(
        nats_url,
        tmp_path / "data",
        docker_host=docker_engine.base_url,
        engines_file=str(engines),
    )


def contained(start: StartExperiment, parameters: dict[str, Any]) -> StartExperiment:
    """The same attempt in a container."""
    engine = EngineSpec(
        runtime=Runtime.DOCKER, engine="simulated", model="m", parameters=parameters
    )
    return msgspec.structs.replace(start, engine=engine)


def containers(engine: PrivateEngine, start: StartExperiment) -> list[str]:
    """The states of those that are there."""
    label = f"gpusteward.reservation={start.reservation_id}"
    found = engine.client.api.containers(all=True, filters={"label": label})
    return [str(each["State"]) for each in found]


async def test_container_experiment_succeeds_and_leaves_nothing(
    docker_engine: PrivateEngine, settings: ExecutorSettings
) -> None:
    start = contained(make_start(), FAST)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        finished = await scheduler.finished(start)
        release = await scheduler.until_released(start)
        facts = await scheduler.facts(start)

    phases = [fact.phase.value for fact in facts if isinstance(fact, AttemptPhaseChanged)]
    assert finished.outcome is AttemptOutcome.SUCCEEDED, finished.failure
    assert finished.engine_simulated
    # They came from no registry.
    assert finished.image_digest in {image.id for image in docker_engine.client.images.list()}
    assert release.stopped
    assert containers(docker_engine, start) == []
    assert phases.index("loading") < phases.index("measuring") < phases.index("tearing_down")


async def is_loading(engine: PrivateEngine, scheduler: Scheduler, start: StartExperiment) -> None:
    await eventually(
        lambda: containers(engine, start) == ["running"],
        within_seconds=20,
        what="a container that loads",
    )


async def is_serving(engine: PrivateEngine, scheduler: Scheduler, start: StartExperiment) -> None:
    await scheduler.until_measuring(start)


async def is_removed(engine: PrivateEngine, scheduler: Scheduler, start: StartExperiment) -> None:
    await scheduler.until_measuring(start)
    await scheduler.ask(make_cancel(start))
    await asyncio.sleep(0.2)  # somewhere within the grace, which it uses up


@pytest.mark.parametrize(
    ("until", "outcome", "parameters"),
    [
        pytest.param(
            is_loading, AttemptOutcome.INTERRUPTED, {"start-delay-seconds": 600}, id="loading"
        ),
        pytest.param(is_serving, AttemptOutcome.INTERRUPTED, ENDLESS, id="serving"),
        pytest.param(
            is_removed, AttemptOutcome.CANCELLED, {**ENDLESS, "ignore-sigterm": True}, id="removed"
        ),
    ],
)
async def test_container_of_killed_executor_is_removed(
    until: Callable[[PrivateEngine, Scheduler, StartExperiment], Awaitable[None]],
    outcome: AttemptOutcome,
    parameters: dict[str, Any],
    docker_engine: PrivateEngine,
    settings: ExecutorSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUSTEWARD_EXECUTOR_ENGINES_FILE", settings.engines_file)
    start = contained(make_endless_start(timeout_seconds=300.0), parameters)
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            await until(docker_engine, scheduler, start)
            first.kill()
            first.wait()
        left = containers(docker_engine, start)
        with idle_time(timers=False) as clock, executor_process(settings):
            began_at = clock()
            finished = await scheduler.finished(start)
            release = await scheduler.until_released(start)
            took_seconds = clock() - began_at

    assert len(left) == 1
    assert finished.outcome is outcome
    assert release.stopped
    assert containers(docker_engine, start) == []
    assert took_seconds < GONE_SECONDS


async def test_lost_lease_stops_container_without_docker(
    docker_engine: PrivateEngine, settings: ExecutorSettings
) -> None:
    start = contained(
        make_endless_start(lease_ttl_seconds=8.0), {**ENDLESS, "ignore-sigterm": True}
    )
    renewed_at: list[float] = []
    is_silent = False

    def answer(command: RenewReservation) -> Any:
        if is_silent:
            return None
        renewed_at.append(time.monotonic())
        return accept(command)

    async with (
        scheduling(settings, answer_renewal=answer) as scheduler,
        create_service(settings).running(),
    ):
        await scheduler.ask(start)
        await scheduler.until_measuring(start)
        is_silent = True
        await asyncio.to_thread(docker_engine.kill)
        try:
            await eventually(
                lambda: not scheduler.pids(start.reservation_id),
                within_seconds=20,
                what="no process of it",
            )
            ended_at = time.monotonic()
        finally:
            await asyncio.to_thread(docker_engine.start)
        finished = await scheduler.finished(start)
        left = containers(docker_engine, start)

    assert ended_at - renewed_at[-1] < 8.0
    assert finished.outcome in {AttemptOutcome.INTERRUPTED, AttemptOutcome.FAILED}
    assert left == []


async def test_container_out_of_memory_is_reported(
    docker_engine: PrivateEngine, settings: ExecutorSettings
) -> None:
    start = contained(make_start(host_memory_mb=12), FAST)
    async with scheduling(settings) as scheduler, create_service(settings).running():
        await scheduler.ask(start)
        finished: AttemptFinished = await scheduler.finished(start)

    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.OUT_OF_MEMORY
    assert finished.failure.hint
    assert containers(docker_engine, start) == []
