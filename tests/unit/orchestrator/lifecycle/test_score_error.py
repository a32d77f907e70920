"""How far a run's score may be off by what measuring it added."""

from typing import Any

import pytest
from msgspec.structs import replace

from schemas.task.benchmark import (
    BenchmarkResult,
    BenchmarkTool,
    LevelMark,
    LevelResult,
)
from schemas.task.slo import SloVerdict
from schemas.task.trust import ScoreError
from services.orchestrator.domain.lifecycle.score_error import (
    add_errors,
    score_error,
    without_client_failure,
)
from shared.benchmarks.experiment_metrics import aggregate
from shared.benchmarks.verdicts.slo import slo_verdict
from tests.support.worlds.benchmark_levels import make_level
from tests.support.worlds.orchestrator_records import make_file

LATE = {"client_lag_mean_seconds": 0.05, "client_lag_p99_seconds": 0.1}
LIMITED = (LevelMark.CLIENT_LIMITED,)


def benchmark(*levels: LevelResult) -> BenchmarkResult:
    return BenchmarkResult(
        tool=BenchmarkTool.BUILTIN,
        tool_version="1",
        simulated=True,
        levels=levels,
        metrics=aggregate(levels),
        elapsed_seconds=1.0,
    )


def error_of(level: LevelResult, **optimization: Any) -> ScoreError | None:
    return score_error(make_file(optimization=optimization), benchmark(level))


@pytest.mark.parametrize(
    ("objective", "better_share"),
    [
        pytest.param("minimize_latency", 0.1, id="0.1 s of 1 s"),
        pytest.param("minimize_ttft", 0.5, id="0.1 s of 0.2 s"),
        pytest.param("minimize_tpot", 0.125, id="0.01 s of 0.08 s"),
        pytest.param("maximize_throughput", 1 / 9, id="0.9 s for what took 1 s"),
        pytest.param("maximize_tokens_per_joule", 1 / 9, id="as the throughput"),
        pytest.param("minimize_cost", 0.1, id="as the time"),
    ],
)
def test_the_clients_lag_may_have_cost_its_share(objective: str, better_share: float) -> None:
    error = error_of(make_level(**LATE), objective=objective)

    assert error is not None
    assert error.better_share == pytest.approx(better_share)
    assert error.worse_share == 0.0
    assert error.because == ("the load generator's own time",)


@pytest.mark.parametrize("objective", ["maximize_goodput", "maximize_load"])
def test_client_limit_leaves_request_scores_open(objective: str) -> None:
    limited = error_of(make_level(**LATE, marks=LIMITED), objective=objective)

    assert limited is not None
    assert (limited.better_share, limited.worse_share) == (None, None)
    assert error_of(make_level(**LATE), objective=objective) is None


def test_widest_error_of_objectives_counts() -> None:
    error = error_of(make_level(**LATE), objectives=["minimize_latency", "minimize_ttft"])

    assert error is not None
    assert error.better_share == pytest.approx(0.5)


def test_cached_prompts_may_hide_a_worse_score() -> None:
    error = error_of(make_level(marks=(LevelMark.CACHE_HITS,)))

    assert error == ScoreError(
        worse_share=None,
        because=("D(10,11) at concurrency 2: prompts were found in the prefix cache",),
        may_meet=True,
    )


def test_a_client_in_time_leaves_no_error() -> None:
    assert error_of(make_level()) is None
    assert score_error(make_file(), benchmark(make_level(num_completed_requests=0))) is None


@pytest.mark.parametrize(
    ("constraint", "may_meet"),
    [("ttft:mean<150ms", True), ("ttft:mean<50ms", False)],
)
def test_client_alone_may_miss_a_constraint(constraint: str, may_meet: bool) -> None:
    error = error_of(make_level(**LATE), constraints=constraint)

    assert error is not None
    assert error.may_meet is may_meet


@pytest.mark.parametrize(("threshold", "fails"), [(0.1, False), (0.05, True)])
def test_hard_failure_by_the_client_is_none(threshold: float, fails: bool) -> None:
    hard = {"ttft": {"threshold": threshold, "hard_fail": True, "fail_ratio": 0.5}}
    slo = make_file(slo=hard).slo
    assert slo is not None
    levels = [make_level(**LATE)]

    found = without_client_failure(slo, levels, slo_verdict(slo, levels))

    assert bool(found.failed_because) is fails
    assert without_client_failure(slo, levels, SloVerdict()) == SloVerdict()


def test_errors_of_two_causes_add_up() -> None:
    client = ScoreError(better_share=0.1, because=("client",))
    hot = ScoreError(better_share=None, because=("hot",), may_meet=True)

    assert add_errors(client, hot) == ScoreError(
        better_share=None, because=("client", "hot"), may_meet=True
    )
    assert add_errors(client, client) == replace(
        client, better_share=0.2, because=("client", "client")
    )
    assert add_errors(None, client) is client
    assert add_errors(client, None) is client
