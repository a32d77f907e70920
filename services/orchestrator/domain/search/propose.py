"""The next configuration of a search, whatever its strategy."""

from collections.abc import Sequence
from random import Random
from typing import Final

from schemas.task.task_file import OptimizationSpec
from services.orchestrator.domain.search.crashes import Predict, crash_predictor
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.prior import Prior
from services.orchestrator.domain.search.search import Answer, IsPossible, Search, Situation
from services.orchestrator.domain.search.space import Place, Space
from services.orchestrator.domain.search.strategies.table import STRATEGIES

PREDICTED_EVERY: Final = 10


def begin_search(
    spec: OptimizationSpec, space: Space, default_seed: int = 0, prior: Prior | None = None
) -> Search:
    """Return the search that the task file describes, with what it leaves open."""
    return Search(
        spec=spec,
        space=space,
        experiments=STRATEGIES[spec.strategy].count_experiments(spec, space),
        seed=default_seed if spec.seed is None else spec.seed,
        prior=prior,
    )


def propose(search: Search, history: Sequence[Trial], is_possible: IsPossible) -> Answer:
    """Return what is tried next, or why nothing is, or that another has to be measured before.

    The same search and history give the same answer, in every process. Nothing is proposed twice.
    Trials with an ordinal below 1 are of past tasks: known, and not tried here.
    """
    strategy = STRATEGIES[search.strategy]
    own_trials = [trial for trial in history if trial.ordinal > 0]
    number = max((trial.ordinal for trial in own_trials), default=0) + 1
    places = {trial.place for trial in own_trials}
    # Predictions may be wrong: every tenth proposal goes where a crash is predicted too.
    may_crash = not strategy.avoids_crashes or number % PREDICTED_EVERY == 0
    would_crash: Predict = crash_predictor(search.space, [] if may_crash else own_trials)

    def is_new(place: Place) -> bool:
        return place not in places and is_possible(search.space.point(place))

    return strategy.next(
        Situation(
            search=search,
            own_trials=own_trials,
            past=[trial for trial in history if trial.ordinal < 1],
            number=number,
            random=Random(f"{search.seed}:{number}"),  # noqa: S311 - repeatable, not secret
            is_new=is_new,
            is_promising=lambda place: is_new(place) and not would_crash(place),
        )
    )
