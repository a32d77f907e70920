"""Whether those that none beats in several objectives differ by more than chance."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from schemas.task.objectives import Objective
from schemas.task.trust import FrontMember, GoalStanding
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    behind,
    noise_of,
)
from shared.benchmarks.verdicts.pareto import front

MEMBER_RUNS: Final = 2
MAX_FRONT_MEMBERS: Final = 6  # of a larger front, spread evenly by the first objective


def front_members(compared: Iterable[Configuration]) -> list[Configuration]:
    """Return the Pareto front by the means of runs, the best by the first objective first.

    A task of one objective has none.
    """
    measured = [configuration for configuration in compared if _has_goals(configuration)]
    members = [
        measured[number] for number in front([_means(configuration) for configuration in measured])
    ]
    if len(members) <= MAX_FRONT_MEMBERS:
        return members
    last = len(members) - 1
    return [members[round(at * last / (MAX_FRONT_MEMBERS - 1))] for at in range(MAX_FRONT_MEMBERS)]


def missing_runs(compared: Iterable[Configuration]) -> list[Configuration]:
    """Members that are still to be repeated, those with the fewest runs first."""
    few = [
        configuration
        for configuration in front_members(compared)
        if len(configuration.clean) < MEMBER_RUNS and configuration.made < MEMBER_RUNS + 2
    ]
    return sorted(few, key=lambda configuration: (len(configuration.clean), configuration.ordinal))


def unbeaten(
    candidates: Iterable[Configuration], compared: Iterable[Configuration]
) -> list[Configuration]:
    """Return the candidates that no other dominates by more than chance.

    A task of one objective has none.
    """
    of_goals = [candidate for candidate in candidates if _has_goals(candidate)]
    repeated = [configuration for configuration in compared if _has_goals(configuration)]
    count = len(_means(of_goals[0])) if of_goals else 0
    noises = [
        noise_of([_by_goal(configuration, number) for configuration in repeated])
        for number in range(count)
    ]

    def is_before(first: Configuration, other: Configuration) -> bool:
        return any(
            noise is not None
            and _means(other)[number] - _means(first)[number]
            > abs(_means(first)[number])
            * noise.margin(_by_goal(first, number), _by_goal(other, number))
            for number, noise in enumerate(noises)
        )

    return [
        configuration
        for configuration in of_goals
        if not any(
            is_before(other, configuration) and not is_before(configuration, other)
            for other in of_goals
        )
    ]


def front_verdict(
    goals: Sequence[Objective], compared: Sequence[Configuration]
) -> tuple[FrontMember, ...]:
    members = front_members(compared)
    standings: list[list[GoalStanding]] = [[] for _ in members]
    equal = [[True] * len(members) for _ in members]
    for number, goal in enumerate(goals if members else ()):
        configurations = [_by_goal(member, number) for member in members]
        noise = noise_of(
            [
                _by_goal(configuration, number)
                for configuration in compared
                if _has_goals(configuration)
            ]
        )
        best = min(configurations, key=lambda configuration: _means(configuration)[number])
        for at, configuration in enumerate(configurations):
            gap = behind(goal, best, configuration)
            standings[at].append(
                GoalStanding(
                    objective=goal.value,
                    mean=configuration.mean,
                    behind_percent=100 * gap,
                    noise_floor_percent=100 * noise.floor() if noise is not None else None,
                    is_within_noise=None
                    if noise is None
                    else gap <= noise.margin(best, configuration),
                )
            )
            for other, rival in enumerate(configurations):
                equal[at][other] &= noise is not None and abs(
                    behind(goal, configuration, rival)
                ) <= noise.margin(configuration, rival)
    return tuple(
        FrontMember(
            ordinal=configuration.ordinal,
            runs=len(configuration.counted),
            goals=tuple(standings[at]),
            ties=tuple(
                other.ordinal
                for number, other in enumerate(members)
                if number != at and equal[at][number]
            ),
        )
        for at, configuration in enumerate(members)
    )


def _has_goals(configuration: Configuration) -> bool:
    return all(run.goals and all(map(math.isfinite, run.goals)) for run in configuration.counted)


def _means(configuration: Configuration) -> tuple[float, ...]:
    goals = [run.goals for run in configuration.counted]
    return tuple(math.fsum(values) / len(values) for values in zip(*goals, strict=True))


def _by_goal(configuration: Configuration, number: int) -> Configuration:
    """The same runs with what they are by that objective for their score."""
    runs = (replace(run, score=abs(run.goals[number])) for run in configuration.counted)
    return replace(configuration, counted=tuple(runs))
