"""Where engines crashed before, and so probably would again."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from schemas.executor.attempts import FailureKind
from services.orchestrator.domain.search.history import Trial
from services.orchestrator.domain.search.space import Dimension, Place, Space

LEARNED_AFTER: Final = 3
# What the configuration itself causes; the rest is of nodes, images and networks.
CRASHES: Final = (
    FailureKind.BAD_PARAMETER,
    FailureKind.BENCHMARK_FAILED,
    FailureKind.CUDA_ERROR,
    FailureKind.ENGINE_EXITED,
    FailureKind.GPU_OUT_OF_MEMORY,
    FailureKind.OUT_OF_MEMORY,
    FailureKind.RANK_FAILED,
    FailureKind.READINESS_TIMEOUT,
    FailureKind.TIMEOUT,
)
_STEPS: Final = 150
_LEARNING_RATE: Final = 1.0
_REGULARIZATION: Final = 0.02  # towards "this parameter does not matter"

Predict = Callable[[Place], bool]


def crash_predictor(space: Space, history: Sequence[Trial]) -> Predict:
    """Return a test whether a place would probably crash.

    It is a logistic regression for each kind of failure that came at least 3 times, on the places
    that failed so and those that were measured.
    """
    counts = Counter(trial.failure for trial in history if trial.place is not None)
    models = [_fit(space, history, kind) for kind in CRASHES if counts[kind] >= LEARNED_AFTER]
    return lambda place: any(model(place) for model in models)


def _fit(space: Space, history: Sequence[Trial], kind: FailureKind) -> Predict:
    samples = [
        (_features(space, trial.place), trial.failure is kind)
        for trial in history
        if trial.place is not None
        and (trial.failure is kind or (trial.failure is None and trial.standing is not None))
    ]
    crashed = sum(has_crashed for _, has_crashed in samples)
    if crashed == len(samples):
        return lambda _: False  # nothing was measured yet to distinguish the places by
    # Both sides weigh the same, or few crashes among many measured would be taken for chance.
    share = {True: 0.5 / crashed, False: 0.5 / (len(samples) - crashed)}
    weights = [0.0] * len(samples[0][0])
    for _ in range(_STEPS):
        gradient = [_REGULARIZATION * weight for weight in weights]
        gradient[0] = 0.0
        for features, has_crashed in samples:
            error = (_probability(weights, features) - has_crashed) * share[has_crashed]
            for number, feature in enumerate(features):
                gradient[number] += error * feature
        weights = [w - _LEARNING_RATE * slope for w, slope in zip(weights, gradient, strict=True)]
    return lambda place: _probability(weights, _features(space, place)) > 0.5


def _probability(weights: Sequence[float], features: Sequence[float]) -> float:
    total = sum(weight * feature for weight, feature in zip(weights, features, strict=True))
    return 1 / (1 + math.exp(-max(-30.0, min(30.0, total))))


def _features(space: Space, place: Place) -> list[float]:
    """1, then a number from -1 to 1 for what is ordered, and one for each value of what is not.

    What has one value only distinguishes no places; what another engine has is 0.
    """
    features = [1.0]
    for dimension, at in zip(space.dimensions, place, strict=True):
        features += _of_dimension(dimension, at)
    return features


def _of_dimension(dimension: Dimension, at: float | None) -> list[float]:
    if at is None:
        return [0.0] * len(_of_dimension(dimension, _ends(dimension)[0]))
    if not dimension.is_ordered:
        return [float(at == number) for number in range(len(dimension.values))]
    low, high = _ends(dimension)
    if (span := dimension.continuous) is not None and span.log:
        low, high, at = math.log(low), math.log(high), math.log(at)
    return [2 * (at - low) / (high - low) - 1] if high > low else []


def _ends(dimension: Dimension) -> tuple[float, float]:
    span = dimension.continuous
    return (0.0, len(dimension.values) - 1.0) if span is None else (span.low, span.high)
