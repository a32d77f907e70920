"""A level's figures out of its requests, whichever generator sent them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import msgspec

from schemas.task.benchmark import BenchmarkSpec, Distribution, LevelMark, LevelResult, Steadiness
from shared.benchmarks.arrivals import Load, is_trace
from shared.benchmarks.levels import steadiness
from shared.benchmarks.metrics import FailedRequest, RequestSample, distribution, level_result
from shared.traces.sessions import TraceTurn

MAX_CLIENT_SHARE: Final = 0.05
# Of another process before a first piece: for its connection, and for the piece.
WAKES_OF_ANOTHER: Final = 2


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
    by its own words. None: it has none. `traced` of a trace were these by its own lengths, of which
    `traced_shared` came before in it.
    """

    sent: int = 0
    reusable: int = 0
    cached: int | None = None
    traced: int = 0
    traced_shared: int = 0

    def add(self, sample: RequestSample, turn: TraceTurn | None = None) -> None:
        """Count a request, and the turn of a trace that it was."""
        if turn is not None:
            self.traced += turn.context_tokens
            self.traced_shared += turn.shared_tokens
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
            prompts.traced += part.traced
            prompts.traced_shared += part.traced_shared
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


def make_measured_level(scenario: str, level: LevelOutcome, spec: BenchmarkSpec) -> LevelResult:
    """Return the result of the level's requests, without the transient at its start."""
    in_order = sorted(level.records, key=lambda record: record.sent)
    latencies = [
        (record.sent, record.outcome.e2e_latency)
        for record in in_order
        if isinstance(record.outcome, RequestSample)
    ]
    # A trace is measured whole: its start is as much a part of it.
    is_whole = is_trace(level.load.arrivals)
    cut = 0 if is_whole else steadiness.transient([seconds for _, seconds in latencies])
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
        batch_size=spec.batch_size,
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


def with_client_lag(level: LevelResult, lags: Iterable[float]) -> LevelResult:
    """Return the level of another process, as late as this one was meanwhile, at each wake."""
    lag = distribution(WAKES_OF_ANOTHER * seconds for seconds in lags)
    if lag is None:
        return level
    lagging = msgspec.structs.replace(
        level, client_lag_p99_seconds=lag.p99, client_lag_mean_seconds=lag.mean
    )
    is_new = LevelMark.CLIENT_LIMITED not in level.marks and _is_client_limited(lagging)
    marks = (*level.marks, LevelMark.CLIENT_LIMITED) if is_new else level.marks
    return msgspec.structs.replace(lagging, marks=marks)


def with_littles_law(level: LevelResult) -> LevelResult:
    """Return a closed loop of another process, marked where its rate does not fit its latency, as
    where a tool counts its start and its end.
    """
    spread = level.stats.e2e_latency
    if level.arrivals is not None or spread is None or level.num_error_requests:
        return level
    error = steadiness.little_error(level.num_concurrency, level.requests_per_second, spread.mean)
    steady = msgspec.structs.replace(level.steadiness or Steadiness(), little_error=error)
    is_off = error is not None and error > steadiness.MAX_ERROR
    marks = (*level.marks, LevelMark.LITTLES_LAW) if is_off else level.marks
    return msgspec.structs.replace(level, steadiness=steady, marks=marks)


def _first_answer(level: LevelResult) -> Distribution | None:
    """Return the shortest times of a level, of which the load generator's own are most."""
    return level.stats.ttft or level.stats.e2e_latency


def _is_client_limited(level: LevelResult) -> bool:
    first = _first_answer(level)
    lag_seconds = level.client_lag_p99_seconds or 0.0
    return first is not None and lag_seconds > MAX_CLIENT_SHARE * first.p99


def _marks(level: LevelResult) -> list[LevelMark]:
    steady, marks = level.steadiness, []
    if steady is not None and abs(steady.drift or 0.0) > steadiness.MAX_ERROR:
        marks.append(LevelMark.NOT_STEADY)
    if steady is not None and (steady.little_error or 0.0) > steadiness.MAX_ERROR:
        marks.append(LevelMark.LITTLES_LAW)
    first = _first_answer(level)
    if first is not None:
        limit_seconds = MAX_CLIENT_SHARE * first.p99
        if _is_client_limited(level):
            marks.append(LevelMark.CLIENT_LIMITED)
        if level.arrivals is not None and (level.lateness_p99_seconds or 0.0) > limit_seconds:
            marks.append(LevelMark.SENT_LATE)
    return marks
