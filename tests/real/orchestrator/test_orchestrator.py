"""The orchestrator over a real nats-server and Postgres; scheduler, executor and results follow a
script.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from schemas.base import Command, Event
from schemas.errors import Accepted, ErrorCode, Refused
from schemas.executor.attempts import AttemptOutcome, AttemptPhase, StartExperiment
from schemas.orchestrator.deletion import DeleteTask
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentState,
    PauseTask,
    ResumeTask,
    SubmitTask,
    TaskState,
)
from schemas.orchestrator.views import (
    ExperimentList,
    ExperimentView,
    GetExperiment,
    GetTask,
    ListExperiments,
    ListTasks,
    TaskList,
    TaskPlan,
    TaskView,
    ValidateTask,
)
from schemas.scheduler.reservations import ReservationCancelled, ReservationState
from schemas.task.task_file import MemorySource
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.clock import utcnow
from shared.errors import RefusedError, UnavailableError
from shared.ids import new_id
from shared.service import Service
from shared.testing import NatsServer, eventually
from tests.support.disks.small_disk import every_disk_full
from tests.support.idle_clock import idle_time
from tests.support.worlds.orchestrator import NODE, World, scripted_world, task_file


def make_settings(nats_url: str, postgres_dsn: str, repair_seconds: float) -> OrchestratorSettings:
    return OrchestratorSettings(
        nats_url=nats_url,
        postgres_dsn=postgres_dsn,
        repair_interval_seconds=repair_seconds,
        repair_after_seconds=0.2 if repair_seconds < 1 else 5.0,
    )


@asynccontextmanager
async def orchestrator(
    nats_url: str, postgres_dsn: str, repair_seconds: float = 60.0
) -> AsyncIterator[Service]:
    """One life of the orchestrator."""
    service = create_service(make_settings(nats_url, postgres_dsn, repair_seconds))
    async with service.running():
        yield service


@pytest.fixture
async def service(nats_url: str, postgres_dsn: str, world: World) -> AsyncIterator[Service]:
    async with orchestrator(nats_url, postgres_dsn) as running:
        yield running


async def send(world: World, command: Command) -> Accepted | Refused:
    return await world.bus.request(command)


async def refused(world: World, command: Command) -> Refused:
    reply = await world.bus.request(command)
    assert isinstance(reply, Refused), reply
    return reply


async def cancel(world: World, task_id: UUID) -> None:
    reply = await world.bus.request(CancelTask(command_id=new_id(), task_id=task_id))
    assert isinstance(reply, Accepted), reply


async def until_started(world: World, count: int = 1) -> StartExperiment:
    await eventually(lambda: len(world.starts) >= count, what=f"{count} starts")
    return world.starts[count - 1]


async def until_state(
    world: World, task_id: UUID, state: ExperimentState, ordinal: int = 1
) -> ExperimentView:
    found: ExperimentView | None = None

    async def reached() -> bool:
        nonlocal found
        found = (await world.experiments(task_id))[ordinal - 1]
        return found.state is state

    await eventually(reached, what=f"experiment {ordinal} {state}")
    assert found is not None
    return found


async def staged(service: Service, aggregate: UUID) -> list[tuple[str, int]]:
    """Tag and revision of every event staged about a task or an experiment, oldest first."""
    assert service.database is not None
    rows = await service.database.pool.fetch(
        "SELECT subject, body FROM outbox WHERE subject LIKE '%.' || $1 ORDER BY id", str(aggregate)
    )
    told = [msgspec.msgpack.decode(row["body"]) for row in rows]
    return [(event["type"].partition(".")[2], event["revision"]) for event in told]


async def test_a_task_runs_to_its_best_experiment(world: World, service: Service) -> None:
    task_id = await world.submit(requester="ada")

    view = await world.until(task_id, TaskState.COMPLETED)

    assert view.requester == "ada"
    assert {request.requester for request in world.requests.values()} == {"ada"}
    experiments = await world.experiments(task_id)
    assert view.spending is not None
    assert view.spending.gpu_hours > 0
    assert (view.spending.currency, view.spending.seconds_left) == ("EUR", None)
    assert [e.state for e in experiments] == [ExperimentState.SUCCEEDED] * 2
    assert [e.objective_score for e in experiments] == [1.0, 0.5]
    assert view.best_experiment_id == experiments[1].experiment_id
    assert view.experiments_by_state == {"succeeded": 2}
    [attempt] = experiments[0].attempts
    assert (attempt.outcome, attempt.attempt_number) == (AttemptOutcome.SUCCEEDED, 1)
    gpu_info = experiments[0].gpu_info
    assert gpu_info is not None
    assert (gpu_info.count, gpu_info.device_ids, gpu_info.simulated) == (1, ("GPU-0",), True)
    assert (gpu_info.model, gpu_info.world_size) == ("H100 (simulated)", 1)
    assert gpu_info.gpu_info is not None
    assert (gpu_info.gpu_info.count, gpu_info.gpu_info.indices) == (1, (0,))
    [detail] = gpu_info.gpu_info.details
    assert (detail.index, detail.name, detail.availability_score) == (0, "H100 (simulated)", 0.9)
    assert (detail.memory_free_mb, detail.utilization_percent) == (72_000, 0.0)
    assert await staged(service, task_id) == [
        ("task_accepted", 1),
        ("task_started", 2),
        ("task_completed", 3),
    ]
    assert await staged(service, experiments[0].experiment_id) == [
        ("experiment_waiting", 1),
        ("experiment_starting", 2),
        ("experiment_running", 3),
        ("experiment_succeeded", 4),
    ]


async def test_engine_that_breaks_under_load_is_not_best(world: World, service: Service) -> None:
    world.breaking = {2}

    task_id = await world.submit()
    view = await world.until(task_id, TaskState.COMPLETED)

    steady, broken = await world.experiments(task_id)
    assert (steady.objective_score, broken.objective_score) == (1.0, 0.5)
    assert view.best_experiment_id == steady.experiment_id
    assert broken.metrics is not None
    assert broken.metrics.failed_levels


async def test_what_misses_its_constraints_is_not_best(world: World, service: Service) -> None:
    """Nothing was measured that they are about, which is as far from them as can be."""
    asked = task_file(optimization={"constraints": "ttft:p99<300ms"})

    task_id = await world.submit(asked)
    view = await world.until(task_id, TaskState.COMPLETED)

    experiments = await world.experiments(task_id)
    assert [e.slo is not None and e.slo.constraints[0].excess for e in experiments] == [None, None]
    assert view.best_experiment_id is None


async def test_fourth_alike_expects_the_past_hold_time(world: World, service: Service) -> None:
    past = task_file(parameters={"slots": [1, 2, 3]})
    await world.until(await world.submit(past), TaskState.COMPLETED)
    known = set(world.requests)

    await world.until(await world.submit(task_file(parameters={"slots": [4]})), TaskState.COMPLETED)
    other = task_file(parameters={"tp-size": [2]})
    await world.until(await world.submit(other), TaskState.COMPLETED)

    expected = {
        reservation_id: command.request.expected_duration_seconds
        for reservation_id, command in world.requests.items()
    }
    unknown = {expected[each] for each in known}
    fourth, larger = (seconds for each, seconds in expected.items() if each not in known)
    assert unknown == {larger}
    assert fourth is not None
    assert larger is not None
    assert 0 < fourth < larger


async def test_experiment_requests_the_learned_memory(world: World, service: Service) -> None:
    task = task_file(parameters={"slots": [1]})
    world.peak_memory_mb = 3_000
    first = await world.submit(task)
    await world.until(first, TaskState.COMPLETED)

    plan = await world.bus.query(ValidateTask(task=task), TaskPlan)
    second = await world.submit(task)
    await world.until(second, TaskState.COMPLETED)

    [planned] = plan.experiments
    assert (planned.request.min_memory_mb, planned.memory_source) == (3_300, MemorySource.HISTORY)
    assert any("estimated it would be 8000 MB" in note for note in plan.notes)
    asked = [
        (view.request.min_memory_mb, view.memory_source)
        for task_id in (first, second)
        for view in await world.experiments(task_id)
    ]
    assert asked == [(8_000, MemorySource.DEFAULT), (3_300, MemorySource.HISTORY)]


async def test_what_is_sent_is_what_the_task_says(world: World, service: Service) -> None:
    task = task_file(
        parameters={"tp-size": [2]},
        gpus={"min_memory_mb": 1000, "priority": 3},
        benchmark={
            "tool": "builtin",
            "max_time_per_iteration": 0.5,
            "num_concurrency": [1, 4],
            "max_error_rate": 0.05,
        },
        optimization={"timeout_per_iteration": 77, "wait_timeout_seconds": 33},
    )

    task_id = await world.submit(task, namespace="team-a")
    await world.until(task_id, TaskState.COMPLETED)

    [command] = world.requests.values()
    request = command.request
    assert (request.gpus, request.min_memory_mb, request.node_ids) == (2, 1000, ("n1",))
    assert (request.priority, request.wait_timeout_seconds) == (3, 33)
    assert request.expected_duration_seconds == 77 + 300
    assert command.namespace == "team-a"
    [start] = world.starts
    assert start.engine.parameters == {"tp-size": 2}
    assert start.benchmark.max_time_per_level_seconds == 30
    assert start.benchmark.max_error_rate == 0.05
    assert start.timeout_seconds == 77
    assert start.reservation_id == command.reservation_id


async def test_max_parallel_bounds_reservations(world: World, service: Service) -> None:
    world.auto_run = False
    task = task_file(parameters={"slots": [1, 2, 3, 4, 5]}, optimization={"max_parallel": 2})
    task_id = await world.submit(task)

    await until_started(world, 2)
    assert len(world.requests) == 2
    await world.finish(world.starts[0])
    await until_started(world, 3)

    assert len(world.requests) == 3
    world.auto_run = True
    await world.finish(world.starts[1])
    await world.finish(world.starts[2])
    await world.until(task_id, TaskState.COMPLETED)


async def test_interrupted_attempt_is_repeated(world: World, service: Service) -> None:
    world.outcomes = [AttemptOutcome.INTERRUPTED, AttemptOutcome.INTERRUPTED]
    task_id = await world.submit(task_file(parameters={"slots": [1]}))

    await world.until(task_id, TaskState.COMPLETED)

    [experiment] = await world.experiments(task_id)
    assert [a.outcome for a in experiment.attempts] == [
        AttemptOutcome.INTERRUPTED,
        AttemptOutcome.INTERRUPTED,
        AttemptOutcome.SUCCEEDED,
    ]
    assert [a.attempt_number for a in experiment.attempts] == [1, 2, 3]
    assert experiment.interrupted_attempts == 2
    assert len({start.reservation_id for start in world.starts}) == 3


async def test_max_attempts_bounds_interruptions(world: World, service: Service) -> None:
    world.outcomes = [AttemptOutcome.INTERRUPTED] * 2
    task_id = await world.submit(
        task_file(parameters={"slots": [1]}, optimization={"max_attempts": 2})
    )

    view = await world.until(task_id, TaskState.FAILED)

    [experiment] = await world.experiments(task_id)
    assert experiment.state is ExperimentState.FAILED
    assert "interrupted 2 times" in experiment.reason
    assert view.reason == "none of 1 experiments succeeded"
    assert len(world.starts) == 2


async def test_failed_attempt_lets_the_task_go_on(world: World, service: Service) -> None:
    world.outcomes = [AttemptOutcome.FAILED]
    task_id = await world.submit()

    await world.until(task_id, TaskState.COMPLETED)

    first, second = await world.experiments(task_id)
    assert (first.state, second.state) == (ExperimentState.FAILED, ExperimentState.SUCCEEDED)
    assert first.failure is not None
    assert (first.failure.message, first.failure.log_tail) == ("as scripted", ())
    whole = await world.bus.query(GetExperiment(experiment_id=first.experiment_id), ExperimentView)
    assert whole.failure is not None
    assert whole.failure.log_tail == ("last",)


async def test_full_disk_refuses_a_task(world: World, service: Service) -> None:
    command = SubmitTask(
        command_id=new_id(), task_id=new_id(), namespace="default", task=task_file()
    )

    with every_disk_full():
        refusal = await refused(world, command)
    reply = await send(world, command)

    assert refusal.code is ErrorCode.UNAVAILABLE
    assert "the disk is full" in refusal.message
    assert isinstance(reply, Accepted)


@pytest.mark.parametrize(
    ("code", "states"),
    [
        pytest.param(ErrorCode.LEASE_LOST, ["interrupted", "succeeded"], id="a lost lease"),
        pytest.param(ErrorCode.STALE_EPOCH, ["interrupted", "succeeded"], id="a stale epoch"),
        pytest.param(ErrorCode.BAD_REQUEST, ["failed"], id="a bad request"),
        pytest.param(ErrorCode.STILL_RUNNING, ["succeeded"], id="a refusal for now"),
    ],
)
async def test_refused_start_gives_the_gpus_back(
    world: World, service: Service, code: ErrorCode, states: list[str]
) -> None:
    world.refuse_start = [code]
    task_id = await world.submit(task_file(parameters={"slots": [1]}))

    state = TaskState.FAILED if states == ["failed"] else TaskState.COMPLETED
    await world.until(task_id, state)

    [experiment] = await world.experiments(task_id)
    assert [a.outcome for a in experiment.attempts] == states
    if len(states) == 2 or states == ["failed"]:
        await eventually(lambda: len(world.released) == 1)
        assert world.released[0].stopped
        assert world.released[0].reservation_id == experiment.attempts[0].reservation_id
    else:
        assert world.released == []


async def test_lease_is_renewed_until_accepted(world: World, service: Service) -> None:
    world.refuse_start = [ErrorCode.UNAVAILABLE] * 4
    task_id = await world.submit(task_file(parameters={"slots": [1]}))

    await world.until(task_id, TaskState.COMPLETED)

    assert len(world.renewals) >= 2
    assert set(world.renewals) == set(world.requests)
    settled = len(world.renewals)
    await asyncio.sleep(1.2)  # one renewal interval and more: nothing may come
    assert len(world.renewals) == settled


@pytest.mark.parametrize("end", [ReservationState.TIMED_OUT, ReservationState.CANCELLED])
async def test_experiment_without_gpus_fails_with_reason(
    world: World, service: Service, end: ReservationState
) -> None:
    world.auto_grant = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    await eventually(lambda: len(world.requests) == 1)

    [reservation_id] = world.requests
    if end is ReservationState.CANCELLED:
        await world.end_reservation(reservation_id, ReservationCancelled)
    else:
        await world.end_reservation(reservation_id)

    await world.until(task_id, TaskState.FAILED)
    [experiment] = await world.experiments(task_id)
    assert "as scripted" in experiment.reason
    assert experiment.attempts == ()


async def test_wait_timeout_counts_without_gpus_alone(world: World, service: Service) -> None:
    world.auto_run = False
    world.auto_grant = False
    task_id = await world.submit(task_file(optimization={"max_parallel": 2}))
    await eventually(lambda: len(world.requests) == 2)
    first, second = world.requests
    await world.grant(first)
    await until_started(world)

    await world.end_reservation(second)
    await eventually(lambda: len(world.requests) == 3, what="the second request asked again")

    world.auto_run = True
    await world.grant(list(world.requests)[2])
    await world.finish(world.starts[0])
    await world.until(task_id, TaskState.COMPLETED)
    assert all(e.interrupted_attempts == 0 for e in await world.experiments(task_id))


async def test_cancel_withdraws_a_waiting_request(world: World, service: Service) -> None:
    world.auto_grant = False
    task_id = await world.submit()
    await eventually(lambda: len(world.requests) == 1)

    await cancel(world, task_id)

    view = await world.until(task_id, TaskState.CANCELLED)
    assert view.experiments_by_state == {"cancelled": 2}
    await eventually(lambda: world.cancelled == list(world.requests))


async def test_another_namespaces_task_is_not_changed(world: World, service: Service) -> None:
    world.auto_grant = False
    task_id = await world.submit()

    for command in (CancelTask, PauseTask, ResumeTask, DeleteTask):
        reply = await refused(
            world, command(command_id=new_id(), task_id=task_id, speaker="another")
        )
        assert (reply.code, reply.path) == (ErrorCode.FORBIDDEN, "$.speaker")

    own = CancelTask(command_id=new_id(), task_id=task_id, speaker="default")
    assert isinstance(await send(world, own), Accepted)


async def test_grant_after_a_cancel_is_given_back(world: World, service: Service) -> None:
    world.auto_grant = False
    task_id = await world.submit()
    await eventually(lambda: len(world.requests) == 1)
    await cancel(world, task_id)

    [reservation_id] = world.requests
    await world.grant(reservation_id)

    await eventually(lambda: [r.reservation_id for r in world.released] == [reservation_id])
    assert world.released[0].epoch == 1
    assert world.starts == []


async def test_cancel_of_a_start_awaits_the_executor(world: World, service: Service) -> None:
    world.refuse_start = [ErrorCode.STILL_RUNNING, ErrorCode.CONFLICT]
    world.auto_run = False
    task_id = await world.submit()
    await until_state(world, task_id, ExperimentState.STARTING)

    await cancel(world, task_id)

    await world.until(task_id, TaskState.CANCELLED)
    first, second = await world.experiments(task_id)
    assert [a.outcome for a in first.attempts] == [AttemptOutcome.CANCELLED]
    assert second.attempts == ()
    assert len(world.stops) == 1
    assert world.starts == []


async def test_cancel_of_a_running_task_awaits_its_stop(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit()
    start = await until_started(world)
    await world.tell_started(start)
    await until_state(world, task_id, ExperimentState.RUNNING)

    await cancel(world, task_id)
    await eventually(lambda: len(world.stops) == 1)

    view = await world.task(task_id)
    assert (view.state, view.cancel_requested) == (TaskState.RUNNING, True)
    await world.finish(start, AttemptOutcome.CANCELLED)
    view = await world.until(task_id, TaskState.CANCELLED)
    assert view.experiments_by_state == {"cancelled": 2}
    assert view.best_experiment_id is None


async def test_cancelled_task_repeats_no_interruption(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    start = await until_started(world)
    await cancel(world, task_id)

    await world.finish(start, AttemptOutcome.INTERRUPTED)

    await world.until(task_id, TaskState.CANCELLED)
    [experiment] = await world.experiments(task_id)
    assert (experiment.state, experiment.interrupted_attempts) == (ExperimentState.CANCELLED, 1)
    assert len(world.requests) == 1


async def test_cancelled_task_is_not_completed(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit()
    start = await until_started(world)
    await cancel(world, task_id)

    await world.finish(start)

    view = await world.until(task_id, TaskState.CANCELLED)
    assert view.experiments_by_state == {"succeeded": 1, "cancelled": 1}


async def test_a_finished_task_cannot_be_cancelled(world: World, service: Service) -> None:
    task_id = await world.submit()
    await world.until(task_id, TaskState.COMPLETED)

    reply = await refused(world, CancelTask(command_id=new_id(), task_id=task_id))

    assert reply.code is ErrorCode.CONFLICT
    assert (await world.task(task_id)).state is TaskState.COMPLETED


async def test_paused_task_starts_nothing(world: World, service: Service) -> None:
    world.auto_grant = False
    task_id = await world.submit()
    await eventually(lambda: len(world.requests) == 1)
    [reservation_id] = world.requests

    assert isinstance(await send(world, PauseTask(command_id=new_id(), task_id=task_id)), Accepted)
    await world.grant(reservation_id)
    await eventually(lambda: len(world.released) == 1, what="the late grant given back")

    assert (await world.task(task_id)).state is TaskState.PAUSED
    assert world.starts == []
    world.auto_grant = True
    assert isinstance(await send(world, ResumeTask(command_id=new_id(), task_id=task_id)), Accepted)
    await world.until(task_id, TaskState.COMPLETED)
    assert [tag for tag, _ in await staged(service, task_id)] == [
        "task_accepted",
        "task_started",
        "task_paused",
        "task_resumed",
        "task_completed",
    ]


async def test_running_experiment_goes_on_while_paused(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit()
    start = await until_started(world)
    await send(world, PauseTask(command_id=new_id(), task_id=task_id))

    await world.finish(start)
    await until_state(world, task_id, ExperimentState.SUCCEEDED)

    assert (await world.task(task_id)).experiments_by_state == {"succeeded": 1, "pending": 1}
    world.auto_run = True
    await send(world, ResumeTask(command_id=new_id(), task_id=task_id))
    await world.until(task_id, TaskState.COMPLETED)


async def test_every_event_may_come_twice(world: World, service: Service) -> None:
    world.auto_grant = world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    await eventually(lambda: len(world.requests) == 1)

    async def twice(event: Event) -> None:
        await world.tell(event)
        await world.tell(replace(event, message_id=new_id()))

    [reservation_id] = world.requests
    await twice(world.granted(reservation_id))
    start = await until_started(world)
    await twice(world.started(start))
    await twice(world.finished(start))
    await twice(world.summarized(start))

    await world.until(task_id, TaskState.COMPLETED)
    [experiment] = await world.experiments(task_id)
    assert len(world.starts) == 1
    assert [tag for tag, _ in await staged(service, experiment.experiment_id)] == [
        "experiment_waiting",
        "experiment_starting",
        "experiment_running",
        "experiment_succeeded",
    ]


async def test_early_end_and_summary_are_taken(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    start = await until_started(world)
    started, finished = world.started(start), world.finished(start)

    await world.tell(world.summarized(start))
    await world.tell(finished)
    await world.tell(started)
    await world.tell_phase(start, AttemptPhase.LOADING)

    await world.until(task_id, TaskState.COMPLETED)
    [experiment] = await world.experiments(task_id)
    assert experiment.state is ExperimentState.SUCCEEDED
    assert [a.outcome for a in experiment.attempts] == [AttemptOutcome.SUCCEEDED]


async def test_the_first_outcome_of_an_attempt_stands(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    start = await until_started(world)

    await world.finish(start, AttemptOutcome.INTERRUPTED)
    await until_started(world, 2)
    await world.tell(replace(world.finished(start), revision=99))
    await world.finish(world.starts[1])

    await world.until(task_id, TaskState.COMPLETED)
    [experiment] = await world.experiments(task_id)
    assert [a.outcome for a in experiment.attempts] == ["interrupted", "succeeded"]


async def test_events_about_unknown_ids_are_ignored(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    start = await until_started(world)
    stranger = replace(start, attempt_id=new_id(), experiment_id=new_id())

    await world.finish(stranger, AttemptOutcome.FAILED)
    await world.finish(start)

    await world.until(task_id, TaskState.COMPLETED)
    assert service.database is not None
    assert await service.database.pool.fetchval("SELECT count(*) FROM dead_letter") == 0


async def test_expired_lease_starts_no_second_attempt(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(parameters={"slots": [1]}))
    start = await until_started(world)

    cancelled = ReservationCancelled(
        message_id=new_id(),
        occurred_at=utcnow(),
        revision=3,
        reservation_id=start.reservation_id,
        namespace="default",
        holder="",
        epoch=start.epoch,
    )
    await world.tell(cancelled)
    await world.tell_started(start)
    await until_state(world, task_id, ExperimentState.RUNNING)

    assert len(world.requests) == 1
    await world.finish(start, AttemptOutcome.INTERRUPTED)
    await until_started(world, 2)
    await world.finish(world.starts[1])
    await world.until(task_id, TaskState.COMPLETED)


async def test_new_instance_goes_on_after_the_old(
    world: World, nats_url: str, postgres_dsn: str
) -> None:
    world.auto_grant = world.auto_run = False
    async with orchestrator(nats_url, postgres_dsn):
        task_id = await world.submit(task_file(parameters={"slots": [1]}))
        await eventually(lambda: len(world.requests) == 1)
    [reservation_id] = world.requests

    await world.grant(reservation_id)
    async with orchestrator(nats_url, postgres_dsn):
        start = await until_started(world)

    await world.tell_started(start)
    await world.finish(start)
    async with orchestrator(nats_url, postgres_dsn):
        view = await world.until(task_id, TaskState.COMPLETED)

    assert view.experiments_by_state == {"succeeded": 1}
    assert len(world.requests) == len(world.starts) == 1


async def test_missed_events_are_asked_for(world: World, nats_url: str, postgres_dsn: str) -> None:
    world.auto_grant = world.auto_run = False
    async with orchestrator(nats_url, postgres_dsn, repair_seconds=0.2):
        task_id = await world.submit(task_file(parameters={"slots": [1]}))
        await eventually(lambda: len(world.requests) == 1)

        world.granted(next(iter(world.requests)))  # the scheduler knows, no event says so
        start = await until_started(world)
        await until_state(world, task_id, ExperimentState.RUNNING)  # the executor lists it
        world.running.clear()
        await world.tell(world.finished(start))
        world.summarized(start)  # results know, no event says so

        await world.until(task_id, TaskState.COMPLETED)


async def test_start_is_repeated_to_a_forgetful_executor(
    world: World, nats_url: str, postgres_dsn: str
) -> None:
    world.auto_run = False
    async with orchestrator(nats_url, postgres_dsn, repair_seconds=0.2):
        task_id = await world.submit(task_file(parameters={"slots": [1]}))
        start = await until_started(world)
        await until_state(world, task_id, ExperimentState.RUNNING)

        world.running.clear()
        world.starts.clear()  # its journal is gone
        again = await until_started(world)
        await world.finish(again, AttemptOutcome.INTERRUPTED)
        await eventually(lambda: len(world.starts) == 2)
        await world.finish(world.starts[-1])
        await world.until(task_id, TaskState.COMPLETED)

    assert again == start


async def test_task_completes_though_the_bus_loses_data(
    nats_server_factory: Callable[[], Awaitable[NatsServer]], postgres_dsn: str
) -> None:
    server = await nats_server_factory()
    url = server.authenticated_url
    async with scripted_world(url) as world:
        world.auto_run = False
        async with orchestrator(url, postgres_dsn, repair_seconds=0.5):
            task_id = await world.submit(task_file(parameters={"slots": [1]}))
            start = await until_started(world)

            await server.crash_and_lose_store()
            await server.start()
            await eventually(lambda: world.bus.is_connected)

            async def told() -> bool:
                try:
                    await world.finish(start)
                except UnavailableError:
                    return False
                return True

            await eventually(told)
            await world.until(task_id, TaskState.COMPLETED)


async def test_name_is_taken_until_its_task_has_ended(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file("mine"))

    again = SubmitTask(command_id=new_id(), task_id=new_id(), task=task_file("mine"))
    reply = await refused(world, again)

    assert (reply.code, reply.path) == (ErrorCode.NAME_TAKEN, "$.task_name")
    await world.submit(task_file("mine"), namespace="other")
    await cancel(world, task_id)
    start = await until_started(world)
    await world.finish(start, AttemptOutcome.CANCELLED)
    await world.until(task_id, TaskState.CANCELLED)
    await world.submit(task_file("mine"))


async def test_repeated_submission_gets_the_same_answer(world: World, service: Service) -> None:
    world.auto_run = False
    command = SubmitTask(command_id=new_id(), task_id=new_id(), task=task_file())

    first, second = await send(world, command), await send(world, command)

    assert first == second
    assert isinstance(first, Accepted)
    tasks = await world.bus.query(ListTasks(), TaskList)
    assert [task.task_id for task in tasks.tasks] == [command.task_id]
    other = replace(command, task=task_file("another"))
    assert (await refused(world, other)).code is ErrorCode.COMMAND_ID_REUSED


async def test_lists_go_on_where_they_ended(world: World, service: Service) -> None:
    world.auto_grant = False
    stored = [await world.submit(task_file(f"task-{n}")) for n in range(5)]

    tasks = await world.bus.query(ListTasks(limit=2), TaskList)
    experiments = await world.bus.query(ListExperiments(limit=3), ExperimentList)
    seen_tasks = [task.task_id for task in tasks.tasks]
    seen = [(each.task_id, each.ordinal) for each in experiments.experiments]
    of_another_list = ListTasks(cursor=experiments.next_cursor)
    await world.submit(task_file("later"))
    while tasks.next_cursor is not None:
        tasks = await world.bus.query(ListTasks(limit=2, cursor=tasks.next_cursor), TaskList)
        seen_tasks += [task.task_id for task in tasks.tasks]
    while experiments.next_cursor is not None:
        rest = ListExperiments(limit=3, cursor=experiments.next_cursor)
        experiments = await world.bus.query(rest, ExperimentList)
        seen += [(each.task_id, each.ordinal) for each in experiments.experiments]

    assert seen_tasks == stored[::-1]
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen, key=lambda each: (-stored.index(each[0]), each[1]))
    assert {task_id for task_id, _ in seen} == set(stored)
    with pytest.raises(RefusedError, match="expected the next_cursor of an earlier answer"):
        await world.bus.query(of_another_list, TaskList)


LOG_FROM_ZERO = {"type": "continuous", "low": 0, "high": 1, "log": True}


FLAGS = ("slots", "ttft-seconds", "tpot-seconds", "start-delay-seconds")
REFUSED: tuple[tuple[dict[str, Any], ErrorCode, str, str], ...] = (
    (
        {"deployment_mode": "docker", "base_runtime": "sglang", "parameters": {"tp-size": [1]}},
        ErrorCode.UNSUPPORTED, "$.deployment_mode", "no Docker here",
    ),
    (
        {"base_runtime": "vllm", "parameters": {"tp-size": [1]}},
        ErrorCode.UNSUPPORTED, "$.base_runtime", "'vllm'",
    ),
    (
        {"base_runtime": "no-such-engine"},
        ErrorCode.BAD_REQUEST, "$.base_runtime", "llamacpp",
    ),
    (
        {"optimization": {"strategy": "bayesian"}, "parameters": {"x": LOG_FROM_ZERO}},
        ErrorCode.BAD_REQUEST, "$.parameters.x.low", "more than 0",
    ),
    (
        {"benchmark": {"tool": "genai-bench"}},
        ErrorCode.UNSUPPORTED, "$.benchmark.tool", "genai-bench",
    ),
    (
        {"parameters": {"tp-size": [0]}},
        ErrorCode.BAD_REQUEST, "$.parameters.tp-size", "got 0",
    ),
    (
        {"parameters": {"nope": [1]}},
        ErrorCode.BAD_REQUEST, "$.parameters.nope", "tp-size",
    ),
    (
        {"parameters": {name: list(range(1, 101)) for name in FLAGS}},
        ErrorCode.BAD_REQUEST, "$.optimization.max_iterations", "5000",
    ),
    (
        {"gpus": {"nodes": ["elsewhere"]}},
        ErrorCode.UNSUPPORTED, "$.gpus.nodes", "n1",
    ),
)  # fmt: skip


async def test_unrunnable_task_is_refused_and_not_stored(world: World, service: Service) -> None:
    for overrides, code, path, says in REFUSED:
        command = SubmitTask(command_id=new_id(), task_id=new_id(), task=task_file(**overrides))

        reply = await refused(world, command)

        assert (reply.code, reply.path) == (code, path), overrides
        assert says in reply.message
    assert service.database is not None
    for table in ("task", "experiment", "attempt", "outbox", "outgoing"):
        assert await service.database.pool.fetchval(f"SELECT count(*) FROM {table}") == 0


async def test_unrunnable_task_can_be_validated(world: World, service: Service) -> None:
    task = task_file(
        deployment_mode="docker", base_runtime="sglang", parameters={"tp-size": [1, 2]}
    )

    plan = await world.bus.query(ValidateTask(task=task), TaskPlan)

    assert [e.request.gpus for e in plan.experiments] == [1, 2]
    assert plan.missing == ("no executor runs mode 'docker' (n1: no Docker here)",)


async def test_unknown_ids_are_refused_by_name(world: World, service: Service) -> None:
    reply = await refused(world, CancelTask(command_id=new_id(), task_id=new_id()))
    assert (reply.code, reply.path) == (ErrorCode.NOT_FOUND, "$.task_id")

    with pytest.raises(RefusedError, match="there is no task"):
        await world.bus.query(GetTask(task_id=new_id()), TaskView)
    with pytest.raises(RefusedError, match="there is no experiment"):
        await world.bus.query(GetExperiment(experiment_id=new_id()), ExperimentView)


async def test_experiments_are_listed_by_their_filters(world: World, service: Service) -> None:
    here = await world.submit(task_file(task_name="here"), namespace="team-a")
    await world.until(here, TaskState.COMPLETED)
    world.auto_grant = False
    there = await world.submit(task_file(task_name="there"), namespace="team-b")

    async def tasks_with(**wanted: Any) -> set[tuple[UUID, str]]:
        found = await world.bus.query(ListExperiments(**wanted), ExperimentList)
        return {(each.task_id, each.task_name) for each in found.experiments}

    assert await tasks_with() == {(here, "here"), (there, "there")}
    assert await tasks_with(namespace="team-a") == {(here, "here")}
    assert await tasks_with(namespace="team-c") == set()
    assert await tasks_with(node_id=NODE) == {(here, "here")}
    assert await tasks_with(node_id="elsewhere") == set()
    assert await tasks_with(states=(ExperimentState.WAITING,)) == {(there, "there")}


@pytest.mark.long
async def test_largest_task_is_stored_and_cancelled_in_time(world: World, service: Service) -> None:
    world.auto_grant = False
    parameters = {"slots": list(range(1, 51)), "seed": list(range(100))}

    # A request waits 5 s. By this clock only waiting counts, which a busy machine does not prolong.
    with idle_time():
        began = time.process_time()
        task_id = await world.submit(task_file(parameters=parameters))
        await cancel(world, task_id)
        computed_seconds = time.process_time() - began

    assert computed_seconds < 5
    view = await world.until(task_id, TaskState.CANCELLED)
    assert view.experiments_by_state == {"cancelled": 5000}
    query = ListExperiments(task_id=task_id, limit=5000)
    ordinals: list[int] = []
    while True:
        page = await world.bus.query(query, ExperimentList)
        ordinals += [e.ordinal for e in page.experiments]
        if page.next_cursor is None:
            break
        query = replace(query, cursor=page.next_cursor)
    assert ordinals == list(range(1, 5001))
