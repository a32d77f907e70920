from uuid import UUID

import pytest

from schemas.benchmark import BenchmarkMetrics
from schemas.task import Objective
from services.orchestrator.domain.scoring import Scored, best, score

METRICS = BenchmarkMetrics(
    mean_e2e_latency=1.0, max_total_throughput=2.0, mean_ttft=3.0, mean_tpot=4.0
)


@pytest.mark.parametrize(
    ("objective", "want"),
    [
        (Objective.MINIMIZE_LATENCY, 1.0),
        (Objective.MAXIMIZE_THROUGHPUT, 2.0),
        (Objective.MINIMIZE_TTFT, 3.0),
        (Objective.MINIMIZE_TPOT, 4.0),
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
        pytest.param(Objective.MINIMIZE_LATENCY, [3.0, 1.0, 2.0], 2, id="the smallest"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [3.0, 1.0, 2.0], 1, id="the largest"),
        pytest.param(Objective.MINIMIZE_TTFT, [2.0, 1.0, 1.0], 2, id="the first of equals"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [1.0, 1.0], 1, id="the first of equals, too"),
        pytest.param(Objective.MINIMIZE_TPOT, [None, 9.0], 2, id="unknown is never best"),
        pytest.param(Objective.MAXIMIZE_THROUGHPUT, [None, 0.0], 2, id="not even against 0"),
        pytest.param(Objective.MINIMIZE_TPOT, [None], None, id="nothing scored"),
    ],
)
def test_the_best_experiment(
    objective: Objective, scores: list[float | None], want: int | None
) -> None:
    experiments = [
        Scored(experiment_id=UUID(int=100 - n), ordinal=n, score=value)
        for n, value in enumerate(scores, start=1)
    ]

    found = best(objective, reversed(experiments))

    assert found == (None if want is None else UUID(int=100 - want))
