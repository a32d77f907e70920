"""What past tasks measured of the same, for a search to begin with."""

from collections import Counter

from msgspec.structs import replace

from schemas.errors import ErrorCode
from schemas.task.strategies import Strategy, names_of
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.plan.task_planner import TaskPlanner
from services.orchestrator.domain.search.warm_start import WarmStart, WarmTrial, is_warmed
from services.orchestrator.ledger.past_trials import past_trials
from shared.engines.variants import SINGLE, VARIANT_NAMES, Variant
from shared.errors import RefusedError
from shared.postgres.database import Connection


async def warm_start(
    connection: Connection, namespace: str, task: TaskFile, planner: TaskPlanner
) -> tuple[WarmStart | None, tuple[str, ...]]:
    """Return what the search begins with, and notes. Raises RefusedError where it takes none."""
    if not is_warmed(task.optimization):
        strategies = (strategy for strategy in Strategy if strategy.traits.takes_warm_start)
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected warm_start with strategy {names_of(strategies)} and one objective",
            path="$.optimization.warm_start",
        )
    past = [
        (gpu_model, _as_of(variant, trial))
        for variant, engine in planner.engines.items()
        for gpu_model, trial in await past_trials(
            connection,
            namespace,
            engine.source.file,
            engine.planner.workload.engine,
            planner.choice.tool,
            of_tag_alone=bool(task.engines),
        )
    ]
    model_parts = [part.casefold() for part in (task.gpus.models if task.gpus is not None else ())]
    fitting = [
        (gpu_model, trial)
        for gpu_model, trial in past
        if not model_parts or any(part in gpu_model.casefold() for part in model_parts)
    ]
    if not fitting:
        return None, ("warm_start: no past experiment measured the same",)
    [(most_used, count)] = Counter(gpu_model for gpu_model, _ in fitting).most_common(1)
    trials = tuple(trial for gpu_model, trial in fitting if gpu_model == most_used)
    note = f"warm_start: {count} past experiments on {most_used}, which are not counted as measured"
    return WarmStart(gpu_model=most_used, trials=trials), (note,)


def _as_of(variant: Variant, trial: WarmTrial) -> WarmTrial:
    """Return the trial as one of the task's engine: there it may have been the only one."""
    if variant == SINGLE:
        return trial
    engine = dict(zip(VARIANT_NAMES, variant, strict=True))
    flags = {name: v for name, v in trial.parameters.items() if name not in engine}
    names = {name: value for name, value in engine.items() if value is not None}
    return replace(trial, parameters={**names, **flags})
