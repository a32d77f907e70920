"""The best measured configurations of a model over all tasks, on a real Postgres."""

from schemas.orchestrator.experiments import TaskState
from schemas.orchestrator.leaders import LeaderList, ListLeaders
from schemas.task.objectives import Objective
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from tests.support.worlds.orchestrator import World, scripted_world, task_file

MODEL = "simulated-model"
LATENCY = Objective.MINIMIZE_LATENCY


async def leaders(world: World, objective: Objective, namespace: str | None = None) -> LeaderList:
    query = ListLeaders(model=MODEL, objective=objective, namespace=namespace)
    return await world.bus.query(query, LeaderList)


async def test_leaders_are_the_best_of_each_load(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        assert (await world.bus.query(ListLeaders(), LeaderList)).models == ()
        heavy = {"tool": "builtin", "num_concurrency": [8]}
        trusted = {"trust": True}
        fast = task_file("fast", parameters={"slots": [1, 2, 4]}, optimization=trusted)
        for file in (fast, task_file("heavy", benchmark=heavy)):
            await world.until(await world.submit(file), TaskState.COMPLETED)

        board = await leaders(world, LATENCY)
        models = (await world.bus.query(ListLeaders(), LeaderList)).models

        by_load = {leader.load: leader for leader in board.leaders}
        assert sorted(by_load) == ["D(100,100); 1 at once", "D(100,100); 8 at once"]
        best = by_load["D(100,100); 1 at once"]
        assert (best.task_name, best.parameters["slots"]) == ("fast", 4)
        assert (best.is_confirmed, best.runs) == (True, 2)
        assert best.experiments == 9  # with repeats and replays
        assert not by_load["D(100,100); 8 at once"].is_confirmed
        scores = [leader.score for leader in board.leaders]
        assert scores == sorted(scores)
        assert [(model.model, model.experiments) for model in models] == [(MODEL, 11)]
        assert models[0].objectives == (LATENCY,)
        assert (await leaders(world, Objective.MAXIMIZE_THROUGHPUT)).leaders == ()
        assert (await leaders(world, LATENCY, "elsewhere")).leaders == ()
