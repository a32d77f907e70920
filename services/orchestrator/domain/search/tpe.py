"""Optuna's tree-structured Parzen estimator: proposes where the best of the measured are dense, and
the others are not.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from services.orchestrator.domain.search.space import Dimension, Place, Space, readable

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

_MAX_SUGGESTIONS: Final = 24


def load() -> None:
    """Import Optuna: a second of the CPU that a grid does not need."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)


def suggest(
    space: Space,
    history: Sequence[tuple[Place, int | None]],
    seed: int,
    is_new: Callable[[Place], bool],
) -> Place | None:
    """A new place by the standing of those in the history, 0 the best; None: still measured, and
    taken for a bad one.

    The study is made anew from the history each time, so that nothing else has to be stored: the
    estimator reads no more of the values than their order. None if it proposes nothing new.
    """
    load()
    import optuna
    from optuna.trial import TrialState, create_trial

    distributions = {
        number: _distribution(dimension)
        for number, dimension in enumerate(space.dimensions)
        if dimension.continuous is not None or len(dimension.values) > 1
    }
    with warnings.catch_warnings():
        # Its options for parallel trials and joint densities are marked as experimental.
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            n_startup_trials=0,
            multivariate=True,
            # Jointly what all engines have, and what each has alone.
            group=bool(space.engines),
            constant_liar=True,
            seed=seed,
        )
    study = optuna.create_study(sampler=sampler)
    study.add_trials(
        [
            create_trial(
                state=TrialState.RUNNING if standing is None else TrialState.COMPLETE,
                value=standing,
                params={
                    str(number): place[number]
                    for number in distributions
                    if place[number] is not None
                },
                distributions={
                    str(number): distribution
                    for number, distribution in distributions.items()
                    if place[number] is not None
                },
            )
            for place, standing in history
        ]
    )
    for _ in range(_MAX_SUGGESTIONS):
        # One that is asked for and never told counts as running: the next lies elsewhere.
        place = _ask(study, space, distributions)
        if is_new(place):
            return place
    return None


def _ask(study: "Study", space: Space, distributions: Mapping[int, "BaseDistribution"]) -> Place:
    """Return a suggestion; of several engines the engine first, then what it has."""
    if not space.engines:
        by_name = {str(number): distribution for number, distribution in distributions.items()}
        suggestion = study.ask(by_name).params
        return tuple(
            _place_number(dimension, suggestion.get(str(number), 0))
            for number, dimension in enumerate(space.dimensions)
        )
    trial = study.ask()
    engine = 0
    if 0 in distributions:
        engine = int(trial.suggest_categorical("0", list(space.engines)))
    numbers = space.numbers_of(engine)
    at: dict[int, int | float] = {0: engine}
    for number in numbers[1:]:
        dimension = space.dimensions[number]
        value = 0 if number not in distributions else _suggest(trial, number, dimension)
        at[number] = _place_number(dimension, value)
    return tuple(at.get(number) for number in range(len(space.dimensions)))


def _suggest(trial: "Trial", number: int, dimension: Dimension) -> float:
    name = str(number)
    if (span := dimension.continuous) is not None:
        return trial.suggest_float(name, span.low, span.high, log=span.log)
    if dimension.is_ordered:
        return trial.suggest_int(name, 0, len(dimension.values) - 1)
    return int(trial.suggest_categorical(name, range(len(dimension.values))))


def _distribution(dimension: Dimension) -> "BaseDistribution":
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if (span := dimension.continuous) is not None:
        return FloatDistribution(span.low, span.high, log=span.log)
    if dimension.is_ordered:
        return IntDistribution(0, len(dimension.values) - 1)
    return CategoricalDistribution(range(len(dimension.values)))


def _place_number(dimension: Dimension, number: float) -> int | float:
    span = dimension.continuous
    return int(number) if span is None else readable(number, span)
