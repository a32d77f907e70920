"""What is tried again, with which tool, and what ends that nobody tells the end of; over a real
nats-server and Postgres.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.base import Command
from schemas.errors import Accepted, ErrorCode
from schemas.executor.attempts import AttemptOutcome, FailureKind, StartExperiment
from schemas.gpus.gpu_request import GpuModel
from schemas.orchestrator.experiments import (
    CancelTask,
    ExperimentState,
    PauseTask,
    ResumeTask,
    TaskState,
)
from schemas.orchestrator.views import TaskPlan, ValidateTask
from schemas.scheduler.reservations import ReservationRejected, ReservationState
from schemas.task.benchmark import BenchmarkTool
from services.orchestrator.app import create_service
from services.orchestrator.ledger import attempt_rows
from services.orchestrator.settings import OrchestratorSettings
from shared.clock import utcnow
from shared.ids import new_id
from shared.service import Service
from shared.testing import eventually
from tests.support.worlds.orchestrator import World, task_file

GENAI, BUILTIN = BenchmarkTool.GENAI_BENCH, BenchmarkTool.BUILTIN
BOTH = ("genai-bench", "builtin")


@pytest.fixture
def settings(nats_url: str, postgres_dsn: str) -> OrchestratorSettings:
    return OrchestratorSettings(
        nats_url=nats_url,
        postgres_dsn=postgres_dsn,
        repair_interval_seconds=0.2,
        repair_after_seconds=0.2,
        overdue_after_seconds=0.4,
        retry_pause_seconds=0.3,
    )


@pytest.fixture
async def service(settings: OrchestratorSettings, world: World) -> AsyncIterator[Service]:
    async with create_service(settings).running() as running:
        yield running


def one_experiment(**optimization: Any) -> dict[str, Any]:
    return {
        "parameters": {"slots": [1]},
        "benchmark": {"tool": "auto"},
        "optimization": optimization,
    }


async def send(world: World, command: Command) -> None:
    assert isinstance(await world.bus.request(command), Accepted)


async def known(world: World, tool: BenchmarkTool, *nodes: str) -> None:
    """Wait until a task would run on these nodes, with this tool."""

    async def planned() -> bool:
        task = task_file(**one_experiment())
        plan = await world.bus.query(ValidateTask(task=task), TaskPlan)
        asked = plan.experiments[0].request.node_ids
        return (asked, plan.benchmark_tool) == (nodes, tool)

    await eventually(planned, what=f"{nodes} with {tool}")


async def requested(world: World, count: int) -> UUID:
    await eventually(lambda: len(world.requests) >= count, what=f"{count} requests")
    return list(world.requests)[count - 1]


async def started(world: World, count: int) -> StartExperiment:
    await eventually(lambda: len(world.starts) >= count, what=f"{count} starts")
    return world.starts[count - 1]


def nodes_asked(world: World) -> list[tuple[str, ...]]:
    return [command.request.node_ids for command in world.requests.values()]


async def test_passing_failure_is_repeated_elsewhere(world: World, service: Service) -> None:
    await world.report("n2")
    await known(world, BUILTIN, "n1", "n2")
    world.outcomes = [AttemptOutcome.FAILED, AttemptOutcome.FAILED]
    world.kinds = [FailureKind.CUDA_ERROR, FailureKind.PORT_TAKEN]

    task_id = await world.submit(task_file(**one_experiment()))

    await world.until(task_id, TaskState.COMPLETED)
    [experiment] = await world.experiments(task_id)
    assert [a.outcome for a in experiment.attempts] == ["failed", "failed", "succeeded"]
    assert [a.attempt_number for a in experiment.attempts] == [1, 2, 3]
    assert (experiment.failed_attempts, experiment.interrupted_attempts) == (2, 0)
    for failed, repeated in pairwise(experiment.attempts):
        assert failed.finished_at is not None
        assert repeated.finished_at is not None
        assert repeated.finished_at - failed.finished_at >= timedelta(seconds=0.3)
    assert nodes_asked(world) == [("n1", "n2"), ("n2",), ("n2",)]


async def test_experiments_stay_on_the_first_granted_model(world: World, service: Service) -> None:
    await known(world, BUILTIN, "n1")
    world.auto_grant = False
    two = one_experiment(max_parallel=2) | {"parameters": {"slots": [1, 2]}}
    task_id = await world.submit(task_file(**two))
    await world.grant(await requested(world, 2))
    await started(world, 1)

    other = world.granted(await requested(world, 1))
    a100 = replace(other.devices[0], name="A100 (simulated)", memory_total_mb=40_000)
    await world.tell(replace(other, devices=(a100,)))
    await world.grant(await requested(world, 3))

    task = await world.until(task_id, TaskState.COMPLETED)
    asked = [command.request.same_model for command in world.requests.values()]
    model = GpuModel(name="H100 (simulated)", memory_total_mb=80_000)
    assert (task.gpu_model, asked) == (model, [None, None, model])
    assert {start.devices[0].name for start in world.starts} == {model.name}


async def test_experiment_without_other_places_returns(world: World, service: Service) -> None:
    await world.report("n2")
    await known(world, BUILTIN, "n1", "n2")
    world.auto_grant = False
    world.outcomes, world.kinds = [AttemptOutcome.FAILED], [FailureKind.CUDA_ERROR]
    task_id = await world.submit(task_file(**one_experiment()))
    await world.grant(await requested(world, 1))

    await world.end_reservation(await requested(world, 2), ReservationRejected)
    await world.grant(await requested(world, 3))

    await world.until(task_id, TaskState.COMPLETED)
    assert nodes_asked(world) == [("n1", "n2"), ("n2",), ("n1", "n2")]


async def test_resumed_task_repeats_a_failed_attempt(world: World, service: Service) -> None:
    world.auto_run = False
    world.kinds = [FailureKind.PORT_TAKEN]
    task_id = await world.submit(task_file(**one_experiment()))
    start = await started(world, 1)
    await send(world, PauseTask(command_id=new_id(), task_id=task_id))

    await world.finish(start, AttemptOutcome.FAILED)
    await eventually_pending(world, task_id)

    assert len(world.requests) == 1
    world.auto_run = True
    await send(world, ResumeTask(command_id=new_id(), task_id=task_id))
    await world.until(task_id, TaskState.COMPLETED)
    assert [s.attempt_number for s in world.starts] == [1, 2]


async def eventually_pending(world: World, task_id: UUID) -> None:
    async def pending() -> bool:
        [experiment] = await world.experiments(task_id)
        return experiment.state is ExperimentState.PENDING and experiment.failed_attempts == 1

    await eventually(pending, what="the failed attempt counted")


async def test_cancel_between_attempts_ends_a_task_once(world: World, service: Service) -> None:
    world.auto_grant = False
    world.outcomes, world.kinds = [AttemptOutcome.FAILED], [FailureKind.PORT_TAKEN]
    task_id = await world.submit(task_file(**one_experiment()))
    await world.grant(await requested(world, 1))
    again = await requested(world, 2)

    await send(world, CancelTask(command_id=new_id(), task_id=task_id))

    view = await world.until(task_id, TaskState.CANCELLED)
    assert view.experiments_by_state == {"cancelled": 1}
    await eventually(lambda: world.cancelled == [again])
    [experiment] = await world.experiments(task_id)
    assert service.database is not None
    told = await service.database.pool.fetch(
        "SELECT split_part(subject, '.', 4) AS tag FROM outbox WHERE subject LIKE '%.' || $1"
        " ORDER BY id",
        str(experiment.experiment_id),
    )
    assert [row["tag"].removeprefix("experiment_") for row in told] == [
        "waiting",
        "starting",
        "running",
        "retrying",
        "waiting",
        "cancelled",
    ]


async def test_task_keeps_its_tool_through_a_restart(
    world: World, settings: OrchestratorSettings
) -> None:
    world.auto_run = False
    async with create_service(settings).running():
        await world.report("n1", BOTH)
        await known(world, GENAI, "n1")
        task_id = await world.submit(task_file(benchmark={"tool": "auto"}))
        first = await started(world, 1)
        await world.report("n1", ("builtin",))
        await world.report("n2", ("builtin",))
        await world.report("n3", BOTH)
        await known(world, BUILTIN, "n1", "n2", "n3")

    async with create_service(settings).running():
        await world.finish(first)
        second = await started(world, 2)
        await world.finish(second)
        view = await world.until(task_id, TaskState.COMPLETED)

    assert [start.benchmark.tool for start in world.starts] == [GENAI, GENAI]
    assert nodes_asked(world) == [("n1",), ("n3",)]
    assert view.benchmark_tool is GENAI
    assert sum("'genai-bench' generates the load" in note for note in view.notes) == 1


async def test_endless_attempt_is_stopped_then_loses_lease(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(**one_experiment(timeout_per_iteration=0.2)))
    start = await started(world, 1)

    await eventually(lambda: len(world.stops) == 1, what="the executor told to stop")
    assert world.cancelled == []
    await eventually(lambda: world.cancelled == [start.reservation_id], what="the lease taken")
    await world.finish(start, AttemptOutcome.INTERRUPTED)

    await world.until(task_id, TaskState.FAILED)
    [experiment] = await world.experiments(task_id)
    assert experiment.failure is not None
    assert experiment.failure.kind is FailureKind.TIMEOUT
    assert [a.outcome for a in experiment.attempts] == ["failed"]


async def test_forgotten_overdue_attempt_ends_with_its_gpus(world: World, service: Service) -> None:
    world.auto_run = False
    task_id = await world.submit(task_file(**one_experiment(timeout_per_iteration=0.2)))
    start = await started(world, 1)
    await eventually(lambda: len(world.stops) == 1, what="the executor told to stop")

    world.running.clear()
    world.reservations[start.reservation_id] = replace(
        world.reservations[start.reservation_id], state=ReservationState.RELEASED, revision=3
    )

    await world.until(task_id, TaskState.FAILED)
    [experiment] = await world.experiments(task_id)
    assert experiment.failure is not None
    assert experiment.failure.kind is FailureKind.TIMEOUT


async def test_lease_of_a_silent_executor_runs_out(world: World, service: Service) -> None:
    world.refuse_start = [ErrorCode.UNAVAILABLE] * 1000
    task_id = await world.submit(task_file(**one_experiment()))
    await eventually(lambda: len(world.renewals) >= 1, what="a renewal")
    assert service.database is not None

    async with service.database.transaction() as connection:
        kept = await attempt_rows.to_renew(connection, utcnow() - timedelta(minutes=5))
        let_go = await attempt_rows.to_renew(connection, utcnow() + timedelta(seconds=1))

    assert ([a.task_id for a in kept], let_go) == ([task_id], [])
