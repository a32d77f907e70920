"""How fast the engine alone may have been: a level without what measuring it may have added.

A time of the load generator is at most so much too long as the generator was late twice: once
between noting that it sends and sending, once between an arrival and reading it. How late it was is
measured all the while, so the bound does not depend on how fast the engine is.
"""

from typing import Final

import msgspec

from schemas.task.benchmark import Distribution, LevelMark, LevelResult

LATE_TWICE: Final = 2
SMALLEST_SECONDS: Final = 1e-9


def fastest_level(level: LevelResult) -> LevelResult:
    """Return the level as the fastest engine would have given it that these figures allow."""
    lateness_seconds = _lateness_seconds(level)
    return _change_times(
        level,
        mean_seconds=-LATE_TWICE * _mean_lag_seconds(level) - lateness_seconds,
        tail_seconds=-LATE_TWICE * (level.client_lag_p99_seconds or 0.0) - lateness_seconds,
        factor=1 - min(_contradiction_share(level), 1.0),
    )


def slowest_level(level: LevelResult) -> LevelResult:
    """Return the level as the slowest engine would have given it that these figures allow."""
    lateness_seconds = _lateness_seconds(level)
    return _change_times(
        level,
        mean_seconds=lateness_seconds,
        tail_seconds=lateness_seconds,
        factor=1 + _contradiction_share(level),
    )


def is_only_short(level: LevelResult) -> bool:
    """Return whether requests that the window's ends cut explain that its figures do not fit: every
    run of so few requests shows the same, and equal runs show how far they differ.
    """
    error = level.steadiness.little_error if level.steadiness is not None else None
    latency = level.stats.e2e_latency
    if error is None or latency is None:
        return False
    # The last requests end after the window, by the time of one.
    window_seconds = level.run_duration - latency.mean
    return error * window_seconds <= latency.mean


def _mean_lag_seconds(level: LevelResult) -> float:
    """Return the generator's mean lateness; its p99 stands for it where it was not kept."""
    mean_seconds = level.client_lag_mean_seconds
    return level.client_lag_p99_seconds or 0.0 if mean_seconds is None else mean_seconds


def _lateness_seconds(level: LevelResult) -> float:
    """Return by how much requests that were sent late may have met a shorter or longer queue.

    In a queue, arrivals that are delayed by a time delay what leaves it by that time at most.
    """
    return (level.lateness_p99_seconds or 0.0) if level.arrivals is not None else 0.0


def _contradiction_share(level: LevelResult) -> float:
    """Return by what share times and rates contradict each other, by Little's law."""
    if LevelMark.LITTLES_LAW not in level.marks or is_only_short(level):
        return 0.0
    return (level.steadiness.little_error or 0.0) if level.steadiness is not None else 0.0


def _change_times(
    level: LevelResult, *, mean_seconds: float, tail_seconds: float, factor: float
) -> LevelResult:
    """Return the level with its times changed by these seconds, then by the factor.

    Rates follow in a closed loop, where a request is sent as another ends; else they change by the
    factor alone. Single requests are left out: nothing is known of how late each was.
    """
    stats = level.stats
    tokens = stats.num_output_tokens.mean if stats.num_output_tokens else 0.0
    per_token = 1 / max(tokens - 1, 1)
    e2e = _shift(stats.e2e_latency, mean_seconds, tail_seconds, factor)
    ratio = 1 / max(factor, SMALLEST_SECONDS)
    output_rate, items_rate = level.mean_output_throughput_tokens_per_s, level.items_per_second
    if level.arrivals is None and stats.e2e_latency is not None and e2e is not None:
        ratio = stats.e2e_latency.mean / e2e.mean
    return msgspec.structs.replace(
        level,
        requests=None,
        stats=msgspec.structs.replace(
            stats,
            ttft=_shift(stats.ttft, mean_seconds, tail_seconds, factor),
            tpot=_shift(stats.tpot, mean_seconds * per_token, tail_seconds * per_token, factor),
            e2e_latency=e2e,
        ),
        requests_per_second=level.requests_per_second * ratio,
        mean_output_throughput_tokens_per_s=None if output_rate is None else output_rate * ratio,
        items_per_second=None if items_rate is None else items_rate * ratio,
        mean_input_throughput_tokens_per_s=level.mean_input_throughput_tokens_per_s * ratio,
        mean_total_tokens_throughput_tokens_per_s=(
            level.mean_total_tokens_throughput_tokens_per_s * ratio
        ),
    )


def _shift(
    spread: Distribution | None, mean_seconds: float, tail_seconds: float, factor: float
) -> Distribution | None:
    if spread is None:
        return None

    def shift(value: float, seconds: float) -> float:
        return max(SMALLEST_SECONDS, (value + seconds) * factor)

    percentiles = ("min", "max", "p25", "p50", "p75", "p90", "p95", "p99")
    return msgspec.structs.replace(
        spread,
        mean=shift(spread.mean, mean_seconds),
        **{name: shift(getattr(spread, name), tail_seconds) for name in percentiles},
    )
