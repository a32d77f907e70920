"""A level's figures out of its requests, whichever generator sent them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, LevelMark, LevelResult, Steadiness
from shared.benchmarks.arrivals import Load
from shared.benchmarks.levels import steadiness
from shared.benchmarks.metrics import FailedRequest, RequestSample, distribution, level_result

MAX_CLIENT_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class Record:
    """A measured request. Times are of one clock; `late_seconds` after it was to be sent."""

    sent: float
    ended: float
    late_seconds: float
    outcome: RequestSample | FailedRequest


@dataclass(slots=True, kw_only=True)
class PromptTokens:
    """Of all requests that were answered, those before and after the measured ones included.

    `reusable` had been sent or answered before; of such prompts `cached` were in the engine's cache
    by its own words. None: it has none.
    """

    sent: int = 0
    reusable: int = 0
    cached: int | None = None

    def add(self, sample: RequestSample) -> None:
        self.sent += sample.num_input_tokens
        self.reusable += sample.reusable_tokens
        if sample.reusable_tokens and sample.cached_tokens is not None:
            self.cached = (self.cached or 0) + sample.cached_tokens

    @classmethod
    def of_all(cls, parts: "Iterable[PromptTokens]") -> "PromptTokens":
        prompts = cls()
        for part in parts:
            prompts.sent += part.sent
            prompts.reusable += part.reusable
            if part.cached is not None:
                prompts.cached = (prompts.cached or 0) + part.cached
        return prompts


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelOutcome:
    """What one or several processes measured of a level. Times are of one clock, which all
    processes of a host share. `rate_per_s` are requests that ended in the window;
    `in_flight_mean` None: not counted.
    """

    load: Load
    records: list[Record]
    lags: list[float]
    started_at: datetime
    started: float
    window_ends: float | None
    in_flight_mean: float | None
    rate_per_s: float
    sent_in_all: int
    prompts: PromptTokens = field(default_factory=PromptTokens)


def measured_level_result(scenario: str, level: LevelOutcome, spec: BenchmarkSpec) -> LevelResult:
    """Return the result of the level's requests, without the transient at its start."""
    in_order = sorted(level.records, key=lambda record: record.sent)
    latencies = [
        (record.sent, record.outcome.e2e_latency)
        for record in in_order
        if isinstance(record.outcome, RequestSample)
    ]
    cut = steadiness.transient([seconds for _, seconds in latencies])
    begins = latencies[cut][0] if cut else level.started
    kept = [record for record in in_order if record.sent >= begins]
    samples = [record.outcome for record in kept if isinstance(record.outcome, RequestSample)]
    failed = [record.outcome for record in kept if isinstance(record.outcome, FailedRequest)]
    result = level_result(
        scenario=scenario,
        num_concurrency=level.load.concurrency,
        started_at=level.started_at + timedelta(seconds=begins - level.started),
        run_duration=_duration_seconds(level, spec, begins, kept),
        samples=samples,
        error_codes=Counter(failed_request.code for failed_request in failed),
        failed=failed,
    )
    mean_seconds = result.stats.e2e_latency.mean if result.stats.e2e_latency else 0.0
    steady = Steadiness(
        little_error=None
        if level.in_flight_mean is None
        else steadiness.little_error(level.in_flight_mean, level.rate_per_s, mean_seconds),
        drift=steadiness.drift([seconds for _, seconds in latencies[cut:]]),
        discarded_requests=len(in_order) - len(kept),
    )
    lag = distribution(level.lags)
    lateness = distribution(record.late_seconds for record in kept)
    result = msgspec.structs.replace(
        result,
        arrivals=level.load.arrivals,
        steadiness=steady,
        client_lag_p99_seconds=lag.p99 if lag else None,
        client_lag_mean_seconds=lag.mean if lag else None,
        lateness_p99_seconds=lateness.p99 if lateness else None,
    )
    return msgspec.structs.replace(result, marks=tuple(_marks(result)))


def _duration_seconds(
    level: LevelOutcome, spec: BenchmarkSpec, begins: float, kept: list[Record]
) -> float:
    """The seconds in which as many requests ended as were kept."""
    ends = [record.ended for record in kept]
    if not ends:
        return max(0.0, (level.window_ends or begins) - begins)
    if level.load.arrivals is not None and max(ends) > min(ends):
        # At the exit: of an engine that falls behind, what it serves and not what is asked of it.
        return (max(ends) - min(ends)) * len(ends) / (len(ends) - 1)
    if spec.warmup_requests and level.load.arrivals is None:
        # In a closed loop each is sent as another ends, and the loop goes on beyond the window.
        return max(0.0, (level.window_ends or max(ends)) - begins)
    return max(ends) - begins


def _marks(level: LevelResult) -> list[LevelMark]:
    steady, marks = level.steadiness, []
    if steady is not None and abs(steady.drift or 0.0) > steadiness.MAX_ERROR:
        marks.append(LevelMark.NOT_STEADY)
    if steady is not None and (steady.little_error or 0.0) > steadiness.MAX_ERROR:
        marks.append(LevelMark.LITTLES_LAW)
    first = level.stats.ttft
    if first is not None:
        limit_seconds = MAX_CLIENT_SHARE * first.p99
        if (level.client_lag_p99_seconds or 0.0) > limit_seconds:
            marks.append(LevelMark.CLIENT_LIMITED)
        if level.arrivals is not None and (level.lateness_p99_seconds or 0.0) > limit_seconds:
            marks.append(LevelMark.SENT_LATE)
    return marks
