"""What the driver sampled by itself since the last reading."""

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final

import pynvml

from schemas.telemetry.readings import Buffered, BufferedMetric
from services.telemetry.domain.buffered_samples import summarize
from services.telemetry.sources.nvml.child.calls import Handle, try_call

_KINDS: Final = {
    BufferedMetric.UTILIZATION_PERCENT: (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1.0),
    BufferedMetric.POWER_DRAW_W: (pynvml.NVML_TOTAL_POWER_SAMPLES, 1000.0),
}
# nvmlSample_t, a time and a union, by the type that the driver names.
_WIDE: Final = Struct("QQ")
_LAYOUTS: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: Struct("Qd"),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: Struct("QI4x"),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: Struct("Qq"),
}


class DriverSamples:
    """Both metrics of one device. The first call only finds where the driver's buffer ends."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._last_at_us: dict[BufferedMetric, int] = {}

    def since_last(self) -> tuple[Buffered, ...] | None:
        """Return the driver's samples since the last call; None if the device has none."""
        collected: tuple[Buffered, ...] | None = None
        for metric, (kind, divisor) in _KINDS.items():
            last_at_us = self._last_at_us.get(metric)
            answer = try_call(_samples, self._handle, kind, last_at_us or 0)
            if answer is None:
                continue
            value_type, samples = answer
            collected = collected or ()
            times, values = _columns(samples, _LAYOUTS.get(value_type, _WIDE))
            self._last_at_us[metric] = max(times, default=last_at_us or 0)
            if times and last_at_us is not None:
                collected = (*collected, summarize(metric, values, min(times), max(times), divisor))
        return collected


def _samples(handle: Handle, kind: int, since_us: int) -> tuple[int, list[Any]]:
    try:
        samples: tuple[int, list[Any]] = pynvml.nvmlDeviceGetSamples(handle, kind, since_us)
    except pynvml.NVMLError_NotFound:
        return 0, []  # none since then
    return samples


def _columns(samples: list[Any], layout: Struct) -> tuple[Sequence[int], Sequence[float]]:
    """Times and values, out of the array at once: by attributes they cost twice the call."""
    if not samples:
        return (), ()
    data = bytes(samples[0]._b_base_)[: len(samples) * layout.size]
    times, values = zip(*layout.iter_unpack(data), strict=True)
    return times, values
