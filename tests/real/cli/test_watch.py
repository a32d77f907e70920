"""`gpusteward watch` and what shells complete, against a stand-in for the gateway."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.scheduler.reservations import ReservationState
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.processes.command_line import (
    CommandProcess,
    Ended,
    run_command,
    start_command,
)
from tests.support.worlds.gateway_views import make_experiment, make_reservation, make_task

pytestmark = pytest.mark.timeout(180)  # processes that start, on whatever machine
ID = UUID(int=7)
DEADLINE_SECONDS = 60.0


@pytest.fixture
async def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StubGateway]:
    async with stub_gateway() as (stub, url):
        monkeypatch.setenv("GPUSTEWARD_URL", url)
        monkeypatch.setenv("GPUSTEWARD_DATA_DIR", str(tmp_path))
        yield stub


async def start(*arguments: str) -> CommandProcess:
    return await start_command(*arguments, environment=os.environ)


async def ended(process: CommandProcess) -> tuple[int | None, str]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, _ = await process.communicate()
    return process.returncode, out.decode()


async def test_a_reservation_is_watched_to_its_end(stub: StubGateway) -> None:
    queued = make_reservation(
        reservation_id=ID, state=ReservationState.QUEUED, queue_position=2, devices=()
    )
    stub.reservations[ID] = queued
    process = await start("watch", str(ID))
    await eventually(lambda: bool(stub.sockets), within_seconds=DEADLINE_SECONDS)
    assert process.stdout is not None
    first = (await process.stdout.readline()).decode()

    stub.reservations[ID] = make_reservation(reservation_id=ID)
    await stub.tell("scheduler.reservation_granted")
    second = (await process.stdout.readline()).decode()
    for socket in stub.sockets:  # what happens while the stream is away is found afterwards
        await socket.close()
    stub.reservations[ID] = make_reservation(reservation_id=ID, state=ReservationState.RELEASED)
    code, rest = await ended(process)

    assert "queued  position 2" in first
    assert "granted  alpha/0" in second
    assert (code, rest.split()[2]) == (0, "released")


async def test_task_is_watched_and_survives_ctrl_c(stub: StubGateway) -> None:
    task = make_task(task_id=ID, experiments_total=1)
    stub.tasks.append(task)
    stub.experiments.append(make_experiment(task_id=ID, state=ExperimentState.WAITING))
    left = await start("watch", "tuning")
    await eventually(lambda: len(stub.sockets) == 2, within_seconds=DEADLINE_SECONDS)
    left.send_signal(signal.SIGINT)
    code, _ = await ended(left)
    stub.sockets.clear()

    process = await start("watch", "tuning")
    await eventually(lambda: len(stub.sockets) == 2, within_seconds=DEADLINE_SECONDS)
    stub.experiments[0] = make_experiment(task_id=ID, state=ExperimentState.FAILED)
    stub.tasks[0] = replace(task, state=TaskState.COMPLETED)
    await stub.tell("orchestrator.task_completed")
    finished, out = await ended(process)

    assert code == 130
    assert (finished, "task tuning completed: 0 of 1" in out) == (1, True)
    assert {call[0] for call in stub.calls} == {"GET"}


async def completed(words: str, **environment: str) -> list[str]:
    output = await typed(
        {
            "_GPUSTEWARD_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
            **environment,
        }
    )
    return [line.removeprefix("plain,") for line in output.out.split()]


async def typed(environment: Mapping[str, str], *arguments: str) -> Ended:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return await run_command(*arguments, environment={**os.environ, **environment})


async def test_a_shell_completes_commands_names_and_ids(stub: StubGateway) -> None:
    stub.tasks.append(make_task(task_id=ID, task_name="nightly"))
    stub.reservations[ID] = make_reservation(reservation_id=ID)

    assert await completed("gpusteward wat") == ["watch"]
    assert await completed("gpusteward show ") == ["nightly", str(ID)]
    assert await completed("gpusteward show ni") == ["nightly"]
    assert await completed("gpusteward cancel 0000") == [str(ID)]


async def test_completion_without_platform_is_silent(
    stub: StubGateway,
) -> None:
    nowhere = "http://127.0.0.1:1"

    assert await completed("gpusteward show ", GPUSTEWARD_URL=nowhere) == []
    assert await completed(f"gpusteward cordon --url {nowhere} ") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_the_script_for_a_shell_is_printed(shell: str) -> None:
    output = await typed({}, "completion", shell)

    assert output.code == 0
    assert f"_GPUSTEWARD_COMPLETE={shell}_complete" in output.out
