"""The commands that repeat what an experiment did."""

from typing import Final

from schemas.gateway.views import ExperimentDetail
from schemas.task.benchmark import BenchmarkSpec, BenchmarkTool
from schemas.task.load_commands import ExperimentCommands, LevelCommands
from schemas.task.task_file import TaskFile
from services.gateway.domain.task_report.deployments import deployments
from shared.benchmarks.arrivals import Load, loads
from shared.benchmarks.same_load import make_load_commands
from shared.benchmarks.tools.adapter import Target
from shared.benchmarks.tools.spec_check import load_spec
from shared.engines.table import LAUNCHES

EXAMPLE_PORT: Final = 8000


def make_experiment_commands(
    experiment: ExperimentDetail, task: TaskFile | None
) -> ExperimentCommands:
    """Return its engine's start, and the load of each level as each tool sends it.

    `task` None: nobody has its definition any more, so there are no loads.
    """
    launch = LAUNCHES.get(experiment.engine.engine)
    endpoint = experiment.engine.endpoint
    local_url = f"http://localhost:{EXAMPLE_PORT if launch is None else launch.port}"
    target = Target(
        base_url=local_url if endpoint is None else endpoint.url.removesuffix("/v1"),
        model_name=experiment.engine.model,
    )
    levels: tuple[LevelCommands, ...] = ()
    if task is not None:
        spec = load_spec(task.benchmark, "", BenchmarkTool.AUTO, experiment.run)
        if spec.model_name is not None:
            target = Target(base_url=target.base_url, model_name=spec.model_name)
        levels = tuple(
            LevelCommands(
                scenario=scenario,
                num_concurrency=load.concurrency,
                arrivals=load.arrivals,
                commands=make_load_commands(spec, scenario, load, target),
            )
            for scenario, load in _levels(experiment, spec)
        )
    return ExperimentCommands(
        experiment_id=experiment.experiment_id,
        base_url=target.base_url if launch is not None or endpoint is not None else None,
        deployments=deployments(experiment.task_name, experiment.engine, experiment.request),
        levels=levels,
    )


def _levels(experiment: ExperimentDetail, spec: BenchmarkSpec) -> list[tuple[str, Load]]:
    """Return what was measured, once each; before that what the task wants measured."""
    if experiment.benchmark is not None:
        measured = [
            (level.scenario, Load(level.num_concurrency, level.arrivals))
            for level in experiment.benchmark.levels
        ]
        return list(dict.fromkeys(measured))
    if spec.load_search is not None:
        return []
    return [(scenario, load) for scenario in spec.traffic_scenarios for load in loads(spec)]
