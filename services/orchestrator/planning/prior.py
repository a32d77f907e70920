"""The prior that a task requests, from what executors report of its model."""

import statistics
from collections.abc import Sequence
from random import Random

from schemas.errors import ErrorCode
from schemas.task.task_file import Strategy, TaskFile
from services.orchestrator.domain.plan.executor_offers import Offer, shape_offered
from services.orchestrator.domain.search.prior import Prior, make_prior
from shared.benchmarks.traffic import UnsupportedTraffic, parse_scenario
from shared.errors import RefusedError

_SAMPLES = 100


def prior_for(task: TaskFile, offers: Sequence[Offer]) -> tuple[Prior | None, tuple[str, ...]]:
    """With notes. Raises RefusedError where the strategy could make nothing of it."""
    wanted = task.optimization
    if wanted.prior is None:
        return None, ()
    if wanted.strategy not in {Strategy.BAYESIAN, Strategy.AUTO}:
        raise RefusedError(
            ErrorCode.BAD_REQUEST,
            "expected a prior with strategy 'bayesian' or 'auto'",
            path="$.optimization.prior",
        )
    shape = shape_offered(task.model.id_or_path, offers)
    prior, note = make_prior(task, shape, _mean_sizes(task.benchmark.traffic_scenarios))
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
        statistics.fmean(each.num_input_tokens for each in sizes),
        statistics.fmean(each.num_output_tokens for each in sizes),
    )
