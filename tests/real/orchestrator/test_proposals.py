"""Proposals of searches, which take long: no lock is held over them, and none is lost."""

import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from schemas.errors import Accepted, ErrorCode
from schemas.orchestrator.experiments import ExperimentState, PauseTask, TaskState
from services.orchestrator import proposal_rounds
from services.orchestrator.app import create_service
from services.orchestrator.domain.progress.proposals import Answer, answer
from services.orchestrator.settings import OrchestratorSettings
from shared.ids import new_id
from shared.testing import eventually
from tests.support.worlds.orchestrator import World, task_file

SLOTS = {"slots": {"type": "integer", "low": 1, "high": 32}}
RANDOM = {"strategy": "random", "seed": 5, "max_iterations": 3}


class SlowAnswers:
    """Answers that begin when they are let through; the first ones at once."""

    def __init__(self, prompt: int) -> None:
        self.prompt = prompt
        self.asked = 0
        self.gate = threading.Event()

    def answer(self, *arguments: Any) -> Answer:
        self.asked += 1
        if self.asked > self.prompt:
            self.gate.wait(timeout=20)
        return answer(*arguments)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowAnswers]:
    slow = SlowAnswers(prompt=1)
    monkeypatch.setattr(proposal_rounds, "answer", slow.answer)
    yield slow
    slow.gate.set()


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[None]:
    settings = OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, repair_interval_seconds=60.0
    )
    async with create_service(settings).running():
        yield


async def test_task_is_unlocked_during_a_proposal(
    world: World, slow: SlowAnswers, service: None
) -> None:
    task_id = await world.submit(task_file("slow", parameters=SLOTS, optimization=RANDOM))
    await eventually(lambda: slow.asked == 2, what="the second proposal")

    reply = await world.bus.request(PauseTask(command_id=new_id(), task_id=task_id))

    assert isinstance(reply, Accepted)
    assert not slow.gate.is_set()


async def test_proposal_for_a_paused_task_is_dropped(
    world: World, slow: SlowAnswers, service: None
) -> None:
    task_id = await world.submit(task_file("paused", parameters=SLOTS, optimization=RANDOM))
    await eventually(lambda: slow.asked == 2, what="the second proposal")
    await world.bus.request(PauseTask(command_id=new_id(), task_id=task_id))

    slow.gate.set()

    async def first_has_ended() -> bool:
        [first] = await world.experiments(task_id)
        return first.state is ExperimentState.SUCCEEDED

    await eventually(first_has_ended, what="the end of the first experiment")
    assert (await world.task(task_id)).state is TaskState.PAUSED


async def test_a_refused_start_has_its_search_go_on(world: World, service: None) -> None:
    world.refuse_start = [ErrorCode.BAD_REQUEST]

    task_id = await world.submit(task_file("refused", parameters=SLOTS, optimization=RANDOM))

    await world.until(task_id, TaskState.COMPLETED)
    states = [experiment.state for experiment in await world.experiments(task_id)]
    assert states == [ExperimentState.FAILED] + [ExperimentState.SUCCEEDED] * 2


async def test_lost_proposal_is_made_by_the_next_process(
    nats_url: str, postgres_dsn: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, repair_interval_seconds=60.0
    )
    with monkeypatch.context() as patch:
        patch.setattr(proposal_rounds, "answer", lambda *_: Answer(reason="not now"))
        async with create_service(settings).running():
            task_id = await world.submit(task_file("left", parameters=SLOTS, optimization=RANDOM))
            assert await world.experiments(task_id) == ()

    async with create_service(settings).running():
        await world.until(task_id, TaskState.COMPLETED)
