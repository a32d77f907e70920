"""Engines that stay up between two runs of one configuration, over a real bus.

The scheduler follows a script; engines are real processes: the simulated one, and llama.cpp.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import AttemptFinished, AttemptOutcome, AttemptPhase, StartExperiment
from schemas.executor.logs import LogChunk, ReadLog
from schemas.gpus.gpu_request import GpuRequest
from schemas.scheduler.reservations import RenewReservation
from services.executor.app import create_service
from shared.testing import eventually
from tests.support.processes.inference_engine import require_engine
from tests.support.worlds.executor import (
    FAST,
    NODE,
    Scheduler,
    executor_process,
    make_cancel,
    make_fence,
    make_settings,
    make_start,
    phases_of,
    scheduling,
    until_answering,
)


def keeping(parameters: dict[str, Any] | None = None, **overrides: Any) -> StartExperiment:
    return make_start(parameters, keep_seconds=60.0, **overrides)


def following(left: StartExperiment, **overrides: Any) -> StartExperiment:
    """Return the start of the next run on the engine that an attempt left."""
    given: dict[str, Any] = {
        "command_id": uuid4(),
        "experiment_id": uuid4(),
        "attempt_id": uuid4(),
        "kept_from": left.attempt_id,
        "keep_seconds": None,
    }
    return replace(left, **given | overrides)


@asynccontextmanager
async def node(nats_url: str, data_dir: Path, **settings: Any) -> AsyncIterator[Scheduler]:
    own = make_settings(nats_url, data_dir, **settings)
    async with scheduling(own) as scheduler, create_service(own).running():
        yield scheduler


async def leave(scheduler: Scheduler, start: StartExperiment) -> tuple[AttemptFinished, list[int]]:
    """Measure an attempt that leaves its engine up; its end, and what runs then."""
    await scheduler.ask(start)
    finished = await scheduler.finished(start)
    return finished, scheduler.pids(start.reservation_id)


@pytest.mark.parametrize("engine", ["simulated", pytest.param("llamacpp", marks=pytest.mark.long)])
async def test_next_run_has_the_same_engine_with_its_state_reset(
    nats_url: str, tmp_path: Path, engine: str
) -> None:
    require_engine(engine)
    parameters = FAST if engine == "simulated" else {"threads": 1, "parallel": 2}
    model = "m" if engine == "simulated" else "smollm2-135m"
    first = keeping(parameters, engine=engine, model=model)
    second = following(first)
    async with node(nats_url, tmp_path) as scheduler:
        left, pids = await leave(scheduler, first)
        released = list(scheduler.releases)
        reply = await scheduler.ask(second)
        finished = await scheduler.finished(second)
        release = await scheduler.until_released(second)
        facts = await scheduler.facts(second)
        query = ReadLog(executor_id=NODE, attempt_id=second.attempt_id)
        log = await scheduler.bus.query(query, LogChunk)
        await scheduler.until_no_engine(second)

    assert left.outcome is AttemptOutcome.SUCCEEDED
    assert left.kept_until is not None
    assert left.engine_use is None
    assert len(pids) >= 1
    assert released == []
    assert reply == Accepted(command_id=second.command_id)
    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.kept_until is None
    assert finished.engine_use is not None
    assert finished.engine_use.is_kept
    assert "was confirmed and it answered a health request" in finished.engine_use.reset
    assert AttemptPhase.LOADING not in phases_of(facts)
    assert finished.windows[0].started_at >= left.finished_at
    assert finished.started_at >= left.finished_at
    assert (release.epoch, release.stopped) == (first.epoch, True)
    assert len(scheduler.releases) == 1
    assert scheduler.running_at_release == [[]]
    assert any("listening on" in line for line in log.lines)


async def test_engine_that_refuses_its_reset_is_started_anew(nats_url: str, tmp_path: Path) -> None:
    first = keeping({**FAST, "cache-reset": "absent"})
    second = following(first)
    async with node(nats_url, tmp_path) as scheduler:
        _, pids = await leave(scheduler, first)
        await scheduler.ask(second)
        measured_by = await scheduler.until_measuring(second)
        finished = await scheduler.finished(second)
        await scheduler.until_released(second)

    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.engine_use is not None
    assert not finished.engine_use.is_kept
    assert finished.engine_use.fresh_because == "it did not confirm POST /reset"
    assert not set(pids) & set(measured_by)
    assert scheduler.running_at_release == [[]]


async def test_engine_that_dies_while_kept_is_released(nats_url: str, tmp_path: Path) -> None:
    first = keeping()
    async with node(nats_url, tmp_path) as scheduler:
        _, pids = await leave(scheduler, first)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        release = await scheduler.until_released(first)
        reply = await scheduler.ask(following(first))

    assert "it ended by itself" in release.reason
    assert isinstance(reply, Refused)
    assert (reply.code, reply.path) == (ErrorCode.LEASE_LOST, "$.kept_from")


@pytest.mark.parametrize(
    "how",
    ["cancel", "fence", "rival", "other engine", pytest.param("lease", marks=pytest.mark.long)],
)
async def test_what_keeps_no_engine_up_stops_and_releases_it(
    nats_url: str, tmp_path: Path, how: str
) -> None:
    first = keeping()
    async with node(nats_url, tmp_path) as scheduler:
        finished, pids = await leave(scheduler, first)
        match how:
            case "cancel":
                await scheduler.ask(make_cancel(first, reason="the task was cancelled"))
            case "fence":
                await scheduler.ask(make_fence(first.reservation_id))
            case "rival":
                scheduler.queued.append(GpuRequest(node_ids=("elsewhere",)))
                await asyncio.sleep(0)
                scheduler.queued.append(GpuRequest())
            case "other engine":
                engine = replace(first.engine, parameters={**FAST, "slots": 3})
                reply = await scheduler.ask(following(first, engine=engine))
                assert isinstance(reply, Refused)
            case _:

                def refuse(command: RenewReservation) -> Refused:
                    return Refused(
                        code=ErrorCode.LEASE_LOST, message="gone", command_id=command.command_id
                    )

                scheduler.answer_renewal = refuse
        release = await scheduler.until_released(first)
        await scheduler.until_no_engine(first)
        reply = await scheduler.ask(following(first))

    reasons = {
        "cancel": "the task was cancelled",
        "fence": "the reservation was fenced",
        "rival": "another request waits for its GPUs",
        "other engine": "its next run has another engine",
        "lease": "its lease was lost",
    }
    assert finished.kept_until is not None
    assert len(pids) == 1
    assert reasons[how] in release.reason
    assert scheduler.running_at_release == [[]]
    assert isinstance(reply, Refused)
    assert reply.code is ErrorCode.LEASE_LOST


async def test_no_engine_is_kept_while_another_request_waits(nats_url: str, tmp_path: Path) -> None:
    first = keeping()
    async with node(nats_url, tmp_path) as scheduler:
        scheduler.queued.append(GpuRequest(node_ids=(NODE,)))
        finished, pids = await leave(scheduler, first)

    assert finished.outcome is AttemptOutcome.SUCCEEDED
    assert finished.kept_until is None
    assert pids == []


async def test_engine_without_a_next_run_ends_at_its_deadline(
    nats_url: str, tmp_path: Path
) -> None:
    first = make_start(keep_seconds=0.5)
    async with node(nats_url, tmp_path) as scheduler:
        finished, _ = await leave(scheduler, first)
        release = await scheduler.until_released(first)

    assert finished.kept_until is not None
    assert "nothing more was measured on it for 0.5 s" in release.reason
    assert scheduler.running_at_release == [[]]


async def test_stopped_executor_ends_the_engine_that_it_keeps(
    nats_url: str, tmp_path: Path
) -> None:
    settings = make_settings(nats_url, tmp_path)
    first = keeping()
    async with scheduling(settings) as scheduler:
        async with create_service(settings).running():
            _, pids = await leave(scheduler, first)
        left_running = scheduler.pids(first.reservation_id)
        async with create_service(settings).running():
            release = await scheduler.until_released(first)

    assert len(pids) == 1
    assert left_running == []
    assert "the executor was stopped" in release.reason


@pytest.mark.long
async def test_killed_executor_reuses_no_engine_that_it_kept(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    first = keeping({**FAST, "ignore-sigterm": True})
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as process:
            await until_answering(scheduler)
            _, pids = await leave(scheduler, first)
            process.kill()
            process.wait()
        released_by_the_dead = list(scheduler.releases)
        with executor_process(settings):
            release = await scheduler.until_released(first)
            await until_answering(scheduler)
            reply = await scheduler.ask(following(first))
            facts = await scheduler.facts(first)

    assert len(pids) == 1
    assert released_by_the_dead == []
    assert "the executor ended meanwhile" in release.reason
    assert scheduler.running_at_release == [[]]
    assert isinstance(reply, Refused)
    assert reply.code is ErrorCode.LEASE_LOST
    assert sum(isinstance(fact, AttemptFinished) for fact in facts) == 1


async def test_start_said_twice_is_measured_once(nats_url: str, tmp_path: Path) -> None:
    first = keeping()
    second = following(first)
    async with node(nats_url, tmp_path) as scheduler:
        await leave(scheduler, first)
        replies = await asyncio.gather(scheduler.ask(second), scheduler.ask(second))
        finished = await scheduler.finished(second)
        await scheduler.until_released(second)
        await eventually(lambda: len(scheduler.releases) == 1, what="one release")

    assert [type(reply) for reply in replies] == [Accepted, Accepted]
    assert finished.engine_use is not None
    assert finished.engine_use.is_kept
