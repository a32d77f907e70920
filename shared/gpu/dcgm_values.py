"""What DCGM's numbers mean: which stand for no value, and what follows from several."""

from collections.abc import Mapping
from typing import Final

_BLANK_INT32: Final = 0x7FFFFFF0
_BLANK_INT64: Final = float(0x7FFFFFFFFFFFFFF0)
_BLANK_FP64: Final = 140737488355328.0
_BLANKS: Final = 16


def is_blank(value: float) -> bool:
    """True for the numbers that DCGM writes for no value."""
    return (
        value < 0
        or value >= _BLANK_INT64
        or _BLANK_INT32 <= value < _BLANK_INT32 + _BLANKS
        or _BLANK_FP64 <= value < _BLANK_FP64 + _BLANKS
    )


def memory_mb(values: Mapping[str, float]) -> tuple[int | None, int | None, int | None]:
    """Total, used and free. Without a total it is what is used, free and reserved together."""
    used, free = values.get("DCGM_FI_DEV_FB_USED"), values.get("DCGM_FI_DEV_FB_FREE")
    total = values.get("DCGM_FI_DEV_FB_TOTAL")
    if total is None and used is not None and free is not None:
        total = used + free + values.get("DCGM_FI_DEV_FB_RESERVED", 0.0)
    amounts = [None if value is None else int(value) for value in (total, used, free)]
    return amounts[0], amounts[1], amounts[2]


def utilization_percent(values: Mapping[str, float], *, is_instance: bool) -> float | None:
    """The driver's figure, else how long the engines were active, which instances have too."""
    percent = values.get("DCGM_FI_DEV_GPU_UTIL")
    if percent is not None and not is_instance:
        return percent
    active = values.get("DCGM_FI_PROF_GR_ENGINE_ACTIVE")
    return None if active is None else min(100.0, round(active * 100, 2))
