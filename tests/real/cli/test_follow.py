"""How a task is followed, against a stand-in for the gateway."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState, TaskState
from services.cli.follow import follow_to_end
from shared.client.discovery import Address
from shared.client.http import StewardClient
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.processes.followers import PIPE_BYTES, unread_bytes
from tests.support.worlds.gateway_views import make_experiment, make_task


@pytest.fixture
async def gateway() -> AsyncIterator[tuple[StubGateway, str]]:
    async with stub_gateway() as (stub, url):
        yield stub, url


async def test_task_is_read_only_on_its_events(
    gateway: tuple[StubGateway, str], capsys: pytest.CaptureFixture[str]
) -> None:
    stub, url = gateway
    experiment = make_experiment(state=ExperimentState.RUNNING)
    task = make_task(task_id=experiment.task_id, state=TaskState.RUNNING)
    stub.tasks, stub.experiments = [task], [experiment]

    def reads() -> int:
        return sum(path == f"/api/v1/tasks/{task.task_id}" for _, path, _ in stub.calls)

    async with StewardClient(Address(url, None)) as client, asyncio.timeout(40):
        following = asyncio.create_task(follow_to_end(client, task.task_id))
        await eventually(lambda: len(stub.sockets) == 2 and reads() == 1)
        stub.experiments = [replace(experiment, state=ExperimentState.FAILED)]
        stub.tasks = [replace(task, state=TaskState.COMPLETED)]
        await stub.tell("orchestrator.task_completed")
        code = await following

    assert (code, reads()) == (1, 2)
    subscribed = {path for _, path, _ in stub.calls if path.startswith("/ws/")}
    assert subscribed == {f"/ws/{kind}?task_id={task.task_id}" for kind in ("events", "metrics")}
    assert "0 of 1 experiments succeeded" in capsys.readouterr().out


async def test_unread_results_delay_nothing_else(
    gateway: tuple[StubGateway, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stub, url = gateway
    task = make_task(state=TaskState.CANCELLED)
    stub.tasks = [task]
    stub.experiments = [
        make_experiment(n + 1, task_id=task.task_id, state=ExperimentState.CANCELLED)
        for n in range(1_000)
    ]
    ours, theirs = os.pipe()
    read = bytearray()

    def read_until_results() -> bool:
        if b"experiments succeeded" not in read and unread_bytes(ours):
            read.extend(os.read(ours, 4_096))
        return b"experiments succeeded" in read and unread_bytes(ours) > PIPE_BYTES

    with os.fdopen(theirs, "w") as stdout, os.fdopen(ours):
        monkeypatch.setattr("sys.stdout", stdout)
        async with StewardClient(Address(url, None)) as client:
            following = asyncio.create_task(follow_to_end(client, task.task_id))
            await eventually(read_until_results, every_seconds=0.001)
            following.cancel()
            await asyncio.wait({following})

    assert following.cancelled()
