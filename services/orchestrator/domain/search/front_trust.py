"""Whether those that none beats in several objectives differ by more than chance."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from schemas.task.task_file import Objective
from schemas.task.trust import FrontMember, GoalStanding
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    behind,
    noise_of,
)
from shared.benchmarks.verdicts.pareto import front

MEMBER_RUNS: Final = 2
MOST_MEMBERS: Final = 6  # of a larger front, spread evenly by the first objective


def front_members(compared: Iterable[Configuration]) -> list[Configuration]:
    """By the means of their runs, the best by the first objective first; none of one objective."""
    measured = [each for each in compared if _has_goals(each)]
    found = [measured[number] for number in front([_means(each) for each in measured])]
    if len(found) <= MOST_MEMBERS:
        return found
    last = len(found) - 1
    return [found[round(at * last / (MOST_MEMBERS - 1))] for at in range(MOST_MEMBERS)]


def missing_runs(compared: Iterable[Configuration]) -> list[Configuration]:
    """Members that are still to be repeated, those with the fewest runs first."""
    few = [
        each
        for each in front_members(compared)
        if len(each.clean) < MEMBER_RUNS and each.made < MEMBER_RUNS + 2
    ]
    return sorted(few, key=lambda each: (len(each.clean), each.ordinal))


def unbeaten(
    candidates: Iterable[Configuration], compared: Iterable[Configuration]
) -> list[Configuration]:
    """Those before which no other is by more than chance in one objective, but where they are
    before that one in another; none of one objective.
    """
    of_goals = [each for each in candidates if _has_goals(each)]
    repeated = [each for each in compared if _has_goals(each)]
    count = len(_means(of_goals[0])) if of_goals else 0
    noises = [noise_of([_by_goal(each, number) for each in repeated]) for number in range(count)]

    def is_before(one: Configuration, other: Configuration) -> bool:
        return any(
            noise is not None
            and _means(other)[number] - _means(one)[number]
            > abs(_means(one)[number])
            * noise.margin(_by_goal(one, number), _by_goal(other, number))
            for number, noise in enumerate(noises)
        )

    return [
        each
        for each in of_goals
        if not any(is_before(other, each) and not is_before(each, other) for other in of_goals)
    ]


def front_verdict(
    goals: Sequence[Objective], compared: Sequence[Configuration]
) -> tuple[FrontMember, ...]:
    members = front_members(compared)
    standings: list[list[GoalStanding]] = [[] for _ in members]
    equal = [[True] * len(members) for _ in members]
    for number, goal in enumerate(goals if members else ()):
        own = [_by_goal(each, number) for each in members]
        noise = noise_of([_by_goal(each, number) for each in compared if _has_goals(each)])
        best = min(own, key=lambda each: _means(each)[number])
        for at, each in enumerate(own):
            gap = behind(goal, best, each)
            standings[at].append(
                GoalStanding(
                    objective=goal.value,
                    mean=each.mean,
                    behind_percent=100 * gap,
                    noise_floor_percent=100 * noise.floor() if noise is not None else None,
                    is_within_noise=None if noise is None else gap <= noise.margin(best, each),
                )
            )
            for other, rival in enumerate(own):
                equal[at][other] &= noise is not None and abs(
                    behind(goal, each, rival)
                ) <= noise.margin(each, rival)
    return tuple(
        FrontMember(
            ordinal=each.ordinal,
            runs=len(each.counted),
            goals=tuple(standings[at]),
            ties=tuple(
                other.ordinal
                for number, other in enumerate(members)
                if number != at and equal[at][number]
            ),
        )
        for at, each in enumerate(members)
    )


def _has_goals(configuration: Configuration) -> bool:
    return all(run.goals and all(map(math.isfinite, run.goals)) for run in configuration.counted)


def _means(configuration: Configuration) -> tuple[float, ...]:
    goals = [run.goals for run in configuration.counted]
    return tuple(math.fsum(own) / len(own) for own in zip(*goals, strict=True))


def _by_goal(configuration: Configuration, number: int) -> Configuration:
    """The same runs with what they are by that objective for their score."""
    runs = (replace(run, score=abs(run.goals[number])) for run in configuration.counted)
    return replace(configuration, counted=tuple(runs))
