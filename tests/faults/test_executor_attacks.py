"""An executor whose container engine hangs or lies, and that dies in the middle of every step."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from schemas.errors import Accepted, Reply
from schemas.executor.attempts import (
    AttemptOutcome,
    AttemptPhaseChanged,
    FailureKind,
    StartExperiment,
)
from schemas.scheduler.reservations import RenewReservation
from services.executor.app import create_service
from services.executor.journal import store
from services.executor.journal.journal import MIGRATIONS, Journal
from services.executor.runtimes.docker.runtime import DockerRuntime
from services.executor.settings import ExecutorSettings
from shared.testing import eventually, short_directory
from tests.support.docker.images import busybox_image, engine_image, stub_engines_file
from tests.support.docker.private_engine import PrivateEngine
from tests.support.docker.proxy import DockerProxy, docker_proxy
from tests.support.worlds.executor import (
    ENDLESS,
    NODE,
    Scheduler,
    executor_process,
    make_cancel,
    make_device,
    make_endless_start,
    make_fence,
    make_settings,
    make_start,
    scheduling,
    until_answering,
)
from tests.support.worlds.runtime_launches import launch_of, runtime_settings, start_of

TAG = "test"
LEFT_WITHIN_SECONDS = 15.0
SHORTEST_LEASE_SECONDS = 3.0


@dataclass(slots=True)
class World:
    """An engine behind a proxy, and a scheduler that answers renewals until it is told not to."""

    engine: PrivateEngine
    proxy: DockerProxy
    scheduler: Scheduler
    settings: ExecutorSettings
    is_silent: bool = False
    renewed_at: float = 0.0

    def renew(self, command: RenewReservation) -> Reply | None:
        if self.is_silent:
            return None
        self.renewed_at = time.monotonic()
        return Accepted(command_id=command.command_id)

    def containers(self) -> list[dict[str, Any]]:
        return list(self.engine.client.api.containers(all=True))

    async def until_nothing_is_left(self, start: StartExperiment) -> None:
        await eventually(
            lambda: not self.containers() and not self.scheduler.pids(start.reservation_id),
            within_seconds=LEFT_WITHIN_SECONDS,
            what="no container and no process of it",
        )

    async def until_gone(self, start: StartExperiment) -> float:
        """When the last of its processes has ended, in seconds after the last renewal."""
        await eventually(
            lambda: not self.scheduler.pids(start.reservation_id),
            within_seconds=30,
            every_seconds=0.02,
            what="the end of its processes",
        )
        return time.monotonic() - self.renewed_at

    async def until_measuring(self, start: StartExperiment) -> None:
        async def is_measuring() -> bool:
            return any(
                isinstance(fact, AttemptPhaseChanged) and fact.phase == "measuring"
                for fact in await self.scheduler.facts(start)
            )

        await eventually(is_measuring, within_seconds=40, what="the phase measuring")


@pytest.fixture
async def world(docker_engine: PrivateEngine, nats_url: str) -> AsyncIterator[World]:
    engine_image(docker_engine.client, f"vllm/vllm-openai:{TAG}")
    with (
        short_directory() as directory,
        docker_proxy(directory / "docker.sock", docker_engine.socket) as proxy,
    ):
        settings = make_settings(
            nats_url,
            directory,
            docker_host=proxy.base_url,
            engines_file=stub_engines_file(directory),
        )
        async with scheduling(settings) as scheduler:
            world = World(docker_engine, proxy, scheduler, settings)
            scheduler.answer_renewal = world.renew
            yield world
    for each in world.containers():
        docker_engine.client.api.remove_container(each["Id"], force=True)


def endless(**overrides: Any) -> StartExperiment:
    """In a container, until it is stopped."""
    benchmark = make_endless_start().benchmark
    return start_of("vllm", dict(ENDLESS), image_tag=TAG, benchmark=benchmark, **overrides)


@pytest.mark.long
async def test_engine_hanging_in_start_costs_no_lease(world: World) -> None:
    """The container runs, and the executor has not heard so."""
    start = endless(lease_ttl_seconds=SHORTEST_LEASE_SECONDS)
    world.proxy.after_success("POST .*/start", world.proxy.freeze)
    async with create_service(world.settings).running():
        await world.scheduler.ask(start)
        await eventually(lambda: world.proxy.is_frozen, within_seconds=20, what="a start")
        world.is_silent = True
        found = world.scheduler.pids(start.reservation_id)
        gone_after_seconds = await world.until_gone(start)
        world.proxy.thaw()
        finished = await world.scheduler.finished(start)

    assert found
    assert gone_after_seconds < SHORTEST_LEASE_SECONDS
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert world.containers() == []


@pytest.mark.long
async def test_unkillable_container_ends_by_the_kernel(world: World) -> None:
    start = endless(lease_ttl_seconds=SHORTEST_LEASE_SECONDS)
    async with create_service(world.settings).running():
        await world.scheduler.ask(start)
        await world.until_measuring(start)
        world.proxy.refuse("POST .*/kill", "tried to kill container, but received no exit event")
        world.is_silent = True
        gone_after_seconds = await world.until_gone(start)
        finished = await world.scheduler.finished(start)

    assert gone_after_seconds < SHORTEST_LEASE_SECONDS
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.LEASE_LOST
    assert world.containers() == []


Arrange = Callable[[DockerProxy, Callable[[], None]], None]
MOMENTS: dict[str, Arrange] = {
    "before a container is made": lambda proxy, kill: proxy.before("POST .*/create", kill),
    "when it is made": lambda proxy, kill: proxy.after_success("POST .*/create", kill),
    "before it is started": lambda proxy, kill: proxy.before("POST .*/start", kill),
    "when it is started": lambda proxy, kill: proxy.after_success("POST .*/start", kill),
    "before it is asked to end": lambda proxy, kill: proxy.before("POST .*/kill", kill),
    "when it has been asked to end": lambda proxy, kill: proxy.after_success("POST .*/kill", kill),
}


@pytest.mark.long
@pytest.mark.timeout(200)
async def test_executor_dying_anywhere_tells_one_end(
    world: World,
) -> None:
    """Each moment is exact: the question was not asked, or was answered and not heard."""
    async with AsyncExitStack() as lives:
        life = lives.enter_context(executor_process(world.settings))
        await until_answering(world.scheduler)
        for moment, arrange in MOMENTS.items():
            start = endless()
            arrange(world.proxy, lambda pid=life.pid: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]
            await world.scheduler.ask(start)
            if "end" in moment:
                await world.until_measuring(start)
                await world.scheduler.ask(make_cancel(start))
            await eventually(lambda life=life: life.poll() is not None, what=moment)  # type: ignore[misc]
            life = lives.enter_context(executor_process(world.settings))
            await world.until_nothing_is_left(start)
            finished = await world.scheduler.finished(start)
            await world.scheduler.until_released(start)

            kinds = {AttemptOutcome.INTERRUPTED, AttemptOutcome.CANCELLED}
            assert finished.outcome in kinds, moment
            assert isinstance(
                await world.scheduler.ask(make_fence(start.reservation_id)), Accepted
            ), moment


@pytest.mark.long
async def test_first_starts_find_missing_features_once(
    docker_engine: PrivateEngine, tmp_path: Path
) -> None:
    engine_image(docker_engine.client, f"vllm/vllm-openai:{TAG}")
    settings = runtime_settings(tmp_path, docker_host=docker_engine.base_url)
    runtime = DockerRuntime(settings)
    starts = [start_of("vllm", image_tag=TAG) for _ in range(4)]

    started = await asyncio.gather(
        *(runtime.start(launch_of(start, settings)) for start in starts), return_exceptions=True
    )
    engines = [each for each in started if not isinstance(each, BaseException)]
    await asyncio.gather(*(each.stop(0.0) for each in engines))

    assert [each for each in started if isinstance(each, BaseException)] == []


@asynccontextmanager
async def strangers(
    engine: PrivateEngine, labels: list[dict[str, str]]
) -> AsyncIterator[list[Any]]:
    """Containers of somebody else's, with what they claim to be."""
    run, image = engine.client.containers.run, busybox_image(engine.client)
    made: list[Any] = []
    try:
        for each in labels:
            claims = {f"gpusteward.{name}": value for name, value in each.items()}
            made.append(
                await asyncio.to_thread(run, image, ["sleep", "1000"], labels=claims, detach=True)
            )
        yield made
    finally:
        for container in made:
            await asyncio.to_thread(container.remove, force=True)


@pytest.mark.long
async def test_foreign_labels_hide_and_stop_nothing(
    world: World,
) -> None:
    start = endless()
    settings = msgspec.structs.replace(world.settings, reconcile_interval_seconds=0.5)
    ours = {"installation": settings.installation_id, "node": NODE}
    same = {"reservation": str(start.reservation_id), "experiment": str(start.experiment_id)}
    claims = [
        {**ours, "reservation": "x; reboot"},
        {**ours, "reservation": ""},
        ours,
        {**ours, "reservation": str(uuid4()), "epoch": "9" * 10_000},
        {**ours, **same, "node": "node-2"},
        {**ours, **same, "installation": "another"},
        {"node": NODE, **same},
    ]
    async with create_service(settings).running(), strangers(world.engine, claims) as others:
        await world.scheduler.ask(start)
        await world.until_measuring(start)
        listed = await world.scheduler.running()
        await world.scheduler.ask(make_cancel(start))
        await world.scheduler.finished(start)
        fenced = await world.scheduler.ask(make_fence(start.reservation_id))
        for container in others:
            await asyncio.to_thread(container.reload)
        states = {container.status for container in others}

    assert listed.workloads is not None
    assert start.reservation_id in {each.reservation_id for each in listed.workloads}
    assert isinstance(fenced, Accepted)
    assert states == {"running"}


async def test_first_release_journal_is_continued(
    tmp_path: Path,
) -> None:
    start = make_start(devices=(make_device("GPU-7"),))
    known_then = {
        name: value
        for name, value in msgspec.to_builtins(start, builtin_types=(bytes,)).items()
        if name not in {"cpu_count", "host_memory_mb", "gang"}
    }
    path = tmp_path / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.executescript(MIGRATIONS[0])
        connection.execute("PRAGMA user_version = 1")
        connection.execute(
            "INSERT INTO attempt (attempt_id, experiment_id, reservation_id, command, accepted_at,"
            " phase, phase_started_at, timings) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                start.attempt_id.bytes,
                start.experiment_id.bytes,
                start.reservation_id.bytes,
                msgspec.msgpack.encode(known_then),
                "2026-01-01T00:00:00+00:00",
                "measuring",
                "2026-01-01T00:00:00+00:00",
                msgspec.msgpack.encode(()),
            ),
        )
    connection.close()

    journal = await Journal(path).open()
    found = await journal.transact(store.find_unfinished_attempts)
    journal.close_nowait()

    assert [each.command for each in found] == [start]
    assert found[0].failure is None


@pytest.mark.long
async def test_unremovable_container_keeps_no_gpu(world: World) -> None:
    start = endless()
    async with create_service(world.settings).running():
        await world.scheduler.ask(start)
        await world.until_measuring(start)
        world.proxy.refuse("DELETE ", "driver failed to remove root filesystem: device busy")
        await world.scheduler.ask(make_cancel(start))
        try:
            finished = await world.scheduler.finished(start, within_seconds=60)
        finally:
            world.proxy.refuse_nothing()

    assert finished.outcome is AttemptOutcome.CANCELLED


@pytest.mark.long
async def test_slow_engine_still_ends_an_attempt(world: World) -> None:
    start = endless()
    inspect = "GET .*/containers/[0-9a-f]+/json"

    def slow() -> None:
        world.proxy.before(inspect, slow)
        time.sleep(3)

    async with create_service(world.settings).running():
        await world.scheduler.ask(start)
        await world.until_measuring(start)
        slow()
        await world.scheduler.ask(make_cancel(start))
        finished = await world.scheduler.finished(start, within_seconds=60)

    assert finished.outcome is AttemptOutcome.CANCELLED
