"""With several objectives, what none beats is repeated and told from chance in each of them."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from schemas.orchestrator import ExperimentState
from schemas.task import Objective
from schemas.trust import FrontMember, RunInfo, RunRole, TrustVerdict
from services.orchestrator.domain.search.front_trust import MOST_MEMBERS
from services.orchestrator.domain.search.history import Past
from services.orchestrator.domain.search.trust import next_checks, verdict
from shared.benchmarks.ranking import Scored
from shared.benchmarks.trust import trust_lines

GOALS = (Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT)
Truth = tuple[float, float]  # seconds, tokens per second


def run(ordinal: int, truth: Truth, noise: float, *, excess: float = 0.0, **about: object) -> Past:
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
    return Past(
        ordinal=ordinal,
        state=ExperimentState.SUCCEEDED,
        parameters=parameters,
        scored=scored,
        run=RunInfo(**about),  # type: ignore[arg-type]  # its fields by name
    )


def checked(
    truths: Sequence[Truth], *, noise: float = 0.01, missing: frozenset[int] = frozenset()
) -> tuple[list[Past], TrustVerdict]:
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


def runs_of(past: Sequence[Past], ordinal: int) -> int:
    return sum(e.run.repeats == ordinal and e.run.role is RunRole.REPEAT for e in past) + 1


def by_goal(member: FrontMember) -> dict[str, bool | None]:
    return {each.objective: each.is_within_noise for each in member.goals}


def test_what_none_beats_in_all_objectives_is_repeated_and_the_rest_is_not() -> None:
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


def test_members_that_chance_may_part_in_every_objective_are_said_to_be_equal() -> None:
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


def test_a_configuration_with_other_answers_is_neither_best_nor_of_the_front() -> None:
    truths = [(3.0, 100.0), (0.5, 900.0), (2.0, 300.0)]

    past, found = checked(truths, missing=frozenset({2}))

    assert found.winner == 3
    assert [each.ordinal for each in found.front] == [3]
    assert runs_of(past, 2) == 1


def test_of_a_large_front_members_from_end_to_end_are_repeated() -> None:
    truths = [(float(n), 100.0 * n) for n in range(1, 21)]

    past, found = checked(truths, noise=0.001)

    ordinals = [each.ordinal for each in found.front]
    assert len(ordinals) == MOST_MEMBERS
    assert {ordinals[0], ordinals[-1]} == {1, 20}
    assert all(each.runs >= 2 for each in found.front)
    assert sum(each.run.role is RunRole.REPEAT for each in past) <= 10 + MOST_MEMBERS


def test_of_those_equal_by_the_first_objective_one_that_none_beats_wins() -> None:
    # Both are as fast; the baseline, which changes no flag, serves half as much.
    _, found = checked([(1.0, 100.0), (1.0, 200.0), (3.0, 50.0)], noise=0.005)

    assert found.winner == 2


def test_one_objective_has_no_front() -> None:
    past = [run(1, (1.0, 1.0), 0.0), run(2, (2.0, 2.0), 0.0)]

    assert verdict(GOALS[0], past).front == ()
