"""Submissions to an orchestrator that no executor has reported to yet."""

import asyncio

from schemas.errors import Accepted, ErrorCode, Refused, Reply
from schemas.orchestrator.experiments import SubmitTask
from schemas.orchestrator.views import TaskPlan, ValidateTask
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.ids import new_id
from tests.support.bus import connected_bus
from tests.support.worlds.orchestrator import World, scripted_world, task_file

AT_ONCE = 12
TIMEOUT_SECONDS = 60.0  # whatever else this machine does meanwhile


def settings(nats_url: str, postgres_dsn: str, first_report_seconds: float) -> OrchestratorSettings:
    return OrchestratorSettings(
        nats_url=nats_url, postgres_dsn=postgres_dsn, first_report_seconds=first_report_seconds
    )


def submission(number: int) -> SubmitTask:
    task = task_file(f"task-{number}")
    return SubmitTask(command_id=new_id(), task_id=new_id(), task=task)


async def test_submissions_wait_together_for_a_report(nats_url: str, postgres_dsn: str) -> None:
    service = create_service(settings(nats_url, postgres_dsn, TIMEOUT_SECONDS))
    async with scripted_world(nats_url, reports=False) as world, service.running():
        asked = asyncio.gather(*(reply_to(world, submission(n)) for n in range(AT_ONCE)))
        planned = asyncio.gather(*(plan_of(world) for _ in range(AT_ONCE)))
        await world.report()

        replies, plans = await asked, await planned

    assert all(isinstance(reply, Accepted) for reply in replies), replies
    assert all(plan.missing == () for plan in plans)


async def test_submission_without_executors_answers_in_time(
    nats_url: str, postgres_dsn: str
) -> None:
    service = create_service(settings(nats_url, postgres_dsn, 0.6))
    async with connected_bus(nats_url, "user") as bus, service.running():
        replies = await asyncio.gather(*(bus.request(submission(n)) for n in range(AT_ONCE)))
        plans = await asyncio.gather(
            *(bus.query(ValidateTask(task=task_file()), TaskPlan) for _ in range(AT_ONCE))
        )

    codes = [reply.code for reply in replies if isinstance(reply, Refused)]
    assert codes == [ErrorCode.UNSUPPORTED] * AT_ONCE
    assert all("no executor" in plan.missing[0] for plan in plans)


async def reply_to(world: World, command: SubmitTask) -> Reply:
    return await world.bus.request(command, timeout_seconds=TIMEOUT_SECONDS)


async def plan_of(world: World) -> TaskPlan:
    query = ValidateTask(task=task_file())
    return await world.bus.query(query, TaskPlan, timeout_seconds=TIMEOUT_SECONDS)
