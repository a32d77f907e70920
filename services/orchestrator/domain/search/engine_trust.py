"""Engines of one task against each other: the best configuration of each."""

import math
from collections.abc import Sequence
from typing import Final

from schemas.task.objectives import Objective
from schemas.task.trust import EngineStanding
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    Noise,
    behind,
    is_better,
)
from shared.engines.variants import SINGLE, Variant, variant_of

RUNS: Final = 2  # of each engine's best, so that none is ahead by one lucky run


def best_of_engines(compared: Sequence[Configuration]) -> dict[Variant, Configuration]:
    """Return the best configuration of each engine, of the `compared` in their order; nothing where
    there are not several.
    """
    best: dict[Variant, Configuration] = {}
    for configuration in compared:
        best.setdefault(variant_of(configuration.first.parameters), configuration)
    return best if len(best) > 1 and SINGLE not in best else {}


def lacking_runs(compared: Sequence[Configuration]) -> list[Configuration]:
    """Return the best of engines that were measured less than twice without a disturbance."""
    return [
        configuration
        for configuration in best_of_engines(compared).values()
        if len(configuration.clean) < RUNS and configuration.made < RUNS + 2
    ]


def engine_standings(
    objective: Objective,
    winner: Configuration,
    compared: Sequence[Configuration],
    noise: Noise | None,
) -> tuple[EngineStanding, ...]:
    """Return how each engine stands behind the winner, whose own is the first."""
    best = best_of_engines(compared)
    if not best:
        return ()
    winning_engine = variant_of(winner.first.parameters)
    rivals = [configuration for variant, configuration in best.items() if variant != winning_engine]
    return tuple(
        _standing(objective, winner, configuration, noise) for configuration in (winner, *rivals)
    )


def _standing(
    objective: Objective, winner: Configuration, other: Configuration, noise: Noise | None
) -> EngineStanding:
    base_runtime, model, tag = variant_of(other.first.parameters)
    margin = None if noise is None or other is winner else noise.margin(winner, other)
    return EngineStanding(
        base_runtime=base_runtime or "",
        runtime_image_tag=tag,
        model=model,
        ordinal=other.ordinal,
        runs=len(other.scores),
        mean_score=other.mean,
        behind_percent=100 * behind(objective, winner, other),
        noise_percent=None if margin is None or math.isinf(margin) else 100 * margin,
        is_decided=noise is not None
        and other is not winner
        and is_better(objective, winner, other, noise),
    )
