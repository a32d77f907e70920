"""Benchmark measures under genai-bench's names: one request, one level, one experiment."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

import msgspec

from schemas.task.benchmark import (
    Distribution,
    LevelResult,
    LevelStats,
    RequestColumns,
)
from schemas.task.modality import modality_of
from schemas.task.turns import TurnResult
from shared.benchmarks.levels.request_columns import RequestRow, pack_requests, unpack_requests
from shared.percentiles import percentile

Value = TypeVar("Value")

MAX_CODES: Final = 20
OTHER: Final = "other"
UNANSWERED: Final = "unanswered"


class RequestSample(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A completed request. `ttft` ends with its first content, `e2e_latency` with its end; without
    a `ttft` its answer came whole, and has no tokens.

    `turn` of a conversation of several, from 1. `reusable_tokens` of its prompt had been sent or
    answered before, `cached_tokens` the server says that it had; None: it does not say.
    `num_first_tokens` of the answer came in its first piece.
    """

    e2e_latency: float
    num_input_tokens: int
    ttft: float | None = None
    num_output_tokens: int | None = None
    tokens_estimated: bool = False
    turn: int | None = None
    reusable_tokens: int = 0
    cached_tokens: int | None = None
    num_first_tokens: int = 1

    @property
    def output_latency(self) -> float | None:
        return None if self.ttft is None else self.e2e_latency - self.ttft

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first piece; None with a single token or piece."""
        if self.output_latency is None or self.num_output_tokens is None:
            return None
        return tpot_of(self.output_latency, self.num_output_tokens, self.num_first_tokens)

    @property
    def output_inference_speed(self) -> float | None:
        return None if self.tpot is None else 1 / self.tpot

    @property
    def total_tokens(self) -> int:
        return self.num_input_tokens + (self.num_output_tokens or 0)

    @property
    def input_throughput(self) -> float | None:
        return self.num_input_tokens / self.ttft if self.ttft else None

    @property
    def output_throughput(self) -> float | None:
        if self.tpot is None or not self.output_latency:
            return None
        return ((self.num_output_tokens or 0) - self.num_first_tokens) / self.output_latency


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
    batch_size: int = 1,
) -> LevelResult:
    """Return the result of one level from its requests, of `batch_size` items each; `run_duration`
    is the measured window, in seconds.

    `failed` are those of the `error_codes` of which more is known. The window's end is counted from
    its start: a clock that is set meanwhile does not bend it.
    """
    errors = sum(error_codes.values())
    requests = len(samples) + errors
    output_tokens = sum(sample.num_output_tokens or 0 for sample in samples)
    input_tokens = sum(sample.num_input_tokens for sample in samples)
    has_tokens = modality_of(scenario).has_tokens
    rate_per_s = _rate(len(samples), run_duration)
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
        requests_per_second=rate_per_s,
        mean_output_throughput_tokens_per_s=(
            _rate(output_tokens, run_duration) if has_tokens else None
        ),
        mean_input_throughput_tokens_per_s=_rate(input_tokens, run_duration),
        mean_total_tokens_throughput_tokens_per_s=_rate(input_tokens + output_tokens, run_duration),
        tokens_estimated=any(sample.tokens_estimated for sample in samples),
        stats=_level_stats(samples),
        turns=turn_results(samples),
        requests=columns_of(samples, failed),
        batch_size=batch_size,
        items_per_second=None if has_tokens else batch_size * rate_per_s,
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
                num_first_tokens=sample.num_first_tokens,
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


def tpot_of(
    output_latency: float, num_output_tokens: int, num_first_tokens: int = 1
) -> float | None:
    """Return the time per output token of one request; see `RequestSample.tpot`."""
    if num_output_tokens <= num_first_tokens or output_latency <= 0:
        return None
    return output_latency / (num_output_tokens - num_first_tokens)


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
                num_output_tokens=row.num_output_tokens,
                num_first_tokens=row.num_first_tokens,
                tokens_estimated=any(level.tokens_estimated for level in repeats),
                turn=row.turn,
            )
            for row in rows
            if row.error is None and row.e2e_latency is not None
        ],
        error_codes=errors,
        batch_size=first.batch_size,
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
        ttft = sorted(sample.ttft for sample in turn_samples if sample.ttft is not None)
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


def _present(values: Iterable[Value | None]) -> list[Value]:
    return [value for value in values if value is not None]
