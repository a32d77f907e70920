import json
import math
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from schemas.task.benchmark import BenchmarkMetrics, FailedLevel, LevelResult, LevelStats
from shared.benchmarks.experiment_metrics import aggregate, with_gpus
from shared.benchmarks.metrics import (
    MAX_CODES,
    FailedRequest,
    RequestSample,
    distribution,
    few_codes,
    level_result,
    pool_levels,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def make_sample(
    *, num_output_tokens: int = 21, tokens_estimated: bool = False, e2e_latency: float = 2.5
) -> RequestSample:
    return RequestSample(
        ttft=0.5,
        e2e_latency=e2e_latency,
        num_input_tokens=100,
        num_output_tokens=num_output_tokens,
        tokens_estimated=tokens_estimated,
    )


def make_level(
    *samples: RequestSample, seconds: float = 4.0, num_concurrency: int = 2, **errors: int
) -> LevelResult:
    return level_result(
        scenario="D(100,21)",
        num_concurrency=num_concurrency,
        started_at=NOW,
        run_duration=seconds,
        samples=samples,
        error_codes=errors,
    )


def test_a_request_is_measured_as_genai_bench_does() -> None:
    sample = make_sample()

    assert sample.output_latency == 2.0
    assert sample.tpot == pytest.approx(0.1)
    assert sample.output_inference_speed == pytest.approx(10)
    assert sample.total_tokens == 121
    assert sample.input_throughput == pytest.approx(200)
    assert sample.output_throughput == pytest.approx(10)


def test_one_token_has_no_time_per_token() -> None:
    level = make_level(make_sample(num_output_tokens=1))

    assert level.stats.tpot is None
    assert level.stats.output_throughput is None
    assert level.stats.ttft is not None


def test_percentiles_are_interpolated() -> None:
    spread = distribution([4.0, 1.0, 3.0, 2.0])

    assert spread is not None
    assert (spread.min, spread.p25, spread.p50, spread.p75, spread.max) == (1.0, 1.75, 2.5, 3.25, 4)
    assert (spread.p90, spread.p95, spread.p99) == pytest.approx((3.7, 3.85, 3.97))
    assert (spread.mean, spread.sum) == (2.5, 10.0)
    assert spread.stddev == pytest.approx(math.sqrt(1.25))


def test_one_value_is_every_percentile() -> None:
    spread = distribution([3.0])

    assert spread is not None
    assert {spread.min, spread.p25, spread.p50, spread.p99, spread.max, spread.mean} == {3.0}
    assert spread.stddev == 0.0


def test_no_value_has_no_spread() -> None:
    assert distribution([]) is None


def test_rates_of_a_level_are_over_its_window() -> None:
    level = make_level(make_sample(), make_sample(), seconds=4.0)

    assert level.requests_per_second == 0.5
    assert level.mean_output_throughput_tokens_per_s == 10.5
    assert level.mean_input_throughput_tokens_per_s == 50
    assert level.mean_total_tokens_throughput_tokens_per_s == 60.5
    assert level.finished_at - level.started_at == timedelta(seconds=4)


def test_a_level_that_took_no_time_has_no_rate() -> None:
    level = make_level(seconds=0.0)

    assert (level.requests_per_second, level.mean_total_tokens_throughput_tokens_per_s) == (0, 0)


def test_the_error_rate_is_errors_over_all_requests() -> None:
    level = make_level(make_sample(), **{"503": 2, "timeout": 1})

    assert level.num_requests == 4
    assert (level.num_completed_requests, level.num_error_requests) == (1, 3)
    assert level.error_rate == 0.75
    assert level.error_codes_frequency == {"503": 2, "timeout": 1}


def test_an_estimate_marks_its_level() -> None:
    level = make_level(make_sample(), make_sample(tokens_estimated=True))

    assert level.tokens_estimated
    assert not make_level(make_sample()).tokens_estimated


def test_level_without_success_has_no_stats() -> None:
    level = make_level(connect=5)

    assert level.stats == LevelStats()
    assert level.error_rate == 1.0
    assert level.mean_output_throughput_tokens_per_s == 0.0


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(make_level(connect=1), id="nothing completed"),
        pytest.param(make_level(make_sample(e2e_latency=1.0), connect=1), id="half of it failed"),
        pytest.param(make_level(), id="no request ended"),
    ],
)
def test_failed_level_is_named_and_has_no_latency(bad: LevelResult) -> None:
    good = make_level(make_sample())

    metrics = aggregate([good, bad])

    assert metrics.mean_e2e_latency == 2.5
    assert good.mean_output_throughput_tokens_per_s is not None
    assert metrics.mean_output_throughput == good.mean_output_throughput_tokens_per_s / 2
    assert metrics.total_completed_requests == 1 + bad.num_completed_requests
    assert metrics.total_levels == 2
    assert metrics.failed_levels == (
        FailedLevel(
            scenario="D(100,21)",
            num_concurrency=2,
            num_requests=bad.num_requests,
            num_completed_requests=bad.num_completed_requests,
        ),
    )


@pytest.mark.parametrize(("max_error_rate", "failed"), [(0.0, 1), (0.24, 1), (0.25, 0)])
def test_allowed_failures_of_a_level_are_told(max_error_rate: float, failed: int) -> None:
    level = make_level(make_sample(), make_sample(), make_sample(), connect=1)

    metrics = aggregate([level], max_error_rate)

    assert len(metrics.failed_levels) == failed
    assert metrics.max_error_rate == max_error_rate


def test_experiment_p99_is_of_its_worst_level() -> None:
    light = make_level(make_sample(e2e_latency=1.0), num_concurrency=1)
    heavy = make_level(make_sample())

    metrics = aggregate([heavy, light])

    assert metrics.p99_e2e_latency == 2.5
    assert metrics.p50_e2e_latency == 1.75


def test_throughput_is_told_per_gpu() -> None:
    metrics = aggregate([make_level(make_sample(), seconds=1.0)])

    shared = with_gpus(metrics, 4)

    assert metrics.max_total_throughput_per_gpu is None
    assert shared.max_total_throughput_per_gpu == 121.0 / 4
    assert shared.mean_output_throughput_per_gpu == 21.0 / 4
    assert with_gpus(BenchmarkMetrics(), 4) == BenchmarkMetrics()
    assert with_gpus(metrics, 0) == metrics


def test_the_extremes_are_those_of_the_levels_means() -> None:
    fast = make_level(make_sample(e2e_latency=1.0), make_sample(e2e_latency=2.0))
    slow = make_level(make_sample(e2e_latency=4.0), seconds=1.0, num_concurrency=1)

    metrics = aggregate([slow, fast])

    latencies = (metrics.min_e2e_latency, metrics.mean_e2e_latency, metrics.max_e2e_latency)
    assert latencies == (1.5, 2.75, 4.0)
    assert (metrics.max_output_throughput, metrics.max_total_throughput) == (21.0, 121.0)


@pytest.mark.parametrize("levels", [[], [make_level(connect=2)]], ids=["no level", "no success"])
def test_nothing_completed_gives_no_figures(levels: list[LevelResult]) -> None:
    metrics = aggregate(levels)

    errors = sum(level.num_error_requests for level in levels)
    assert metrics.total_requests == metrics.total_error_requests == errors
    assert len(metrics.failed_levels) == metrics.total_levels == len(levels)
    assert (metrics.mean_e2e_latency, metrics.max_total_throughput) == (None, None)


def stored_experiments() -> list[dict[str, Any]]:
    folder = os.environ.get("GPUSTEWARD_TEST_DATA")
    path = Path(folder or "") / "genai-bench" / "docker-simple-tune_results.json"
    if folder is None or not path.is_file():
        pytest.skip("needs recorded genai-bench results: set GPUSTEWARD_TEST_DATA to their folder")
    experiments: list[dict[str, Any]] = json.loads(path.read_text())["all_results"]
    return experiments


def test_recorded_levels_give_recorded_aggregates() -> None:
    """All but p99: the recorded one is the mean of the levels' own, which no request exceeded."""
    compared = 0
    for experiment in stored_experiments():
        stored = experiment["metrics"]
        window = {"started_at": NOW, "finished_at": NOW}
        levels = [msgspec.convert(raw | window, LevelResult) for raw in stored["raw_results"]]

        metrics = aggregate(levels)

        recorded = stored.keys() - {"p99_e2e_latency"}
        computed = {k: v for k, v in msgspec.to_builtins(metrics).items() if k in recorded}
        assert computed == {name: stored[name] for name in computed}
        p99s = [level.stats.e2e_latency.p99 for level in levels if level.stats.e2e_latency]
        assert metrics.p99_e2e_latency == max(p99s) > stored["p99_e2e_latency"]
        assert metrics.failed_levels == ()
        compared += len(computed)
    assert compared == 2 * 15


def test_frequent_error_codes_are_kept() -> None:
    counts = {str(code): 1 for code in range(400, 500)} | {"503": 7, "other": 2}

    kept = few_codes(counts)

    assert kept["503"] == 7
    assert len(kept) <= MAX_CODES + 1
    assert sum(kept.values()) == sum(counts.values())
    assert few_codes({"b": 1, "a": 2}) == {"a": 2, "b": 1}


def test_repeat_percentiles_pool_all_requests() -> None:
    quick = make_level(*[make_sample(e2e_latency=1.0 + n / 100) for n in range(90)], seconds=9.0)
    slow = make_level(*[make_sample(e2e_latency=5.0 + n) for n in range(10)], seconds=21.0)
    other = make_level(make_sample(e2e_latency=3.0), num_concurrency=4)
    together = distribution([1.0 + n / 100 for n in range(90)] + [5.0 + n for n in range(10)])

    metrics = aggregate([quick, other, slow])

    assert together is not None
    assert metrics.p99_e2e_latency == pytest.approx(together.p99)
    assert metrics.p50_e2e_latency == pytest.approx((together.p50 + 3.0) / 2)
    assert metrics.max_e2e_latency == 3.0  # the mean of the 100 requests is smaller
    assert metrics.max_output_throughput == pytest.approx(100 * 21 / 30.0)
    assert (metrics.total_levels, metrics.total_requests) == (3, 101)


def test_unpoolable_repeats_stay_levels() -> None:
    level = make_level(make_sample(e2e_latency=1.0))
    unknown = msgspec.structs.replace(make_level(make_sample(e2e_latency=5.0)), requests=None)

    assert pool_levels([level, unknown]) == [level, unknown]


def test_pooled_repeats_span_all() -> None:
    level = level_result(
        scenario="D(100,21)",
        num_concurrency=4,
        started_at=NOW,
        run_duration=9.0,
        samples=[make_sample()],
        error_codes={"500": 1},
        failed=[FailedRequest(code="500", seconds=2.0)],
    )
    later = msgspec.structs.replace(level, started_at=level.started_at + timedelta(seconds=60))

    (both,) = pool_levels([level, later])

    assert (both.scenario, both.num_concurrency) == (level.scenario, 4)
    assert (both.started_at, both.run_duration) == (level.started_at, 18.0)
    assert (both.num_completed_requests, both.num_error_requests) == (2, 2)
