"""Runs of equal configurations: which count, and by how much chance alone may part them."""

import math
from typing import Any
from uuid import UUID

import pytest

from schemas.orchestrator.experiments import ExperimentState
from schemas.task.objectives import Objective
from schemas.task.trust import RunInfo, RunRole
from services.orchestrator.domain.search.history import RunRecord
from services.orchestrator.domain.search.repeated_runs import (
    Configuration,
    Noise,
    behind,
    configurations_of,
    noise_of,
)
from shared.benchmarks.verdicts.ranking import Scored

LATENCY, THROUGHPUT = Objective.MINIMIZE_LATENCY, Objective.MAXIMIZE_THROUGHPUT
SUCCEEDED, FAILED = ExperimentState.SUCCEEDED, ExperimentState.FAILED


def run(ordinal: int, score: float | None = None, **about: Any) -> RunRecord:
    """`state` is SUCCEEDED where nothing else is said."""
    state = about.pop("state", SUCCEEDED)
    scored = Scored(experiment_id=UUID(int=ordinal), ordinal=ordinal, score=score)
    return RunRecord(
        ordinal=ordinal,
        state=state,
        parameters={},
        scored=scored if state is SUCCEEDED else None,
        run=RunInfo(**about),
    )


def repeated(*scores: float) -> Configuration:
    runs = [run(1, scores[0])]
    runs += [run(n, s, role=RunRole.REPEAT, repeats=1) for n, s in enumerate(scores[1:], start=2)]
    (found,) = configurations_of(runs)
    return found


@pytest.mark.parametrize(
    ("second", "scores", "made", "is_reliable"),
    [
        pytest.param(run(2, 3.0, role=RunRole.REPEAT, repeats=1), [1.0, 3.0], 2, True, id="counts"),
        pytest.param(run(2, 3.0, role=RunRole.REPLAY, repeats=1), [1.0], 1, True, id="a replay"),
        pytest.param(
            run(2, 3.0, role=RunRole.REPEAT, repeats=1, contaminated=("hot",)),
            [1.0],
            2,
            True,
            id="disturbed",
        ),
        pytest.param(
            run(2, role=RunRole.REPEAT, repeats=1), [1.0], 2, True, id="measured nothing of it"
        ),
        pytest.param(
            run(2, role=RunRole.REPEAT, repeats=1, state=FAILED), [1.0], 2, False, id="failed"
        ),
        pytest.param(
            run(2, role=RunRole.REPEAT, repeats=1, state=ExperimentState.RUNNING),
            [1.0],
            1,
            True,
            id="not over",
        ),
    ],
)
def test_only_clean_runs_count(
    second: RunRecord, scores: list[float], made: int, is_reliable: bool
) -> None:
    (found,) = configurations_of([run(1, 1.0), second])

    assert (found.ordinal, found.scores) == (1, scores)
    assert (found.made, found.is_reliable) == (made, is_reliable)


def test_squares_are_of_shares_of_the_mean() -> None:
    assert repeated(90, 110).mean == 100
    assert repeated(90, 110).squares == pytest.approx(0.02)
    assert repeated(0, 0).squares == 0


def test_noise_is_that_of_all_that_were_repeated() -> None:
    noise = noise_of([repeated(90, 110), repeated(7), repeated(95, 105, 100)])

    assert noise is not None
    assert noise.freedom == 3
    assert noise.variance == pytest.approx((0.02 + 0.005) / 3)
    assert noise_of([repeated(7), repeated(8)]) is None


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 6.31), (2, 2.92), (13, 1.77), (14, 1.76), (15, 1.70), (99, 1.70)]
)
def test_fewer_repeats_leave_more_to_chance(freedom: int, t: float) -> None:
    assert Noise(variance=0.1, freedom=freedom).t == t


def test_error_of_a_mean_falls_with_its_runs() -> None:
    """Of a variance of 2 %: that of equal runs counts as (0 + 4 * 0.02) / (1 + 4)."""
    noise = Noise(variance=0.02, freedom=2)
    spread, equal, once = repeated(90, 110), repeated(100, 100), repeated(100)

    assert noise.error(spread, once) == pytest.approx(2.92 * math.sqrt(0.02 / 2 + 0.02))
    assert noise.error(spread, equal) == pytest.approx(2.92 * math.sqrt(0.02 / 2 + 0.016 / 2))
    assert noise.floor() == pytest.approx(2.92 * math.sqrt(0.04))


def test_gap_is_a_share_of_the_leader() -> None:
    leader, other = repeated(50), repeated(60)

    assert behind(LATENCY, leader, other) == pytest.approx(0.2)
    assert behind(THROUGHPUT, leader, other) == pytest.approx(-0.2)
    assert behind(LATENCY, repeated(0), other) == 0
