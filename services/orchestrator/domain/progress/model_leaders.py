"""The best runs of a model, as people compare them."""

from schemas.orchestrator.leaders import Leader
from services.orchestrator.domain.records import Experiment, Task
from shared.benchmarks.levels.level_text import benchmark_text
from shared.benchmarks.verdicts.constraints import find_missed


def leader(experiment: Experiment, task: Task, experiments: int) -> Leader:
    """Return the best of so many experiments, with what its task knows of its trust."""
    run = experiment.run
    configuration = run.repeats or experiment.ordinal
    trust = task.trust
    standings = trust.repeated if trust is not None else ()
    standing = next((place for place in standings if place.ordinal == configuration), None)
    return Leader(
        experiment_id=experiment.experiment_id,
        task_id=experiment.task_id,
        task_name=experiment.task_name or task.task_name,
        namespace=experiment.namespace,
        ordinal=experiment.ordinal,
        engine=experiment.engine.engine,
        version=experiment.engine.image_tag or "",
        image_digest=run.image_digest,
        gpu_models=run.setting.gpu_models,
        driver_versions=run.setting.driver_versions,
        gpus=max(1, experiment.request.gpus * experiment.request.nodes),
        load=benchmark_text(task.file.benchmark),
        parameters=experiment.engine.parameters,
        score=experiment.objective_score or 0.0,
        measured_at=experiment.finished_at,
        experiments=experiments,
        misses=tuple(check.constraint for check in find_missed(experiment.slo)),
        doubts=run.doubts,
        runs=standing.runs if standing is not None else 1,
        is_confirmed=trust is not None and trust.winner == configuration,
        spread_percent=standing.spread_percent if standing is not None else None,
    )
