"""Bayesian search: some configurations at random, then each by the measurements so far."""

from typing import Final

from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.search.search import (
    Answer,
    Proposal,
    Search,
    SearchStrategy,
    Situation,
)
from services.orchestrator.domain.search.space import Space
from services.orchestrator.domain.search.steps import (
    count_measured,
    count_placed,
    count_within,
    draw_at_random,
    predict_best,
    propose_most_promising,
    propose_predicted,
    repeat_past_best,
    stop_at_limit,
)

# Of the first experiments every other is the best that a prior predicts of what is left, so that a
# wrong prediction costs no more than these.
PRIOR_PROPOSALS: Final = 6
DRAWN_OF_EACH_ENGINE: Final = 3  # before one is learned to be the better one


class BayesianSearch:
    """Begins at random, with past tasks or with a prior; goes on by Optuna's TPE."""

    avoids_crashes = True

    def count_experiments(self, spec: OptimizationSpec, space: Space) -> int:
        return count_within(spec, space)

    def next(self, situation: Situation) -> Answer:
        drawn = count_drawn(situation.search)
        return (
            stop_at_limit(situation)
            or repeat_past_best(situation)
            or _propose_early_prediction(situation, drawn)
            or _learn(situation, drawn)
            or draw_at_random(situation, drawn)
        )

    def describe(self, search: Search) -> str:
        drawn = count_drawn(search)
        if drawn == search.experiments:
            return "drawn at random"
        return f"{drawn} drawn at random, then each from the measurements so far (Optuna's TPE)"


def count_drawn(search: Search) -> int:
    """Return how many of the first experiments are drawn at random, of all engines in turn."""
    of_engines = DRAWN_OF_EACH_ENGINE * len(search.space.parts)
    default = max(of_engines, min(10, search.experiments // 4))
    return min(search.spec.n_initial_random or default, search.experiments)


def _propose_early_prediction(situation: Situation, drawn: int) -> Proposal | None:
    number = situation.number
    if number % 2 == 0 or number > min(PRIOR_PROPOSALS, drawn):
        return None
    return propose_predicted(situation, predict_best(situation))


def _learn(situation: Situation, drawn: int) -> Proposal | None:
    has_measured = situation.number > drawn and count_measured(situation.own_trials) > 0
    if not has_measured and count_placed(situation.past) < drawn:
        return None
    return propose_most_promising(situation)


STRATEGY: Final[SearchStrategy] = BayesianSearch()
