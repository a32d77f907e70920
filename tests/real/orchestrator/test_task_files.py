"""The autotuner's task files from their submission to their best experiment, over a real
nats-server and Postgres; what runs them follows a script.
"""

import msgspec
import pytest

from schemas.executor.attempts import Runtime, RuntimeOffer
from schemas.orchestrator.experiments import ExperimentState, TaskState
from schemas.task.task_file import TaskFile
from services.orchestrator.app import create_service
from services.orchestrator.settings import OrchestratorSettings
from tests.contract.test_task_files import AUTOTUNER, autotuners
from tests.support.worlds.orchestrator import scripted_world
from tests.support.worlds.orchestrator_records import ENGINE_RULES

# One executor that has it all: containers, and a cluster with the runtimes that the files name.
OFFERED = tuple(
    RuntimeOffer(
        runtime=runtime,
        engines=("sglang",),
        engine_rules=ENGINE_RULES,
        serving_runtimes=serving_runtimes,
    )
    for runtime, serving_runtimes in (
        (Runtime.DOCKER, {}),
        (Runtime.OME, {"sglang-llama-small": "sglang", "llama-3-2-1b-instruct-rt": "sglang"}),
    )
)


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_autotuner_files_run_to_their_best(nats_url: str, postgres_dsn: str) -> None:
    files = {
        name: msgspec.json.decode(autotuners(name), type=TaskFile) for name in sorted(AUTOTUNER)
    }
    settings = OrchestratorSettings(nats_url=nats_url, postgres_dsn=postgres_dsn)
    async with scripted_world(nats_url, reports=False) as world:
        await world.report(tools=("builtin", "genai-bench"), runtimes=OFFERED)
        async with create_service(settings).running():
            submitted = {name: await world.submit(file) for name, file in files.items()}
            for name, task_id in submitted.items():
                view = await world.until(task_id, TaskState.COMPLETED)
                experiments = await world.experiments(task_id)

                assert len(experiments) == AUTOTUNER[name][1]
                assert {each.state for each in experiments} == {ExperimentState.SUCCEEDED}
                assert view.best_experiment_id == experiments[0].experiment_id, "equal ones: first"
