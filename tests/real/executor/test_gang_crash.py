"""Executors of a gang that die or fall silent at any moment: nothing is left, and one outcome."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from schemas.executor.attempts import AttemptFinished, AttemptOutcome, FailureKind, StartExperiment
from schemas.executor.ranks import RankState
from services.executor.settings import ExecutorSettings
from shared.testing import NatsServer, eventually
from tests.support.worlds.executor import executor_process, make_cancel, scheduling, until_answering
from tests.support.worlds.executor_gang import (
    LEADER,
    MEMBER,
    Gang,
    gang,
    gang_settings,
    make_gang_start,
)

pytestmark = [pytest.mark.long, pytest.mark.timeout(180)]

TTL = 4.0
SLOW = {"start-delay-seconds": 60}


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes(Gang):
    """Each node's executor as a process of its own."""

    settings: dict[str, ExecutorSettings]
    stack: ExitStack
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    async def run(self, node_id: str) -> None:
        """Start one, and wait until it answers."""
        process = executor_process(self.settings[node_id])
        self.running[node_id] = self.stack.enter_context(process)
        await until_answering(self.scheduler, node_id)

    def kill(self, node_id: str) -> None:
        self.running[node_id].kill()
        self.running[node_id].wait()

    async def until_nothing_runs(self, start: StartExperiment, node_id: str) -> float:
        """How long that takes."""
        began = time.monotonic()
        what = f"nothing left on {node_id}"
        await eventually(
            lambda: not self.pids(start, node_id),
            within_seconds=3 * TTL,
            every_seconds=0.1,
            what=what,
        )
        return time.monotonic() - began

    async def measuring(self) -> StartExperiment:
        """A gang that is measured until it is stopped."""
        start = make_gang_start(endless=True, lease_ttl_seconds=TTL)
        await self.scheduler.ask(start)
        await self.scheduler.until_measuring(start)
        return start

    async def finished_once(self, start: StartExperiment) -> AttemptFinished:
        finished = await self.scheduler.finished(start, within_seconds=30)
        await self.scheduler.until_released(start)
        assert self.scheduler.running_at_release == [[]]
        return finished


@asynccontextmanager
async def processes(nats_url: str, tmp_path: Path) -> AsyncIterator[Processes]:
    settings = {each.node_id: each for each in gang_settings(nats_url, tmp_path)}
    with ExitStack() as stack:
        async with scheduling(settings[LEADER]) as scheduler:
            nodes = Processes(scheduler=scheduler, settings=settings, stack=stack)
            for node_id in settings:
                await nodes.run(node_id)
            yield nodes


async def test_killed_coordinator_leaves_no_rank(nats_url: str, tmp_path: Path) -> None:
    async with processes(nats_url, tmp_path) as nodes:
        start = await nodes.measuring()
        nodes.kill(LEADER)
        took_seconds = await nodes.until_nothing_runs(start, MEMBER)
        left = nodes.pids(start, LEADER)
        member = await nodes.until(start, MEMBER, RankState.ENDED)
        await nodes.run(LEADER)
        finished = await nodes.finished_once(start)

    assert took_seconds < TTL + 1
    assert left == []
    assert member.failure is not None
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.EXECUTOR_RESTARTED


async def test_restarted_coordinator_stops_its_ranks(nats_url: str, tmp_path: Path) -> None:
    async with processes(nats_url, tmp_path) as nodes:
        stubborn = {"ignore-sigterm": True}
        start = make_gang_start(endless=True, parameters=stubborn, lease_ttl_seconds=60.0)
        await nodes.scheduler.ask(start)
        await nodes.scheduler.until_measuring(start)
        nodes.kill(LEADER)
        await nodes.run(LEADER)
        finished = await nodes.finished_once(start)
        member = await nodes.until(start, MEMBER, RankState.ENDED)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert member.failure is not None


async def test_killed_member_ends_gang_and_is_named(nats_url: str, tmp_path: Path) -> None:
    """The coordinator's own engine ends at once, for want of the other, and is not the cause."""
    async with processes(nats_url, tmp_path) as nodes:
        start = await nodes.measuring()
        nodes.kill(MEMBER)
        finished = await nodes.finished_once(start)
        left = nodes.pids(start, LEADER) + nodes.pids(start, MEMBER)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.NODE_LOST
    assert f"rank 1 on {MEMBER}: its executor has not answered" in finished.failure.message
    assert left == []


@pytest.mark.parametrize("parameters", [{}, SLOW], ids=["measured", "loading"])
async def test_restarted_member_ends_its_rank_and_gang(
    nats_url: str, tmp_path: Path, parameters: dict[str, Any]
) -> None:
    async with processes(nats_url, tmp_path) as nodes:
        start = make_gang_start(endless=True, parameters=parameters, lease_ttl_seconds=60.0)
        await nodes.scheduler.ask(start)
        await nodes.until(start, MEMBER, RankState.RUNNING)
        if not parameters:
            await nodes.scheduler.until_measuring(start)
        nodes.kill(MEMBER)
        await nodes.run(MEMBER)
        finished = await nodes.finished_once(start)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.RANK_FAILED
    assert finished.failure.message.startswith(f"rank 1 on {MEMBER}: the executor ended")


async def test_paused_member_stops_by_own_clock(nats_url: str, tmp_path: Path) -> None:
    async with processes(nats_url, tmp_path) as nodes:
        start = await nodes.measuring()
        member = nodes.running[MEMBER]
        member.send_signal(signal.SIGSTOP)
        finished = await nodes.scheduler.finished(start, within_seconds=30)
        member.send_signal(signal.SIGCONT)
        await nodes.until_nothing_runs(start, MEMBER)
        view = await nodes.until(start, MEMBER, RankState.ENDED)

    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.NODE_LOST
    assert view.failure is not None


async def test_stopped_coordinator_stops_ranks_first(nats_url: str, tmp_path: Path) -> None:
    async with processes(nats_url, tmp_path) as nodes:
        start = await nodes.measuring()
        nodes.running[LEADER].send_signal(signal.SIGTERM)
        status = await asyncio.to_thread(nodes.running[LEADER].wait, 20)
        member = await nodes.state(start, MEMBER)
        finished = await nodes.finished_once(start)

    assert status == 0
    assert member is RankState.ENDED
    assert finished.outcome is AttemptOutcome.INTERRUPTED


async def test_bus_back_within_lease_ends_nothing(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], tmp_path: Path
) -> None:
    server = await nats_server_factory()
    start = make_gang_start(endless=True, lease_ttl_seconds=20.0)
    async with gang(server.authenticated_url, tmp_path) as nodes:
        await nodes.scheduler.ask(start)
        pids = await nodes.scheduler.until_measuring(start)
        await server.crash()
        await asyncio.sleep(1.0)  # the outage
        await server.start()
        for node_id in (LEADER, MEMBER):
            await nodes.until(start, node_id, RankState.RUNNING)
        running = nodes.pids(start, LEADER) + nodes.pids(start, MEMBER)
        await nodes.scheduler.ask(make_cancel(start))
        finished = await nodes.scheduler.finished(start)

    assert sorted(running) == sorted(pids)
    assert finished.outcome is AttemptOutcome.CANCELLED


async def test_killed_executors_leave_one_outcome(nats_url: str, tmp_path: Path) -> None:
    """From before the first message to the measured engine, now the one and now the other."""
    async with processes(nats_url, tmp_path) as nodes:
        outcomes = []
        for number, delay_seconds in enumerate((0.0, 0.05, 0.2, 0.5, 1.0, 1.5)):
            victim = (LEADER, MEMBER)[number % 2]
            nodes.scheduler.running_at_release.clear()
            start = make_gang_start(endless=True, lease_ttl_seconds=TTL, epoch=10 + number)
            await nodes.scheduler.ask(start)
            await asyncio.sleep(delay_seconds)  # the moment of the accident
            nodes.kill(victim)
            await nodes.run(victim)
            outcomes.append((await nodes.finished_once(start)).outcome)
            for node_id in (LEADER, MEMBER):
                await nodes.until_nothing_runs(start, node_id)

    assert set(outcomes) == {AttemptOutcome.INTERRUPTED}
