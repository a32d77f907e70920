"""An experiment's measures out of those of its levels."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from schemas.task.benchmark import MAX_ERROR_RATE, BenchmarkMetrics, FailedLevel, LevelResult
from shared.benchmarks.metrics import pool_levels

Value = TypeVar("Value")


def has_failed(level: LevelResult, max_error_rate: float) -> bool:
    """True if the level says nothing about its load: too few of its requests were served, or it is
    set aside.
    """
    is_served = level.num_completed_requests and level.error_rate <= max_error_rate
    return level.set_aside is not None or not is_served


def with_gpus(metrics: BenchmarkMetrics, gpus: int) -> BenchmarkMetrics:
    """Return the metrics with throughput per GPU; unchanged for 0 GPUs."""
    output, total = metrics.mean_output_throughput, metrics.max_total_throughput
    items = metrics.max_items_per_second
    if not gpus or total is None:
        return metrics
    return msgspec.structs.replace(
        metrics,
        mean_output_throughput_per_gpu=None if output is None else output / gpus,
        max_total_throughput_per_gpu=total / gpus,
        max_items_per_second_per_gpu=None if items is None else items / gpus,
    )


def aggregate(
    levels: Sequence[LevelResult], max_error_rate: float = MAX_ERROR_RATE
) -> BenchmarkMetrics:
    """An experiment's metrics, as the autotuner computes them from its levels.

    But for p99 and for failed levels, see `BenchmarkMetrics`. Means are not weighted.
    """
    requests = sum(level.num_requests for level in levels)
    completed = sum(level.num_completed_requests for level in levels)
    counts = BenchmarkMetrics(
        total_requests=requests,
        total_completed_requests=completed,
        total_error_requests=sum(level.num_error_requests for level in levels),
        success_rate=completed / requests if requests else 0.0,
        total_levels=len(levels),
        failed_levels=tuple(
            FailedLevel(
                scenario=level.scenario,
                num_concurrency=level.num_concurrency,
                num_requests=level.num_requests,
                num_completed_requests=level.num_completed_requests,
                arrivals=level.arrivals,
                set_aside=level.set_aside,
            )
            for level in levels
            if has_failed(level, max_error_rate)
        ),
        max_error_rate=max_error_rate,
    )
    served = pool_levels([level for level in levels if not has_failed(level, max_error_rate)])
    latencies = _present(level.stats.e2e_latency for level in served)
    if not latencies:
        return counts
    no_rates = [0.0] * len(counts.failed_levels)
    output_rates = _present(level.mean_output_throughput_tokens_per_s for level in served)
    item_rates = _present(level.items_per_second for level in served)
    output_rates += no_rates if output_rates else []
    item_rates += no_rates if item_rates else []
    total_rates = [level.mean_total_tokens_throughput_tokens_per_s for level in served] + no_rates
    means = [latency.mean for latency in latencies]
    return msgspec.structs.replace(
        counts,
        mean_e2e_latency=_mean(means),
        min_e2e_latency=min(means),
        max_e2e_latency=max(means),
        p50_e2e_latency=_mean([latency.p50 for latency in latencies]),
        p90_e2e_latency=_mean([latency.p90 for latency in latencies]),
        p99_e2e_latency=max(latency.p99 for latency in latencies),
        mean_ttft=_mean([spread.mean for spread in _present(level.stats.ttft for level in served)]),
        mean_tpot=_mean([spread.mean for spread in _present(level.stats.tpot for level in served)]),
        mean_output_throughput=_mean(output_rates),
        max_output_throughput=max(output_rates, default=None),
        mean_total_throughput=_mean(total_rates),
        max_total_throughput=max(total_rates),
        mean_items_per_second=_mean(item_rates),
        max_items_per_second=max(item_rates, default=None),
    )


def _present(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
