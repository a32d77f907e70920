"""Executors are told what waits for GPUs, over a real nats-server and Postgres."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from schemas.errors import Accepted
from schemas.executor.attempts import AttemptPhase, AttemptProgressed, EngineSpec, Runtime
from schemas.orchestrator.experiments import CancelTask, StartsWaiting
from services.orchestrator import preparations
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.orchestrator import NODE, World, task_file

OTHER = "n2"


@pytest.fixture
def settings(
    nats_url: str, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> OrchestratorSettings:
    """Without the rest after each round, which is long where the machine is busy."""
    monkeypatch.setattr(preparations, "PAUSE_RATIO", 0)
    return OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, preparation_interval_seconds=0.1
    )


@pytest.fixture
async def told(world: World) -> AsyncIterator[dict[str, StartsWaiting]]:
    """The newest that each executor was told."""
    newest: dict[str, StartsWaiting] = {}
    world.auto_grant = world.auto_run = False

    async def note(message: StartsWaiting) -> None:
        newest[message.executor_id] = message

    heard = await world.bus.listen(StartsWaiting, note)
    await world.report(OTHER)
    yield newest
    await heard.unsubscribe()


def models(told: dict[str, StartsWaiting], node: str) -> list[str] | None:
    return [each.engine.model for each in told[node].starts] if node in told else None


async def until(told: dict[str, StartsWaiting], **expected: list[str]) -> None:
    await eventually(
        lambda: all(models(told, node) == wanted for node, wanted in expected.items()),
        within_seconds=60,
        what=f"{expected}",
    )


def task_of(model: str) -> Any:
    return task_file(name=model, model={"id_or_path": model}, parameters={"slots": [1]})


async def test_expected_node_prepares_while_it_waits(
    settings: OrchestratorSettings, world: World, told: dict[str, StartsWaiting]
) -> None:
    world.expected_node_ids = (OTHER,)
    async with create_service(settings).running():
        first = await world.submit(task_of("first"))
        await until(told, n1=[], n2=["first"])
        await world.submit(task_of("second"))
        await until(told, n1=[], n2=["first", "second"])
        (start, _) = told[OTHER].starts
        cancel = CancelTask(command_id=new_id(), task_id=first)
        assert isinstance(await world.bus.request(cancel), Accepted)
        await until(told, n1=[], n2=["second"])
        await world.grant(list(world.requests)[1])
        await until(told, n1=[], n2=[])

    assert start.task_id == first
    assert start.engine == EngineSpec(runtime=Runtime.PROCESS, engine="simulated", model="first")


async def test_restarted_orchestrator_publishes_again(
    settings: OrchestratorSettings, world: World, told: dict[str, StartsWaiting]
) -> None:
    async with create_service(settings).running():
        await until(told, n1=[], n2=[])  # or the request names the one that is known first
        await world.submit(task_of("first"))
        await until(told, n1=["first"], n2=["first"])
    told.clear()
    async with create_service(settings).running():
        await until(told, n1=["first"], n2=["first"])


async def test_experiment_shows_what_was_prepared(
    settings: OrchestratorSettings, world: World, told: dict[str, StartsWaiting]
) -> None:
    async with create_service(settings).running():
        task_id = await world.submit(task_of("first"))
        await until(told, n1=["first"])
        start = told[NODE].starts[0]
        message = "while it waited, on n1: vllm:v1 was pulled"
        progress = AttemptProgressed(
            observed_at=utcnow(),
            executor_id=NODE,
            experiment_id=start.experiment_id,
            attempt_id=start.attempt_id,
            task_id=task_id,
            phase=AttemptPhase.PULLING,
            fraction=0.0,
            message=message,
        )

        async def is_shown() -> bool:
            await world.bus.publish_live(progress)
            return (await world.experiments(task_id))[0].prepared == message

        await eventually(is_shown, within_seconds=60, what="what was made ready")
