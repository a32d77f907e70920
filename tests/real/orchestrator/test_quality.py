"""A configuration that is faster because it answers otherwise, over a real Postgres."""

from schemas.executor.attempts import AttemptOutcome
from schemas.orchestrator.experiments import TaskState
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from tests.support.worlds.orchestrator import scripted_world, task_file


async def test_configuration_with_other_answers_never_wins(
    nats_url: str, postgres_dsn: str
) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        varied = {"answer-drift": [0.0, 1.0], "slots": [1, 2]}
        task_id = await world.submit(task_file(parameters=varied))

        view = await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        scores = {each.ordinal: each.objective_score for each in experiments}
        assert min(scores, key=lambda ordinal: scores[ordinal] or 0.0) == 4
        verdicts = [each.slo.quality for each in experiments if each.slo and each.slo.quality]
        assert [each.agreement for each in verdicts] == [1.0, 1.0, 0.0, 0.0]
        assert {each.baseline for each in verdicts} == {1}
        assert view.best_experiment_id == experiments[1].experiment_id


async def test_baseline_is_the_first_not_lost(nats_url: str, postgres_dsn: str) -> None:
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url) as world, create_service(settings).running():
        world.outcomes = [AttemptOutcome.CANCELLED]
        task_id = await world.submit(task_file(parameters={"answer-drift": [0.5, 0.0, 1.0]}))

        view = await world.until(task_id, TaskState.COMPLETED)

        experiments = await world.experiments(task_id)
        verdicts = [each.slo.quality for each in experiments if each.slo and each.slo.quality]
        assert [(each.baseline, each.agreement) for each in verdicts] == [(2, 1.0), (2, 0.0)]
        assert view.best_experiment_id == experiments[1].experiment_id
