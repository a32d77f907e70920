"""NVML's bit mask of reasons why clocks are lowered, in words.

Source: nvmlClocksEventReasons in nvml.h; nvidia-smi prints the same mask in hexadecimal.
"""

from typing import Final

_NAMES: Final = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """Names in the order of their bits; a bit without a name is shown as a number."""
    bits = [1 << place for place in range(mask.bit_length()) if mask >> place & 1]
    return tuple(_NAMES.get(bit, f"0x{bit:x}") for bit in bits)
