"""Runs that tell how far a winner can be trusted, over a real nats-server and Postgres."""

from schemas.orchestrator.experiments import TaskState
from schemas.task.trust import RunRole
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from tests.support.worlds.orchestrator import scripted_world, task_file


async def test_grid_repeats_baseline_and_replays_winner(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        task_id = await world.submit(
            task_file("trusted", parameters={"slots": [1, 2, 4]}, optimization={"trust": True})
        )

        view = await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        roles = [(each.run.role, each.run.repeats) for each in experiments]
        assert roles == [
            *[(RunRole.SEARCH, None)] * 3,
            *[(RunRole.REPEAT, 1)] * 2,
            (RunRole.REPEAT, 3),
            *[(RunRole.REPLAY, 3)] * 3,
        ]
        assert experiments[5].parameters == {"slots": 4}
        assert experiments[3].proposal == "the noise between equal runs"
        assert [start.benchmark.seed for start in world.starts] == [0] * 6 + [1, 2, 3]
        assert view.trust is not None
        assert (view.trust.winner, view.trust.replays, view.trust.ties) == (3, 3, ())
        assert view.best_experiment_id == experiments[2].experiment_id


async def test_spent_budget_limits_trust(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        wanted = {"trust": True, "max_gpu_hours": 0.5 / 3600}
        task_id = await world.submit(task_file("spent", optimization=wanted))

        view = await world.until(task_id, TaskState.COMPLETED)

        assert {each.run.role for each in await world.experiments(task_id)} == {RunRole.SEARCH}
        assert view.trust is not None
        assert view.trust.incomplete_because == "the task has used up its GPU-hours"
