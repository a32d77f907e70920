"""What a wrong prior costs: experiments until the first that is truly within 2 % of the best."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from schemas.executor.attempts import FailureKind
from schemas.executor.model_shape import ModelShape
from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.strategies import Strategy
from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.configurations import Point
from services.orchestrator.domain.search.history import RunRecord, trials_of
from services.orchestrator.domain.search.prior import DEFAULT_GPU, Prior
from services.orchestrator.domain.search.propose import begin_search, propose
from services.orchestrator.domain.search.search import Proposal
from services.orchestrator.domain.search.space import Space
from shared.benchmarks.verdicts.ranking import Scored

NEAR: Final = 1.02
MOST: Final = 120

Latency = Callable[[Point], float | None]


class WrongPrior(Prior, frozen=True, kw_only=True):
    """It takes the worst for the best. `truths` are by configuration."""

    truths: dict[str, float]

    def order(self, point: Point) -> float | None:
        return -self.truths.get(str(point.show()), float("inf"))


def prior_figures(space: Space, surfaces: Sequence[Latency], noise: float) -> dict[str, float]:
    """Over none at all, of all surfaces together, for a search by estimator and one in stages."""
    found = {}
    for strategy, name in ((Strategy.BAYESIAN, "bayes"), (Strategy.AUTO, "auto")):
        needed = partial(_needed, strategy, space, noise)
        none = sum(needed(surface, seed, None) for seed, surface in enumerate(surfaces))
        wrong = sum(
            needed(surface, seed, _wrong(space, surface)) for seed, surface in enumerate(surfaces)
        )
        found[f"{name}_wrong_prior_experiments_over_none"] = round(wrong / none, 3)
    return found


def _needed(
    strategy: Strategy,
    space: Space,
    noise: float,
    surface: Latency,
    seed: int,
    prior: Prior | None,
) -> int:
    drawn = random.Random(f"prior:{seed}")
    truths = [truth for place in space.places() if (truth := surface(space.point(place)))]
    spec = OptimizationSpec(strategy=strategy, max_iterations=MOST, seed=seed)
    search = begin_search(spec, space, prior=prior)
    past: list[RunRecord] = []
    while True:
        trials = trials_of((Objective.MINIMIZE_LATENCY,), space, past)
        proposal = propose(search, trials, lambda _: True)
        if not isinstance(proposal, Proposal):
            return MOST
        truth = surface(proposal.point)
        if truth is not None and truth <= NEAR * min(truths):
            return len(past) + 1
        score = None if truth is None else truth * (1 + drawn.gauss(0, noise))
        past.append(_past(proposal, score))


def _wrong(space: Space, surface: Latency) -> WrongPrior:
    fields: dict[str, Any] = {
        "shape": ModelShape(weights=1, active_weights=1, cached_values=1, layers=1),
        "gpu": DEFAULT_GPU,
        "objective": Objective.MINIMIZE_LATENCY,
        "input_tokens": 1.0,
        "output_tokens": 1.0,
        "loads": (1,),
    }
    points = [space.point(place) for place in space.places()]
    truths = {str(each.show()): truth for each in points if (truth := surface(each)) is not None}
    return WrongPrior(**fields, truths=truths)


def _past(proposal: Proposal, score: float | None) -> RunRecord:
    ordinal = proposal.ordinal
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.FAILED if score is None else ExperimentState.SUCCEEDED,
        parameters=proposal.point.show(),
        scored=None
        if score is None
        else Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score),
        failure=FailureKind.GPU_OUT_OF_MEMORY if score is None else None,
    )
