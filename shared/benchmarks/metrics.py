"""Benchmark measures under genai-bench's names: one request, one level, one experiment."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from schemas.task.benchmark import (
    MAX_ERROR_RATE,
    BenchmarkMetrics,
    Distribution,
    FailedLevel,
    LevelResult,
    LevelStats,
    RequestColumns,
)
from schemas.task.turns import TurnResult
from shared.benchmarks.levels.request_columns import RequestRow, pack_requests, unpack_requests
from shared.percentiles import percentile

Value = TypeVar("Value")

MAX_CODES: Final = 20
OTHER: Final = "other"
UNANSWERED: Final = "unanswered"


class RequestSample(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A completed request. `ttft` ends with its first content, `e2e_latency` with its end.

    `turn` of a conversation of several, from 1. `reusable_tokens` of its prompt had been sent or
    answered before, `cached_tokens` the server says that it had; None: it does not say.
    """

    ttft: float
    e2e_latency: float
    num_input_tokens: int
    num_output_tokens: int
    tokens_estimated: bool = False
    turn: int | None = None
    reusable_tokens: int = 0
    cached_tokens: int | None = None

    @property
    def output_latency(self) -> float:
        return self.e2e_latency - self.ttft

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None with a single token or an answer in one piece."""
        return tpot_of(self.output_latency, self.num_output_tokens)

    @property
    def output_inference_speed(self) -> float | None:
        return None if self.tpot is None else 1 / self.tpot

    @property
    def total_tokens(self) -> int:
        return self.num_input_tokens + self.num_output_tokens

    @property
    def input_throughput(self) -> float | None:
        return self.num_input_tokens / self.ttft if self.ttft > 0 else None

    @property
    def output_throughput(self) -> float | None:
        if self.tpot is None:
            return None
        return (self.num_output_tokens - 1) / self.output_latency


class FailedRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`seconds` is how long it took to fail; None: the tool does not say."""

    code: str
    seconds: float | None = None


MEASURES: Final[Mapping[str, Callable[[RequestSample], float | None]]] = {
    "ttft": lambda sample: sample.ttft,
    "tpot": lambda sample: sample.tpot,
    "e2e_latency": lambda sample: sample.e2e_latency,
    "output_latency": lambda sample: sample.output_latency,
    "output_inference_speed": lambda sample: sample.output_inference_speed,
    "num_input_tokens": lambda sample: sample.num_input_tokens,
    "num_output_tokens": lambda sample: sample.num_output_tokens,
    "total_tokens": lambda sample: sample.total_tokens,
    "input_throughput": lambda sample: sample.input_throughput,
    "output_throughput": lambda sample: sample.output_throughput,
}


def distribution(values: Iterable[float]) -> Distribution | None:
    """The spread of `values`, in any order; None if there are none.

    Percentiles are interpolated linearly between neighbours, `stddev` is the population's.
    """
    ordered = sorted(values)
    if not ordered:
        return None
    total = math.fsum(ordered)
    mean = total / len(ordered)
    variance = math.fsum((value - mean) ** 2 for value in ordered) / len(ordered)
    return Distribution(
        min=ordered[0],
        max=ordered[-1],
        mean=mean,
        stddev=math.sqrt(variance),
        sum=total,
        p25=percentile(ordered, 25),
        p50=percentile(ordered, 50),
        p75=percentile(ordered, 75),
        p90=percentile(ordered, 90),
        p95=percentile(ordered, 95),
        p99=percentile(ordered, 99),
    )


def level_result(
    *,
    scenario: str,
    num_concurrency: int,
    started_at: datetime,
    run_duration: float,
    samples: Sequence[RequestSample],
    error_codes: Mapping[str, int],
    failed: Sequence[FailedRequest] = (),
) -> LevelResult:
    """Return the result of one level from its requests; `run_duration` is the measured window, in
    seconds.

    `failed` are those of the `error_codes` of which more is known. The window's end is counted from
    its start: a clock that is set meanwhile does not bend it.
    """
    errors = sum(error_codes.values())
    requests = len(samples) + errors
    output_tokens = sum(sample.num_output_tokens for sample in samples)
    input_tokens = sum(sample.num_input_tokens for sample in samples)
    return LevelResult(
        scenario=scenario,
        num_concurrency=num_concurrency,
        started_at=started_at,
        finished_at=started_at + timedelta(seconds=run_duration),
        run_duration=run_duration,
        num_requests=requests,
        num_completed_requests=len(samples),
        num_error_requests=errors,
        error_rate=errors / requests if requests else 0.0,
        error_codes_frequency=few_codes(error_codes),
        requests_per_second=_rate(len(samples), run_duration),
        mean_output_throughput_tokens_per_s=_rate(output_tokens, run_duration),
        mean_input_throughput_tokens_per_s=_rate(input_tokens, run_duration),
        mean_total_tokens_throughput_tokens_per_s=_rate(input_tokens + output_tokens, run_duration),
        tokens_estimated=any(sample.tokens_estimated for sample in samples),
        stats=_level_stats(samples),
        turns=turn_results(samples),
        requests=columns_of(samples, failed),
    )


def with_unanswered(level: LevelResult, missing: int) -> LevelResult:
    """Return the level with this many more requests that were never answered."""
    if not missing:
        return level
    errors, requests = level.num_error_requests + missing, level.num_requests + missing
    return msgspec.structs.replace(
        level,
        num_requests=requests,
        num_error_requests=errors,
        error_rate=errors / requests,
        error_codes_frequency={**level.error_codes_frequency, UNANSWERED: missing},
    )


def columns_of(
    samples: Sequence[RequestSample], failed: Sequence[FailedRequest]
) -> RequestColumns | None:
    """Return the requests as columns; None without requests."""
    codes = few_codes(Counter(failed_request.code for failed_request in failed))
    rows = [
        *(
            RequestRow(
                ttft=sample.ttft,
                e2e_latency=sample.e2e_latency,
                num_input_tokens=sample.num_input_tokens,
                num_output_tokens=sample.num_output_tokens,
                turn=sample.turn,
            )
            for sample in samples
        ),
        *(
            RequestRow(
                e2e_latency=failed_request.seconds,
                error=failed_request.code if failed_request.code in codes else OTHER,
            )
            for failed_request in failed
        ),
    ]
    return pack_requests(rows) if rows else None


def tpot_of(output_latency: float, num_output_tokens: int) -> float | None:
    """Return the time per output token of one request; see `RequestSample.tpot`."""
    if num_output_tokens < 2 or output_latency <= 0:
        return None
    return output_latency / (num_output_tokens - 1)


def loads_of(levels: Iterable[LevelResult]) -> list[LevelResult]:
    """Pool levels of the same load; those that are set aside are left out."""
    return pool_levels([level for level in levels if level.set_aside is None])


def pool_levels(levels: Sequence[LevelResult]) -> list[LevelResult]:
    """Levels of the same load as one of all their requests, in order of the first of each.

    One whose requests are not all known stays alone.
    """
    loads: dict[object, list[LevelResult]] = {}
    for number, level in enumerate(levels):
        are_all_known = level.requests is not None and level.requests.one_in == 1
        key = (level.scenario, level.num_concurrency, level.arrivals) if are_all_known else number
        loads.setdefault(key, []).append(level)
    return [repeats[0] if len(repeats) == 1 else _pool(repeats) for repeats in loads.values()]


def _pool(repeats: Sequence[LevelResult]) -> LevelResult:
    rows = [row for level in repeats if level.requests for row in unpack_requests(level.requests)]
    errors: Counter[str] = Counter()
    for level in repeats:
        errors.update(level.error_codes_frequency)
    first = repeats[0]
    pooled_level = level_result(
        scenario=first.scenario,
        num_concurrency=first.num_concurrency,
        started_at=first.started_at,
        run_duration=math.fsum(level.run_duration for level in repeats),
        samples=[
            RequestSample(
                ttft=row.ttft,
                e2e_latency=row.e2e_latency,
                num_input_tokens=row.num_input_tokens or 0,
                num_output_tokens=row.num_output_tokens or 0,
                tokens_estimated=any(level.tokens_estimated for level in repeats),
                turn=row.turn,
            )
            for row in rows
            if row.error is None and row.ttft is not None and row.e2e_latency is not None
        ],
        error_codes=errors,
    )
    return msgspec.structs.replace(pooled_level, arrivals=first.arrivals)


def few_codes(counts: Mapping[str, int]) -> dict[str, int]:
    """The most frequent codes, by name, with those of all others together as `other`.

    A server chooses its codes, and the result of all levels has to fit into one message.
    """
    by_count = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    kept = dict(sorted(by_count[:MAX_CODES]))
    others_count = sum(count for _, count in by_count[MAX_CODES:])
    if others_count:
        kept[OTHER] = kept.get(OTHER, 0) + others_count
    return kept


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds > 0 else 0.0


def _level_stats(samples: Sequence[RequestSample]) -> LevelStats:
    spreads = {
        name: distribution(value for value in map(measure, samples) if value is not None)
        for name, measure in MEASURES.items()
    }
    return LevelStats(**spreads)


def turn_results(samples: Sequence[RequestSample]) -> tuple[TurnResult, ...]:
    """Return the results of each turn, in order; none without conversations."""
    by_turn: dict[int, list[RequestSample]] = {}
    for sample in samples:
        if sample.turn is not None:
            by_turn.setdefault(sample.turn, []).append(sample)
    turns = []
    for turn, turn_samples in sorted(by_turn.items()):
        ttft = sorted(sample.ttft for sample in turn_samples)
        tpot = _present(sample.tpot for sample in turn_samples)
        turns.append(
            TurnResult(
                turn=turn,
                num_completed_requests=len(turn_samples),
                mean_input_tokens=math.fsum(
                    request_sample.num_input_tokens for request_sample in turn_samples
                )
                / len(turn_samples),
                mean_ttft=math.fsum(ttft) / len(turn_samples),
                p50_ttft=percentile(ttft, 50),
                p99_ttft=percentile(ttft, 99),
                mean_tpot=math.fsum(tpot) / len(tpot) if tpot else None,
                mean_e2e_latency=math.fsum(
                    request_sample.e2e_latency for request_sample in turn_samples
                )
                / len(turn_samples),
            )
        )
    return tuple(turns)


def has_failed(level: LevelResult, max_error_rate: float) -> bool:
    """True if the level says nothing about its load: too few of its requests were served, or it is
    set aside.
    """
    is_served = level.num_completed_requests and level.error_rate <= max_error_rate
    return level.set_aside is not None or not is_served


def with_gpus(metrics: BenchmarkMetrics, gpus: int) -> BenchmarkMetrics:
    """Return the metrics with throughput per GPU; unchanged for 0 GPUs."""
    output, total = metrics.mean_output_throughput, metrics.max_total_throughput
    if not gpus or output is None or total is None:
        return metrics
    return msgspec.structs.replace(
        metrics,
        mean_output_throughput_per_gpu=output / gpus,
        max_total_throughput_per_gpu=total / gpus,
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
    output_rates = [level.mean_output_throughput_tokens_per_s for level in served] + no_rates
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
        max_output_throughput=max(output_rates),
        mean_total_throughput=_mean(total_rates),
        max_total_throughput=max(total_rates),
    )


def _present(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
