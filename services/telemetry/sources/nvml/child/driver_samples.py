"""What the driver sampled by itself since the last reading."""

from ctypes import byref, c_uint, c_ulonglong
from struct import calcsize, unpack
from typing import Final

import pynvml

from schemas.telemetry.readings import Buffered, BufferedMetric
from services.telemetry.domain.buffered_samples import summarize
from services.telemetry.sources.nvml.child.calls import Entries, Handle, find_function

_KINDS: Final = {
    BufferedMetric.UTILIZATION_PERCENT: (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1.0),
    BufferedMetric.POWER_DRAW_W: (pynvml.NVML_TOTAL_POWER_SAMPLES, 1000.0),
}
# nvmlSample_t, a time and a union, by the type that the driver names.
_WIDE: Final = "QQ"
_LAYOUTS: Final = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "Qd",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "QI4x",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "Qq",
}
_SAMPLE_BYTES: Final = calcsize(_WIDE)


class _Metric:
    """What is asked for one metric, since when, and of which type the driver's answer is."""

    def __init__(self, handle: Handle, kind: int) -> None:
        self.since_us, self.value_type = c_ulonglong(), c_uint()
        self.was_read = False
        self.entries = Entries(
            _SAMPLE_BYTES,
            find_function("nvmlDeviceGetSamples"),
            *(handle, kind, self.since_us, byref(self.value_type)),
            none_status=pynvml.NVML_ERROR_NOT_FOUND,
        )


class DriverSamples:
    """Both metrics of one device. The first call only finds where the driver's buffer ends."""

    def __init__(self, handle: Handle) -> None:
        self._metrics = [
            (metric, divisor, _Metric(handle, kind)) for metric, (kind, divisor) in _KINDS.items()
        ]

    def since_last(self) -> tuple[Buffered, ...] | None:
        """Return the driver's samples since the last call; None if the device has none."""
        collected: tuple[Buffered, ...] | None = None
        for name, divisor, metric in self._metrics:
            data = metric.entries.read()
            if data is None:
                continue
            collected = collected or ()
            was_read, metric.was_read = metric.was_read, True
            if not data:
                continue
            # Columns out of the array at once: by attributes of objects they cost twice the call.
            layout = _LAYOUTS.get(metric.value_type.value, _WIDE)
            numbers = unpack(layout * (len(data) // _SAMPLE_BYTES), data)
            times, values = numbers[::2], numbers[1::2]
            metric.since_us.value = last_at_us = max(times)
            if was_read:
                collected += (summarize(name, values, min(times), last_at_us, divisor),)
        return collected
