"""With several objectives, what none beats is repeated and told from chance in each of them."""

import math
import random
from collections.abc import Sequence
from uuid import UUID

import pytest
from msgspec.structs import replace

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import FrontMember, RunInfo, RunRole, TrustVerdict
from services.orchestrator.domain.search.front_trust import (
    MAX_FRONT_MEMBERS,
    front_members,
    front_verdict,
    missing_runs,
    unbeaten,
)
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.repeated_runs import configurations_of
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.verdicts.ranking import Scored
from shared.benchmarks.verdicts.trust import trust_lines

GOALS = (Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT)
Truth = tuple[float, float]  # seconds, tokens per second


def run(
    ordinal: int, truth: Truth, noise: float, *, excess: float = 0.0, **about: object
) -> RunRecord:
    drawn = random.Random(ordinal)
    latency, throughput = (value * (1 + drawn.gauss(0, noise)) for value in truth)
    scored = Scored(
        experiment_id=UUID(int=ordinal),
        ordinal=ordinal,
        score=latency,
        excess=excess,
        goals=(latency, -throughput),
    )
    parameters = {"n": about.pop("number", ordinal)}
    return RunRecord(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=parameters,
        scored=scored,
        run=RunInfo(**about),  # type: ignore[arg-type]  # its fields by name
    )


def checked(
    truths: Sequence[Truth], *, noise: float = 0.01, missing: frozenset[int] = frozenset()
) -> tuple[list[RunRecord], TrustVerdict]:
    """`missing`: configurations whose answers differ from the baseline's."""
    excess = dict.fromkeys(missing, 0.4)
    past = [
        run(number, truth, noise, excess=excess.get(number, 0.0))
        for number, truth in enumerate(truths, start=1)
    ]
    while checks := next_checks(GOALS[0], past, 1):
        [check] = checks
        past.append(
            run(
                len(past) + 1,
                truths[check.repeats - 1],
                noise,
                excess=excess.get(check.repeats, 0.0),
                number=check.repeats,
                role=check.role,
                repeats=check.repeats,
                seed=check.seed,
            )
        )
        assert len(past) < 100
    return past, verdict(GOALS[0], past, goals=GOALS)


def runs_of(past: Sequence[RunRecord], ordinal: int) -> int:
    return sum(e.run.repeats == ordinal and e.run.role is RunRole.REPEAT for e in past) + 1


def by_goal(member: FrontMember) -> dict[str, bool | None]:
    return {each.objective: each.is_within_noise for each in member.goals}


def test_only_front_members_are_repeated() -> None:
    truths = [(3.0, 100.0), (1.0, 100.0), (2.0, 300.0), (2.5, 200.0), (4.0, 90.0)]

    past, found = checked(truths)

    assert [each.ordinal for each in found.front] == [2, 3]
    assert all(runs_of(past, each.ordinal) == each.runs >= 2 for each in found.front)
    assert (runs_of(past, 4), runs_of(past, 5)) == (1, 1)
    assert found.winner == 2
    fast, large = found.front
    assert by_goal(fast) == {"minimize_latency": True, "maximize_throughput": False}
    assert by_goal(large) == {"minimize_latency": False, "maximize_throughput": True}
    assert fast.goals[1].behind_percent == pytest.approx(66.7, abs=2)
    assert (fast.ties, large.ties) == ((), ())


def test_members_within_noise_are_ties() -> None:
    truths = [(3.0, 100.0), (1.0, 300.0), (1.02, 300.0)]
    repeats = [(1, (3.1, 104.0)), (1, (2.9, 96.0)), (2, (1.06, 306.0)), (3, (1.06, 310.0))]
    past = [run(number, truth, 0.0) for number, truth in enumerate(truths, start=1)]
    past += [
        run(4 + at, truth, 0.0, number=first, role=RunRole.REPEAT, repeats=first)
        for at, (first, truth) in enumerate(repeats)
    ]

    found = verdict(GOALS[0], past, goals=GOALS)

    assert {each.ordinal: each.ties for each in found.front} == {2: (3,), 3: (2,)}
    assert any("cannot be told from" in line for line in trust_lines(found))


def test_other_answers_exclude_from_best_and_front() -> None:
    truths = [(3.0, 100.0), (0.5, 900.0), (2.0, 300.0)]

    past, found = checked(truths, missing=frozenset({2}))

    assert found.winner == 3
    assert [each.ordinal for each in found.front] == [3]
    assert runs_of(past, 2) == 1


def test_large_front_is_sampled_end_to_end() -> None:
    truths = [(float(n), 100.0 * n) for n in range(1, 21)]

    past, found = checked(truths, noise=0.001)

    ordinals = [each.ordinal for each in found.front]
    assert len(ordinals) == MAX_FRONT_MEMBERS
    assert {ordinals[0], ordinals[-1]} == {1, 20}
    assert all(each.runs >= 2 for each in found.front)
    assert sum(each.run.role is RunRole.REPEAT for each in past) <= 10 + MAX_FRONT_MEMBERS


def test_ties_by_the_first_goal_go_by_the_others() -> None:
    # Both are as fast; the baseline, which changes no flag, serves half as much.
    _, found = checked([(1.0, 100.0), (1.0, 200.0), (3.0, 50.0)], noise=0.005)

    assert found.winner == 2


def measured(ordinal: int, *goals: float, **about: object) -> RunRecord:
    """As `goals` are, each to be small."""
    past = run(ordinal, (1.0, 1.0), 0.0, **about)  # type: ignore[arg-type]  # its fields by name
    assert past.scored is not None
    return replace(past, scored=replace(past.scored, goals=goals))


def repeat_of(first: int, ordinal: int, *goals: float, **about: object) -> RunRecord:
    return measured(ordinal, *goals, number=first, role=RunRole.REPEAT, repeats=first, **about)


def test_disturbed_member_is_repeated_twice_more() -> None:
    """Those with the fewest runs first; what is disturbed every time is left as it is."""
    hot = ("throttled",)
    past = [measured(n, float(n), 10.0 - n) for n in range(1, 6)]
    past += [
        repeat_of(1, 11, 1.0, 9.0),
        *(repeat_of(2, n, 2.0, 8.0, contaminated=hot) for n in (12, 13, 14)),
        *(repeat_of(3, n, 3.0, 7.0, contaminated=hot) for n in (15, 16)),
        measured(6, 9.0, 9.0),
    ]

    missing = missing_runs(configurations_of(past))

    assert [each.ordinal for each in missing] == [3, 4, 5]


@pytest.mark.parametrize(
    "goals",
    [
        pytest.param([(), ()], id="of one objective"),
        pytest.param([(1.0, math.inf), (2.0, math.inf)], id="of what was not measured"),
    ],
)
def test_what_has_no_goals_is_no_front(goals: list[tuple[float, ...]]) -> None:
    past = [measured(number, *own) for number, own in enumerate(goals, start=1)]
    configurations = configurations_of(past)

    assert front_members(configurations) == []
    assert unbeaten(configurations, configurations) == []


def test_least_difference_counts_without_noise() -> None:
    """Two are the same; a third is as good as they are in one objective and worse in the other."""
    truths = {1: (1.0, 5.0), 2: (1.0, 5.0), 3: (1.0, 6.0)}
    past = [measured(number, *own) for number, own in truths.items()]
    past += [repeat_of(number, number + 3, *own) for number, own in truths.items()]
    configurations = configurations_of(past)

    twins = front_verdict(GOALS, configurations)

    assert [each.ordinal for each in unbeaten(configurations, configurations)] == [1, 2]
    assert {each.ordinal: each.ties for each in twins} == {1: (2,), 2: (1,)}
    assert all(by_goal(each) == dict.fromkeys(by_goal(each), True) for each in twins)


def test_noise_is_unknown_before_repeats() -> None:
    configurations = configurations_of([measured(1, 1.0, 9.0), measured(2, 2.0, 8.0)])

    fast, large = front_verdict(GOALS, configurations)

    assert (fast.ties, large.ties) == ((), ())
    assert {by_goal(each)["minimize_latency"] for each in (fast, large)} == {None}
    assert fast.goals[0].noise_floor_percent is None


def test_one_objective_has_no_front() -> None:
    past = [run(1, (1.0, 1.0), 0.0), run(2, (2.0, 2.0), 0.0)]

    assert verdict(GOALS[0], past).front == ()
    assert verdict(GOALS[0], past, goals=GOALS[:1]).front == ()
