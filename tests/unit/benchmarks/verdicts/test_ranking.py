from uuid import UUID

import pytest

from schemas.task.benchmark import BenchmarkMetrics, FailedLevel
from schemas.task.objectives import Objective
from shared.benchmarks.verdicts.ranking import Scored, rank, score

LIGHT, HEAVY, HUGE = 1, 8, 64  # requests at once

METRICS = BenchmarkMetrics(
    mean_e2e_latency=1.0,
    max_total_throughput=20.0,
    max_total_throughput_per_gpu=2.0,
    mean_ttft=3.0,
    mean_tpot=4.0,
    max_goodput_per_gpu=5.0,
    tokens_per_joule=6.0,
    cost_per_million_tokens=7.0,
)


def test_throughput_without_gpu_count_is_total() -> None:
    assert score(Objective.MAXIMIZE_THROUGHPUT, BenchmarkMetrics(max_total_throughput=7.0)) == 7.0


def make_scored(ordinal: int, value: float | None, *failed: int) -> Scored:
    return Scored(
        experiment_id=UUID(int=100 - ordinal),
        ordinal=ordinal,
        score=value,
        failed_levels=tuple(
            FailedLevel(
                scenario="D(100,100)",
                num_concurrency=at_once,
                num_requests=100 + ordinal,
                num_completed_requests=ordinal,
            )
            for at_once in failed
        ),
    )


def ordinals(experiments: tuple[Scored, ...]) -> list[int]:
    return [each.ordinal for each in experiments]


@pytest.mark.parametrize(
    ("objective", "want"),
    [
        (Objective.MINIMIZE_LATENCY, 1.0),
        (Objective.MAXIMIZE_THROUGHPUT, 2.0),
        (Objective.MINIMIZE_TTFT, 3.0),
        (Objective.MINIMIZE_TPOT, 4.0),
        (Objective.MAXIMIZE_GOODPUT, 5.0),
        (Objective.MAXIMIZE_TOKENS_PER_JOULE, 6.0),
        (Objective.MINIMIZE_COST, 7.0),
    ],
)
def test_each_objective_has_its_measure(objective: Objective, want: float) -> None:
    assert score(objective, METRICS) == want
    assert score(objective, BenchmarkMetrics()) is None


def test_a_measure_that_is_no_number_is_no_score() -> None:
    assert score(Objective.MINIMIZE_TTFT, BenchmarkMetrics(mean_ttft=float("nan"))) is None


@pytest.mark.parametrize(
    ("objective", "scores", "want"),
    [
        pytest.param(Objective.MINIMIZE_LATENCY, [3.0, 1.0, 2.0], [2, 3, 1], id="the smallest"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [3.0, 1.0, 2.0], [1, 3, 2], id="the largest"),
        pytest.param(Objective.MINIMIZE_TTFT, [2.0, 1.0, 1.0], [2, 3, 1], id="the first of equals"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [1.0, 1.0], [1, 2], id="of equals, too"),
        pytest.param(Objective.MINIMIZE_TPOT, [None, 9.0], [2], id="unknown is never best"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [None, 0.0], [2], id="not even against 0"),
        pytest.param(Objective.MINIMIZE_TPOT, [None], [], id="nothing scored"),
    ],
)
def test_experiments_rank_by_their_scores(
    objective: Objective, scores: list[float | None], want: list[int]
) -> None:
    experiments = [make_scored(n, value) for n, value in enumerate(scores, start=1)]

    ranking = rank(objective, reversed(experiments))

    assert ordinals(ranking.ranked) == want
    assert ordinals(ranking.unranked) == [n for n, value in enumerate(scores, 1) if value is None]


@pytest.mark.parametrize(
    ("experiments", "ranked", "unranked"),
    [
        pytest.param(
            [make_scored(1, 0.5, HEAVY), make_scored(2, 9.0)], [2], [1], id="however good the rest"
        ),
        pytest.param(
            [make_scored(1, 2.0, HUGE), make_scored(2, 1.0, HUGE)], [2, 1], [], id="none served it"
        ),
        pytest.param(
            [
                make_scored(1, 1.0, HEAVY, HUGE),
                make_scored(2, 3.0, HUGE),
                make_scored(3, 2.0, LIGHT, HEAVY, HUGE),
            ],
            [2],
            [1, 3],
            id="the fewest failed levels",
        ),
        pytest.param(
            [make_scored(1, 1.0, LIGHT), make_scored(2, 2.0, HEAVY)],
            [],
            [1, 2],
            id="each served what the other did not",
        ),
        pytest.param(
            [make_scored(1, 1.0, HEAVY), make_scored(2, None)],
            [],
            [2, 1],
            id="unscored, but served",
        ),
    ],
)
def test_failed_load_never_beats_served_one(
    experiments: list[Scored], ranked: list[int], unranked: list[int]
) -> None:
    ranking = rank(Objective.MINIMIZE_LATENCY, experiments)

    assert (ordinals(ranking.ranked), ordinals(ranking.unranked)) == (ranked, unranked)
