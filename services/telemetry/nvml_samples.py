"""What the driver sampled by itself since it was last asked."""

from ctypes import byref, c_char, c_uint, c_ulonglong
from typing import Any, Final, Literal

import pynvml

from schemas.telemetry import Buffered, BufferedMetric
from services.telemetry.domain.samples import summarized
from services.telemetry.nvml_library import Handle, function, refused

_KINDS: Final = {
    BufferedMetric.UTILIZATION_PERCENT: (pynvml.NVML_GPU_UTILIZATION_SAMPLES, 1.0),
    BufferedMetric.POWER_DRAW_W: (pynvml.NVML_TOTAL_POWER_SAMPLES, 1000.0),
}
_SAMPLE_BYTES: Final = 16  # nvmlSample_t: a timestamp and a union, eight bytes each
# The type that the driver names, the letter of its memory view, and its size.
_WORDS: Final[dict[int, tuple[Literal["d", "I", "L", "Q", "q"], int]]] = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: ("d", 8),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: ("I", 4),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: ("L", 8),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: ("Q", 8),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: ("q", 8),
}


class DriverSamples:
    """Both metrics of one device. The first look only learns where the driver's buffer stands."""

    def __init__(self, handle: Handle) -> None:
        self._rings = [_Ring(handle, metric) for metric in _KINDS]

    def since_last(self) -> tuple[Buffered, ...] | None:
        """None if the device has no such samples."""
        found: tuple[Buffered, ...] | None = None
        for ring in self._rings:
            brief = ring.since_last()
            if ring.exists:
                found = found or ()
                if brief is not None:
                    found = (*found, brief)
        return found


class _Ring:
    def __init__(self, handle: Handle, metric: BufferedMetric) -> None:
        self._metric = metric
        self._handle = handle
        self._kind, self._divisor = _KINDS[metric]
        self._call = function("nvmlDeviceGetSamples")
        self._since = c_ulonglong()
        self._type = c_uint()
        self._count = c_uint()
        self._type_at, self._count_at = byref(self._type), byref(self._count)
        self._started = False
        self._room = 0
        self._samples: Any = None
        self._memory = self._times = memoryview(b"")
        self._words: dict[str, memoryview[Any]] = {}
        self.exists = self._make_room()

    def since_last(self) -> Buffered | None:
        if not self.exists:
            return None
        self._count.value = self._room
        since, samples = self._since, self._samples
        status = self._call(self._handle, self._kind, since, self._type_at, self._count_at, samples)
        count = self._count.value
        if status or not count:
            if status not in {pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND}:
                refused(status)
            self._started = True
            return None
        at_us = self._times[: 2 * count : 2].tolist()
        first, last = min(at_us), max(at_us)
        since.value = last
        if not self._started:
            self._started = True
            return None
        letter, size = _WORDS.get(self._type.value, ("Q", 8))
        words = self._words.get(letter)
        if words is None:
            words = self._words[letter] = self._memory.cast(letter)
        step = _SAMPLE_BYTES // size
        values = words[step // 2 : step * count : step].tolist()
        return summarized(self._metric, values, first, last, self._divisor)

    def _make_room(self) -> bool:
        status = self._call(
            *(self._handle, self._kind, self._since, self._type_at, self._count_at, None)
        )
        if status:
            refused(status)
            return False
        self._room = max(self._count.value, 1)
        memory = bytearray(self._room * _SAMPLE_BYTES)
        self._samples = (c_char * len(memory)).from_buffer(memory)
        self._memory = memoryview(memory)
        self._times = self._memory.cast("Q")
        self._words.clear()
        return True
