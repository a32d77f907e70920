"""The prior that a task requests, from what executors report of its model."""

import statistics
from collections.abc import Sequence
from random import Random

from schemas.errors import ErrorCode
from schemas.task.modality import Modality
from schemas.task.strategies import Strategy, names_of
from schemas.task.task_file import TaskFile
from services.orchestrator.domain.installation.installation import Installation
from services.orchestrator.domain.search.prior import Prior, make_prior
from shared.benchmarks.traffic import UnsupportedTraffic, parse_scenario
from shared.errors import RefusedError

_SAMPLES = 100


def prior_for(task: TaskFile, installation: Installation) -> tuple[Prior | None, tuple[str, ...]]:
    """Return the prior that the task asks for, with notes.

    Raises RefusedError where its strategy takes none.
    """
    if not task.optimization.strategy.traits.takes_prior:
        strategies = (strategy for strategy in Strategy if strategy.traits.takes_prior)
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            f"expected a prior with strategy {names_of(strategies)}",
            path="$.optimization.prior",
        )
    shape = installation.find_shape(task.model.id_or_path)
    models = [engine.model.id_or_path for engine in task.engines if engine.model is not None]
    other_shapes = {model: installation.find_shape(model) for model in models}
    is_text = task.benchmark.modality is Modality.TEXT  # the others have no prompts and answers
    sizes = _mean_sizes(task.benchmark.traffic_scenarios) if is_text else None
    prior, note = make_prior(task, shape, sizes, other_shapes)
    return prior, (note,)


def _mean_sizes(scenarios: Sequence[str]) -> tuple[float, float] | None:
    random = Random(0)  # noqa: S311 - repeatable, not secret
    try:
        sizes = [
            sample(random) for sample in map(parse_scenario, scenarios) for _ in range(_SAMPLES)
        ]
    except UnsupportedTraffic:
        return None
    return (
        statistics.fmean(size.num_input_tokens for size in sizes),
        statistics.fmean(size.num_output_tokens for size in sizes),
    )
