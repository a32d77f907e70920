"""What happened beside a measurement and makes it less typical of its configuration."""

from collections.abc import Iterator
from typing import Final

from schemas.results.measurements import GpuDetails, GpuMonitoring

# Of the measured time, which may be throttled, or shared with others.
MAX_DISTURBED_SHARE: Final = 0.05
# At its power limit a GPU does what it always does under this load.
_NORMAL_REASONS: Final = frozenset({"sw_power_cap"})
_OF_LOCKED_CLOCK: Final = "applications_clocks_setting"


def find_throttling(monitoring: GpuMonitoring, *, is_clock_locked: bool = False) -> tuple[str, ...]:
    """Return what slowed its GPUs down for longer than a moment: without it, it may be faster.

    A configuration that works its GPUs harder is throttled more, so this sets no run aside. A clock
    that its task has locked is what was asked for.
    """
    normal_reasons = _NORMAL_REASONS | {_OF_LOCKED_CLOCK} if is_clock_locked else _NORMAL_REASONS
    most_seconds = MAX_DISTURBED_SHARE * monitoring.monitoring_duration_seconds
    return tuple(
        f"GPU {name}: throttled by {reason} for {seconds:.0f} s"
        for name, details in monitoring.gpu_details.items()
        for reason, seconds in details.throttle_reasons.items()
        if reason not in normal_reasons and seconds > most_seconds
    )


def of_gpus(monitoring: GpuMonitoring, *, is_shared: bool) -> tuple[str, ...]:
    """Return what happened on its GPUs from outside, whatever ran there.

    `is_shared`: it has shares, so others may be beside it.
    """
    reasons = [] if monitoring.trusted is not False else [monitoring.untrusted_because]
    most = MAX_DISTURBED_SHARE * monitoring.monitoring_duration_seconds
    for name, details in monitoring.gpu_details.items():
        reasons += [f"GPU {name}: {what}" for what in _of_gpu(details, most, is_shared=is_shared)]
    return tuple(reasons)


def _of_gpu(details: GpuDetails, most_seconds: float, *, is_shared: bool) -> Iterator[str]:
    for tenant in () if is_shared else details.co_tenants:
        if tenant.seconds > most_seconds:
            who = tenant.name or "another reservation"
            yield f"{who} had memory on it for {tenant.seconds:.0f} s"
    if details.xids:
        yield f"XID {', '.join(map(str, details.xids))}"
