"""What a simulated device shows: a function of seed, device and tick, and of whether it is held."""

import hashlib
import math
from dataclasses import dataclass

from schemas.telemetry.readings import DeviceFacts, GpuReading
from services.telemetry.sources.simulated.fleet_file import LoadShape


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """Held or not since `since_seconds`, when the device was `warmth` (0 idle, 1 held) warm."""

    is_held: bool = False
    since_seconds: float = 0.0
    warmth: float = 0.0


def load_from(load: DeviceLoad, shape: LoadShape, *, is_held: bool, seconds: float) -> DeviceLoad:
    """The load from `seconds` on: the same one unless the device is granted or released then."""
    if load.is_held == is_held:
        return load
    return DeviceLoad(is_held, seconds, warmth_at(load, shape, seconds))


def warmth_at(load: DeviceLoad, shape: LoadShape, seconds: float) -> float:
    """Share of the way from idle to held temperature, approached exponentially."""
    goal = 1.0 if load.is_held else 0.0
    elapsed = seconds - load.since_seconds
    return goal + (load.warmth - goal) * math.exp(-elapsed / shape.thermal_seconds)


def reading_at(
    facts: DeviceFacts,
    load: DeviceLoad,
    shape: LoadShape,
    *,
    seconds: float,
    power_limit_w: float | None = None,
    locked_clock_mhz: int | None = None,
) -> GpuReading:
    """Make up one reading. A released device is idle and empty at once; it cools down slowly.

    A limit below the draw slows the clock in proportion. At a locked clock a held device draws as
    much less above its idle draw as it is slower.
    """
    elapsed = seconds - load.since_seconds
    busy = min(1.0, elapsed / shape.ramp_seconds) if load.is_held else 0.0
    noise = _noise(shape.seed, facts.uuid, seconds)
    utilization = _within(busy * shape.held_utilization_percent + 6 * busy * noise[0], 100.0)
    warmth = warmth_at(load, shape, seconds)
    total = facts.memory_total_mb or 0
    idle = min(shape.idle_memory_mb, total)
    used = round(idle + busy * max(0.0, total * shape.held_memory_percent / 100 - idle))
    limit = shape.power_limit_w if power_limit_w is None else power_limit_w
    clock_mhz = _mix(shape.idle_sm_clock_mhz, shape.held_sm_clock_mhz, busy)
    pace = 1.0
    if locked_clock_mhz is not None:
        clock_mhz, pace = locked_clock_mhz, locked_clock_mhz / max(1.0, shape.held_sm_clock_mhz)
    power = _mix(shape.idle_power_w, shape.held_power_w, pace * utilization / 100)
    power *= 1 + 0.02 * noise[2]
    slowed = min(1.0, limit / power) if power > 0 else 1.0
    reasons = ("sw_power_cap",) if slowed < 1 else ()
    return GpuReading(
        uuid=facts.uuid,
        index=facts.index,
        utilization_percent=float(round(utilization)),
        memory_total_mb=total,
        memory_used_mb=used,
        memory_free_mb=total - used,
        temperature_c=float(
            round(_mix(shape.idle_temperature_c, shape.held_temperature_c, warmth) + noise[1])
        ),
        power_draw_w=round(_within(power, limit), 2),
        power_limit_w=limit,
        sm_clock_mhz=round(slowed * clock_mhz),
        memory_clock_mhz=round(shape.memory_clock_mhz),
        throttle_reasons=reasons if busy else ("gpu_idle", *reasons),
        ecc_corrected=0,
        ecc_uncorrected=0,
        name=facts.name,
    )


def _mix(low: float, high: float, share: float) -> float:
    return low + (high - low) * share


def _within(value: float, highest: float) -> float:
    return max(0.0, min(highest, value))


def _noise(seed: int, uuid: str, seconds: float) -> tuple[float, float, float]:
    """Three numbers in [-1, 1) that depend on nothing but the arguments."""
    digest = hashlib.blake2b(f"{seed}/{uuid}/{seconds:.3f}".encode(), digest_size=6).digest()
    first, second, third = (
        int.from_bytes(digest[place : place + 2]) / 32768 - 1 for place in (0, 2, 4)
    )
    return first, second, third
