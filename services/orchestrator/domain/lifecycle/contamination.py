"""What happened beside a measurement and makes it less typical of its configuration."""

from collections.abc import Iterator, Sequence
from typing import Final

from schemas.results.measurements import GpuDetails, GpuMonitoring
from schemas.task.benchmark import LevelMark, LevelResult
from shared.benchmarks.levels.level_text import load_text

MOST_SHARE: Final = 0.05  # of the measured time that may be throttled, or shared with others
# At its power limit a GPU does what it always does under this load.
_USUAL: Final = frozenset({"sw_power_cap"})
_MARKS: Final = {
    LevelMark.CACHE_HITS: "prompts were found in the prefix cache",
    LevelMark.CLIENT_LIMITED: "the load generator was the limit",
    LevelMark.SENT_LATE: "requests were sent late",
    LevelMark.LITTLES_LAW: "the figures contradict each other (Little's law)",
}


def of_levels(levels: Sequence[LevelResult]) -> tuple[str, ...]:
    """By what the load generator noticed."""
    return tuple(
        f"{load_text(level)}: {_MARKS[mark]}"
        for level in levels
        for mark in level.marks
        if mark in _MARKS and not (mark is LevelMark.LITTLES_LAW and _is_only_short(level))
    )


def _is_only_short(level: LevelResult) -> bool:
    """Whether requests that the window's ends cut explain what does not fit: every run of so few
    requests shows the same, and equal runs show how far they differ.
    """
    error = level.steadiness.little_error if level.steadiness is not None else None
    latency = level.stats.e2e_latency
    if error is None or latency is None:
        return False
    # The last requests end after the window, by the time of one.
    window_seconds = level.run_duration - latency.mean
    return error * window_seconds <= latency.mean


def of_gpus(monitoring: GpuMonitoring, *, is_shared: bool) -> tuple[str, ...]:
    """By the samples of its GPUs; `is_shared`: it has shares, so others may be beside it."""
    found = [] if monitoring.trusted is not False else [monitoring.untrusted_because]
    most = MOST_SHARE * monitoring.monitoring_duration_seconds
    for name, details in monitoring.gpu_details.items():
        found += [f"GPU {name}: {what}" for what in _of_gpu(details, most, is_shared=is_shared)]
    return tuple(found)


def _of_gpu(details: GpuDetails, most_seconds: float, *, is_shared: bool) -> Iterator[str]:
    for reason, seconds in details.throttle_reasons.items():
        if reason not in _USUAL and seconds > most_seconds:
            yield f"throttled by {reason} for {seconds:.0f} s"
    for tenant in () if is_shared else details.co_tenants:
        if tenant.seconds > most_seconds:
            who = tenant.name or "another reservation"
            yield f"{who} had memory on it for {tenant.seconds:.0f} s"
    if details.xids:
        yield f"XID {', '.join(map(str, details.xids))}"
