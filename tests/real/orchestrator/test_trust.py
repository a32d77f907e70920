"""Runs that tell how far a winner can be trusted, over a real nats-server and Postgres."""

import pytest

from schemas.orchestrator.experiments import CancelTask, PauseTask, TaskState
from schemas.task.trust import RunRole
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from shared.ids import new_id
from shared.testing import eventually
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


async def test_further_runs_go_on_with_the_engine_of_the_run_before(
    nats_url: str, postgres_dsn: str
) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        world.keeps = True
        task_id = await world.submit(
            task_file("kept", parameters={"slots": [1, 2, 4]}, optimization={"trust": True})
        )

        view = await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        assert [each.run.kept_from for each in experiments] == [
            *[None] * 3,  # the search
            *[None] * 2,  # repeats of the baseline, which tell how far starts differ
            None,  # the repeat of the winner
            *[6] * 3,  # its replays
        ]
        assert [each.run.engine_use.partition(":")[0] for each in experiments] == [
            *["fresh start"] * 6,
            *["kept up from run 6, its state reset"] * 3,
        ]
        starts = world.starts
        assert len(world.requests) == len({start.reservation_id for start in starts}) == 6
        assert [start.kept_from is not None for start in starts] == [
            each.run.kept_from is not None for each in experiments
        ]
        for start in starts:
            before = next((s for s in starts if s.attempt_id == start.kept_from), start)
            assert (start.reservation_id, start.epoch, start.devices, start.engine) == (
                before.reservation_id,
                before.epoch,
                before.devices,
                before.engine,
            )
        # What nothing was measured on any more was ended, and no GPUs were given back for it here.
        await eventually(lambda: len(world.let_go) == 3, what="the engines let go")
        assert world.let_go == [starts[n].attempt_id for n in (3, 4, 8)]
        assert (world.kept, world.released, world.stops) == (set(), [], [])
        assert view.trust is not None
        assert (view.trust.winner, view.trust.replays) == (3, 3)


async def test_run_whose_engine_is_gone_has_a_fresh_start(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        world.keeps = True
        world.forgets = True  # engines die before their next run comes
        wanted = {"trust": True, "max_attempts": 1}
        task_id = await world.submit(task_file("gone", optimization=wanted))

        await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        texts = [each.run.engine_use for each in experiments]
        assert "fresh start: its engine is not kept up any more" in texts
        assert {each.run.kept_from for each in experiments} == {None}
        assert len(world.requests) == len(experiments)
        assert world.released == []


@pytest.mark.parametrize("how", ["cancel", "pause"])
async def test_task_that_stops_lets_its_engine_go(
    nats_url: str, postgres_dsn: str, how: str
) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        world.keeps = True
        world.summarizes = False
        file = task_file("stopping", parameters={"slots": [1]}, optimization={"trust": True})
        task_id = await world.submit(file)
        await eventually(lambda: len(world.starts) == 1, what="the first run")
        await world.tell(world.summarized(world.starts[0]))
        await eventually(lambda: len(world.kept) == 1, what="an engine that is kept up")

        stop = CancelTask if how == "cancel" else PauseTask
        await world.bus.request(stop(command_id=new_id(), task_id=task_id))

        await eventually(lambda: len(world.let_go) == 1, what="the engine let go")
        assert world.let_go == [world.starts[1].attempt_id]


async def test_keep_engine_off_starts_every_run_anew(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        world.keeps = True
        wanted = {"trust": True, "keep_engine": False}
        task_id = await world.submit(task_file("anew", optimization=wanted))

        await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        assert {start.keep_seconds for start in world.starts} == {None}
        assert {each.run.engine_use for each in experiments} == {
            "fresh start",
            "fresh start: `keep_engine` is off",
        }
        assert len(world.requests) == len(experiments)
