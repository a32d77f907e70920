"""An executor that dies, or whose bus dies, leaves no process behind and exactly one outcome."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.executor.attempts import AttemptFinished, AttemptOutcome, FailureKind, StartExperiment
from services.executor.app import create_service
from shared.errors import UnavailableError
from shared.messaging.bus import Bus
from shared.testing import NatsServer, eventually
from tests.support.worlds.executor import (
    executor_process,
    labelled_process,
    make_cancel,
    make_device,
    make_endless_start,
    make_settings,
    make_start,
    scheduling,
    until_answering,
)


async def test_killed_executor_interrupts_and_leaves_no_engine(
    nats_url: str, tmp_path: Path
) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start({"ignore-sigterm": True})
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            pids = await scheduler.until_measuring(start)
            first.kill()
            first.wait()
            await scheduler.until_no_engine(start)
        released_by_the_dead = list(scheduler.releases)
        with executor_process(settings):
            finished = await scheduler.finished(start)
            release = await scheduler.until_released(start)
            await until_answering(scheduler)
            running = await scheduler.running()
            again = await scheduler.ask(start)
            facts = await scheduler.facts(start)

    assert len(pids) == 1
    assert released_by_the_dead == []
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.EXECUTOR_RESTARTED
    assert release.stopped
    assert running.attempts == ()
    assert again == Accepted(command_id=start.command_id)
    assert [fact.revision for fact in facts] == list(range(1, len(facts) + 1))
    assert sum(isinstance(fact, AttemptFinished) for fact in facts) == 1


@pytest.mark.long
async def test_next_executor_ends_surviving_workloads(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start()
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            await scheduler.until_measuring(start)
            first.kill()
            first.wait()
        # A worker that left its engine's session, as a daemonized one would.
        worker = labelled_process(start.reservation_id, settings.installation_id)
        try:
            with executor_process(settings):
                await scheduler.until_released(start)
                ended_by = worker.poll()
        finally:
            worker.kill()
            worker.wait()

    assert ended_by is not None
    assert scheduler.running_at_release == [[]]


@pytest.mark.long
async def test_cancellation_before_crash_has_own_outcome(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path, stop_grace_seconds=30.0)
    start = make_endless_start({"ignore-sigterm": True}, lease_ttl_seconds=300.0)
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            await scheduler.until_measuring(start)
            reply = await scheduler.ask(make_cancel(start))
            first.kill()
            first.wait()
        with executor_process(settings):
            finished = await scheduler.finished(start)

    assert isinstance(reply, Accepted)
    assert finished.outcome is AttemptOutcome.CANCELLED


async def test_stopped_executor_ends_and_reports_attempts(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_endless_start()
    async with scheduling(settings) as scheduler:
        async with create_service(settings).running():
            await scheduler.ask(start)
            pids = await scheduler.until_measuring(start)
        left = scheduler.pids(start.reservation_id)
        finished = await scheduler.finished(start)

    assert pids
    assert left == []
    assert finished.outcome is AttemptOutcome.INTERRUPTED
    assert finished.failure is not None
    assert finished.failure.kind is FailureKind.EXECUTOR_RESTARTED
    assert finished.executor_stopped
    assert [release.reservation_id for release in scheduler.releases] == [start.reservation_id]
    assert scheduler.running_at_release == [[]]


@pytest.mark.long
@pytest.mark.parametrize("delay_seconds", [0.0, 0.1, 0.8])
async def test_kill_at_any_moment_gives_one_outcome(
    nats_url: str, tmp_path: Path, delay_seconds: float
) -> None:
    settings = make_settings(nats_url, tmp_path)
    start = make_start()
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            reply = await scheduler.ask(start)
            await asyncio.sleep(delay_seconds)
            first.kill()
            first.wait()
        with executor_process(settings):
            finished = await scheduler.finished(start)
            await scheduler.until_released(start)
            left = scheduler.pids(start.reservation_id)

    assert isinstance(reply, Accepted)
    assert finished.outcome in {AttemptOutcome.INTERRUPTED, AttemptOutcome.SUCCEEDED}
    assert left == []
    assert len({release.command_id for release in scheduler.releases}) == 1


@pytest.mark.long
async def test_next_executor_sends_events_of_dead_bus(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], tmp_path: Path
) -> None:
    server = await nats_server_factory()
    settings = make_settings(server.authenticated_url, tmp_path)
    start = make_endless_start(lease_ttl_seconds=3.0)
    async with scheduling(settings) as scheduler:
        with executor_process(settings) as first:
            await until_answering(scheduler)
            await scheduler.ask(start)
            await scheduler.until_measuring(start)
            await server.crash()
            await scheduler.until_no_engine(start)
            first.kill()
            first.wait()
        await server.start()
        with executor_process(settings):
            finished = await scheduler.finished(start)
            await scheduler.until_released(start)

    assert finished.outcome is AttemptOutcome.INTERRUPTED


@pytest.mark.long
async def test_events_are_republished_to_new_stream(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], tmp_path: Path
) -> None:
    server = await nats_server_factory()
    settings = make_settings(server.authenticated_url, tmp_path)
    start, later = make_start(), make_start(epoch=8)
    async with scheduling(settings) as scheduler:
        async with create_service(settings).running():
            await scheduler.ask(start)
            before = await scheduler.finished(start)
            await server.crash_and_lose_store()
            await server.start()
            while_running = await scheduler.finished(start)
        await server.crash_and_lose_store()
        await server.start()
        async with create_service(settings).running():
            while_stopped = await scheduler.finished(start)
            await scheduler.ask(later)
            await scheduler.finished(later)

    assert before == while_running == while_stopped


@pytest.mark.long
async def test_second_executor_on_data_directory_is_refused(nats_url: str, tmp_path: Path) -> None:
    settings = make_settings(nats_url, tmp_path)
    async with scheduling(settings) as scheduler:
        with executor_process(settings):
            await until_answering(scheduler)
            with executor_process(settings) as second:
                returncode = await asyncio.to_thread(second.wait, 60)
            running = await scheduler.running()

    assert returncode == 1
    assert "another executor holds" in (tmp_path / "executor.log").read_text()
    assert running.attempts == ()


async def test_second_executor_of_node_is_refused(nats_url: str, tmp_path: Path) -> None:
    first, second = (make_settings(nats_url, tmp_path / name) for name in ("first", "second"))
    async with create_service(first).running():
        with executor_process(second) as twin:
            returncode = await asyncio.to_thread(twin.wait, 60)

    assert returncode == 1
    said = (tmp_path / "second" / "executor.log").read_text()
    assert "set another GPUSTEWARD_NODE_ID here" in said


async def test_start_during_shutdown_is_answered_by_its_outcome(
    nats_url: str, tmp_path: Path
) -> None:
    """Accepted starts end as interrupted, others are to be sent again; none is lost in between."""
    settings = make_settings(nats_url, tmp_path, engine_slots=1_000)
    answered: dict[UUID, Reply] = {}
    starts: dict[UUID, StartExperiment] = {}
    numbers = itertools.count()

    async def send_starts(bus: Bus) -> None:
        for number in numbers:
            start = make_endless_start(
                devices=(make_device(f"GPU-{number}", number),), epoch=number + 1
            )
            starts[start.attempt_id] = start
            try:
                answered[start.attempt_id] = await bus.request(start, timeout_seconds=2)
            except UnavailableError:
                return

    # No lease is confirmed, so that no engine is started.
    async with scheduling(settings, answer_renewal=lambda _: None) as scheduler:
        async with create_service(settings).running():
            sending = [asyncio.create_task(send_starts(scheduler.bus)) for _ in range(4)]
            await eventually(lambda: len(answered) > 4)
        await asyncio.gather(*sending)
        accepted = [one for one, reply in answered.items() if isinstance(reply, Accepted)]
        outcomes = [(await scheduler.finished(starts[one])).outcome for one in accepted]

    refused = {reply.code for reply in answered.values() if isinstance(reply, Refused)}
    assert refused <= {ErrorCode.UNAVAILABLE}
    assert set(outcomes) == {AttemptOutcome.INTERRUPTED}
