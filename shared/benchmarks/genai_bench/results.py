"""What genai-bench writes down about a run, as a level.

A run is one traffic scenario at one concurrency. Its file holds the aggregate and every request;
where the aggregation failed, a file of the same layout with the name of a debug file holds the
requests alone. `error_rate` is not read: genai-bench 0.0.5 divides before it has counted, and
always writes 0.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from schemas.task.benchmark import Distribution, LevelResult, LevelStats
from schemas.task.modality import modality_of
from shared.benchmarks import metrics
from shared.benchmarks.metrics import (
    OTHER,
    UNANSWERED,
    FailedRequest,
    RequestSample,
    columns_of,
    level_result,
)
from shared.benchmarks.tools.adapter import DamagedResult

LATENCIES: Final = frozenset({"ttft", "tpot", "e2e_latency", "output_latency"})
SECONDS_IN: Final = {"s": 1.0, "ms": 0.001}
OF_WHOLE_ANSWERS: Final = ("e2e_latency", "num_input_tokens", "total_tokens")
# Written as 0 for tasks without generated tokens, where they are no measure.
OF_OUTPUT: Final = ("tpot", "output_latency", "output_inference_speed", "output_throughput")
# What clients may take beyond completed requests: between two, and for the one that is cut off.
BETWEEN_SECONDS: Final = 0.25
CUT_OFF_SECONDS: Final = 5.0


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run is not in its file. `seconds` counts where the file does not say how long."""

    started_at: datetime
    seconds: float
    tokens_estimated: bool = False


class RunAggregate(msgspec.Struct, frozen=True, kw_only=True):
    """`aggregated_metrics` of a file, as far as it is read."""

    scenario: str | None = None
    num_concurrency: int = 1
    batch_size: int = 1
    run_duration: float = 0.0
    mean_output_throughput_tokens_per_s: float = 0.0
    mean_input_throughput_tokens_per_s: float = 0.0
    mean_total_tokens_throughput_tokens_per_s: float = 0.0
    requests_per_second: float = 0.0
    error_codes_frequency: dict[str, int] = {}
    num_error_requests: int = 0
    num_completed_requests: int = 0
    stats: dict[str, dict[str, float | None]] = {}


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One of `individual_request_metrics`."""

    ttft: float | None = None
    e2e_latency: float | None = None
    num_input_tokens: int | None = None
    num_output_tokens: int | None = None
    error_code: int | str | None = None


class RunFile(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    aggregated_metrics: RunAggregate
    individual_request_metrics: tuple[RunRequest, ...] = ()
    time_unit: str = msgspec.field(name="_time_unit", default="s")


_decoder: Final = msgspec.json.Decoder(RunFile)


def file_pattern(scenario: str, task: str, variable: str, value: int) -> str:
    """The name of a run's file, for `glob`: it ends with seconds that only the tool knows.

    `variable` is what the tool varies, `num_concurrency` or `batch_size`.
    """
    return f"{_in_file_name(scenario)}_{task}_{variable}_{value}_time_*s.json"


def debug_file_name(scenario: str, value: int) -> str:
    """The name of the file that is written where a run could not be aggregated; `value` is that of
    what the tool varies.
    """
    return f"debug_for_run_{_in_file_name(scenario)}_{value}.json"


def _in_file_name(scenario: str) -> str:
    return scenario.translate({ord("/"): "_", ord(","): "_", ord("("): None, ord(")"): None})


def read_run(content: bytes, observed: Observed) -> LevelResult:
    """A result or debug file as a level. Raises DamagedResult."""
    try:
        run = _decoder.decode(content)
    except msgspec.DecodeError as error:
        raise DamagedResult(f"expected a run of genai-bench: {error}") from error
    aggregate = run.aggregated_metrics
    samples, failed = _requests(run, observed)
    if aggregate.run_duration:
        level = level_of(aggregate, observed, time_unit=run.time_unit)
    else:
        # Not aggregated by the tool: by us, from its requests, over the time that we saw.
        level = _level_result(aggregate, observed, observed.seconds, samples)
    return msgspec.structs.replace(level, requests=columns_of(samples, failed))


def level_of(aggregate: RunAggregate, observed: Observed, *, time_unit: str = "s") -> LevelResult:
    """The level that an aggregate stands for, its figures as they are. Raises DamagedResult."""
    seconds = _seconds_in(time_unit)
    has_tokens = modality_of(aggregate.scenario or "").has_tokens
    empty = _level_result(aggregate, observed, aggregate.run_duration, ())
    return msgspec.structs.replace(
        empty,
        requests_per_second=aggregate.requests_per_second,
        mean_output_throughput_tokens_per_s=(
            aggregate.mean_output_throughput_tokens_per_s if has_tokens else None
        ),
        items_per_second=(
            None if has_tokens else aggregate.batch_size * aggregate.requests_per_second
        ),
        mean_input_throughput_tokens_per_s=aggregate.mean_input_throughput_tokens_per_s,
        mean_total_tokens_throughput_tokens_per_s=(
            aggregate.mean_total_tokens_throughput_tokens_per_s
        ),
        stats=_stats(aggregate.stats, seconds, has_tokens=has_tokens),
    )


def make_unanswered_level(scenario: str, num_concurrency: int, observed: Observed) -> LevelResult:
    """Return a run of which genai-bench wrote nothing, since no request of it ever ended.

    Each of its clients had one request open, so that many are counted as failed.
    """
    return level_result(
        scenario=scenario,
        num_concurrency=num_concurrency,
        started_at=observed.started_at,
        run_duration=observed.seconds,
        samples=(),
        error_codes={UNANSWERED: num_concurrency},
    )


def with_unanswered(level: LevelResult) -> LevelResult:
    """A level that ended by its time, with the requests that were never answered as errors.

    The tool drops what is open at the end. Each client always has one request open, so that time
    which completed requests do not explain was spent waiting for an answer.
    """
    latency = level.stats.e2e_latency
    if latency is None or not level.run_duration:
        return level
    waited = level.num_concurrency * level.run_duration - latency.sum
    usual_seconds = BETWEEN_SECONDS * level.num_requests
    usual_seconds += level.num_concurrency * max(CUT_OFF_SECONDS, 2 * latency.max)
    if waited <= usual_seconds:
        return level
    return metrics.with_unanswered(level, max(1, round(waited / level.run_duration)))


def _seconds_in(time_unit: str) -> float:
    if time_unit not in SECONDS_IN:
        raise DamagedResult(f"expected times in s or ms, found {time_unit!r}")
    return SECONDS_IN[time_unit]


def _requests(run: RunFile, observed: Observed) -> tuple[list[RequestSample], list[FailedRequest]]:
    scale = _seconds_in(run.time_unit)
    has_tokens = modality_of(run.aggregated_metrics.scenario or "").has_tokens
    samples = [
        RequestSample(
            # Of an answer that comes whole it takes the end for the first token.
            ttft=request.ttft * scale if has_tokens else None,
            e2e_latency=request.e2e_latency * scale,
            num_input_tokens=request.num_input_tokens or 0,
            num_output_tokens=(request.num_output_tokens or 0) if has_tokens else None,
            tokens_estimated=observed.tokens_estimated,
        )
        for request in run.individual_request_metrics
        if request.error_code is None
        and request.ttft is not None
        and request.e2e_latency is not None
    ]
    failed = [
        FailedRequest(code=str(request.error_code))
        for request in run.individual_request_metrics
        if request.error_code is not None
    ]
    return samples, failed


def _level_result(
    aggregate: RunAggregate,
    observed: Observed,
    run_duration: float,
    samples: Sequence[RequestSample],
) -> LevelResult:
    codes = dict(aggregate.error_codes_frequency)
    if (without_code := aggregate.num_error_requests - sum(codes.values())) > 0:
        codes[OTHER] = without_code
    level = level_result(
        scenario=aggregate.scenario or "",
        num_concurrency=aggregate.num_concurrency,
        started_at=observed.started_at,
        run_duration=run_duration,
        samples=samples,
        error_codes=codes,
        batch_size=aggregate.batch_size,
    )
    completed = len(samples) or aggregate.num_completed_requests
    requests = completed + level.num_error_requests
    return msgspec.structs.replace(
        level,
        num_requests=requests,
        num_completed_requests=completed,
        error_rate=level.num_error_requests / requests if requests else 0.0,
        tokens_estimated=observed.tokens_estimated,
    )


def _stats(
    stats: Mapping[str, Mapping[str, float | None]], scale: float, *, has_tokens: bool
) -> LevelStats:
    generated = stats.get("num_output_tokens", {}).get("max")
    spreads = {
        name: _spread(stats.get(name, {}), scale if name in LATENCIES else 1.0)
        for name in (LevelStats.__struct_fields__ if has_tokens else OF_WHOLE_ANSWERS)
        if generated or name not in OF_OUTPUT
    }
    return LevelStats(**spreads)


def _spread(values: Mapping[str, float | None], scale: float) -> Distribution | None:
    variables = {
        name: float(value) * scale
        for name in Distribution.__struct_fields__
        if (value := values.get(name)) is not None
    }
    return (
        Distribution(**variables) if len(variables) == len(Distribution.__struct_fields__) else None
    )
