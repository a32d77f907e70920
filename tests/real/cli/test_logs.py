"""`gpusteward logs` against a stand-in for the gateway, with logs as an executor keeps them."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from schemas.errors import EXIT_CODE, ErrorCode
from schemas.executor.attempts import AttemptOutcome
from schemas.executor.logs import LogChunk
from schemas.orchestrator.experiments import ExperimentState
from schemas.orchestrator.views import AttemptView
from services.cli.commands.tasks import logs
from services.cli.commands.tasks.logs import LogRequest, show_log
from services.executor.logs.engine_log import EngineLog
from services.executor.logs.live_stream import LogStreamer
from shared.client.discovery import Address
from shared.client.errors import ApiError
from shared.client.http import StewardClient
from shared.testing import eventually
from tests.support.fakes.gateway import StubGateway, stub_gateway
from tests.support.processes.command_line import CommandProcess, start_command
from tests.support.worlds.executor import make_start
from tests.support.worlds.gateway_views import make_experiment

FOLLOWED = LogRequest(attempt=None, lines=200, from_beginning=False, follow=True)


class World:
    """An experiment whose first attempt runs on a stub, and what is shown of its log."""

    def __init__(self, stub: StubGateway, url: str, directory: Path) -> None:
        self.stub = stub
        self.url = url
        self.log = EngineLog(directory / "engine.log", 64 * 1024)
        self.experiment = make_experiment(
            state=ExperimentState.RUNNING, attempts=(make_attempt(1),)
        )
        stub.experiments = [self.experiment]
        stub.logs = {1: self.log}
        self.shown: list[LogChunk] = []

    @property
    def lines(self) -> list[str]:
        return [line for chunk in self.shown for line in chunk.lines]

    def streamer(self) -> LogStreamer:
        start = make_start(attempt_id=UUID(int=1), experiment_id=self.experiment.experiment_id)
        return LogStreamer(command=start, engine_log=self.log, publish=self.stub.send)

    async def take(self, chunk: LogChunk) -> None:
        self.shown.append(chunk)

    async def end_attempt(self) -> None:
        self.stub.ended_attempts.add(1)
        await self.stub.tell("executor.attempt_finished")

    async def show(self, wanted: LogRequest = FOLLOWED) -> None:
        async with StewardClient(Address(self.url, None)) as client, asyncio.timeout(40):
            await show_log(client, self.experiment, wanted, self.take)

    @property
    def asked(self) -> list[str]:
        """With which parameters the log was read."""
        paths = [path for _, path, _ in self.stub.calls if path.startswith("/api/")]
        return [path.partition("/logs?")[2] for path in paths if "/logs?" in path]

    async def reads(self, count: int) -> None:
        """Wait until the log was read so often."""
        await eventually(lambda: len(self.asked) >= count, what=f"{count} answers")

    async def run(self, *arguments: str) -> CommandProcess:
        return await start_command("logs", "--url", self.url, *arguments, environment=os.environ)


def make_attempt(number: int, **overrides: Any) -> AttemptView:  # any field
    given: dict[str, Any] = {
        "attempt_id": UUID(int=number),
        "attempt_number": number,
        "reservation_id": uuid4(),
        "executor_id": "alpha",
    }
    return AttemptView(**given | overrides)


@pytest.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(logs, "RECONNECT_SECONDS", 0.05)
    monkeypatch.setattr(logs, "READ_SECONDS", 60.0)
    async with stub_gateway() as (stub, url):
        yield World(stub, url, tmp_path)


async def test_live_lines_are_not_read_again(world: World) -> None:
    world.log.append(b"one\ntwo\n")
    following = asyncio.create_task(world.show())
    await eventually(lambda: bool(world.stub.sockets) and bool(world.shown))
    streamer = world.streamer()
    world.log.append(b"three\n")
    await streamer.finish()

    await eventually(lambda: len(world.lines) >= 3)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)

    assert world.lines == ["one", "two", "three"]
    assert world.asked == ["attempt=1&lines=200"]


async def test_following_neither_misses_nor_repeats(
    world: World,
) -> None:
    lines = [f"line {number} of the engine" for number in range(2000)]
    world.log = world.stub.logs[1] = EngineLog(world.log.path, 1 << 20)
    following = asyncio.create_task(world.show())
    streamer = world.streamer()
    for number, line in enumerate(lines):
        world.log.append(line.encode() + b"\n")
        if number % 7 == 0:
            await streamer.finish()
        if number % 500 == 250 and world.stub.sockets:
            await world.stub.sockets.pop().close()
        if number % 3 == 0:
            streamer = world.streamer()  # what was written until now is never told
    await world.end_attempt()
    await following

    assert world.lines == lines
    assert all(chunk.skipped_bytes == 0 for chunk in world.shown)


async def test_what_is_not_kept_any_more_is_told(world: World) -> None:
    following = asyncio.create_task(world.show())
    await world.reads(1)
    for number in range(20_000):
        world.log.append(b"line %d\n" % number)
    await world.end_attempt()
    await following

    assert world.lines[-1] == "line 19999"
    assert sum(chunk.skipped_bytes for chunk in world.shown) == world.log.start > 0


async def test_following_waits_for_attempt_and_log(world: World) -> None:
    world.stub.logs = {}
    waiting = make_experiment(
        experiment_id=world.experiment.experiment_id, state=ExperimentState.WAITING
    )
    world.experiment, started = waiting, world.experiment
    following = asyncio.create_task(world.show())
    await eventually(lambda: len(world.stub.sockets) == 2)
    world.stub.experiments = [started]
    await world.stub.tell("orchestrator.experiment_started")
    await world.reads(1)

    world.log.append(b"at last\n")
    world.stub.logs = {1: world.log}
    await world.end_attempt()
    await following

    assert world.lines == ["at last"]


async def test_following_without_any_log_ends_with_reason(world: World) -> None:
    world.stub.logs = {}
    ended = make_attempt(1, outcome=AttemptOutcome.FAILED)
    world.experiment = make_experiment(state=ExperimentState.FAILED, attempts=(ended,))
    with pytest.raises(ApiError, match="nothing is kept"):
        await world.show()

    world.experiment = make_experiment(state=ExperimentState.CANCELLED, attempts=())
    with pytest.raises(Exception, match="cancelled with no attempt"):
        await world.show()


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        pytest.param(
            LogRequest(1, 2, False, False), ["line 1998", "line 1999"], id="the last lines"
        ),
        pytest.param(LogRequest(1, 2, True, False), [f"line {n}" for n in range(2000)], id="all"),
        pytest.param(
            LogRequest(1, 2, True, True), [f"line {n}" for n in range(2000)], id="follow all"
        ),
        pytest.param(LogRequest(None, 9, False, False), ["the second"], id="the newest attempt"),
    ],
)
async def test_what_is_shown_is_what_was_asked_for(
    world: World, wanted: LogRequest, want: list[str], tmp_path: Path
) -> None:
    world.log.append(b"".join(b"line %d\n" % number for number in range(2000)))
    second = EngineLog(tmp_path / "second.log", 1 << 20)
    second.append(b"the second\n")
    world.stub.logs[2] = second
    world.stub.ended_attempts.add(1)

    await world.show(wanted)

    assert world.lines == want


async def test_logs_takes_partial_id(world: World) -> None:
    world.log.append(b"one\ntwo\n")
    world.stub.ended_attempts.add(1)
    name = str(world.experiment.experiment_id)[-8:]

    plain = await world.run(name, "--lines", "1")
    followed = await world.run(name, "--json", "--follow")
    missing = await world.run(name, "--attempt", "9")

    out, err = await plain.communicate()
    assert (plain.returncode, out, err) == (0, b"two\n", b"")
    answer = json.loads((await followed.communicate())[0])
    assert (answer["lines"], answer["is_complete"]) == (["one", "two"], True)
    assert b"nothing is kept of attempt 9" in (await missing.communicate())[1]
    assert missing.returncode == EXIT_CODE[ErrorCode.NOT_FOUND]


async def test_an_interrupted_follower_says_nothing(world: World) -> None:
    world.log.append(b"running\n")
    process = await world.run(str(world.experiment.experiment_id), "-f")
    assert process.stdout is not None
    async with asyncio.timeout(40):
        assert await process.stdout.readline() == b"running\n"

    process.send_signal(signal.SIGINT)
    out, err = await process.communicate()

    assert (process.returncode, out, err.strip()) == (130, b"", b"")


async def test_interrupt_within_late_piece_is_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow reader holds up the showing for longer than the log is left unread."""
    monkeypatch.setattr(logs, "READ_SECONDS", -1.0)
    world.log.append(b"running\n")

    async def interrupt(_: LogChunk) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async with StewardClient(Address(world.url, None)) as client:
        following = asyncio.create_task(show_log(client, world.experiment, FOLLOWED, interrupt))
        await asyncio.wait({following}, timeout=30)
        was_cancelled = following.cancelled()
        following.cancel()
        await asyncio.wait({following})

    assert was_cancelled


async def test_lines_lost_on_the_way_are_read_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "READ_SECONDS", 0.05)
    following = asyncio.create_task(world.show())
    await world.reads(1)

    world.log.append(b"lost\n")
    world.stub.ended_attempts.add(1)
    await following

    assert world.lines == ["lost"]
