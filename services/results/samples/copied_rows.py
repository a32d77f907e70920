"""Samples as rows in the binary form of COPY, packed straight from the readings."""

import struct
from datetime import timedelta
from math import isfinite
from struct import Struct
from typing import Final

from schemas.base import MAX_INTEGER
from schemas.telemetry.readings import GpuReading, GpuSampled
from services.results.domain.rollup import EPOCH

# What all GPUs of a tick have in common comes first: it is packed once.
COLUMNS: Final = (
    "observed_at",
    "boot_id",
    "sequence",
    "interval_seconds",
    "device_no",
    "condition_no",
    "utilization_percent",
    "temperature_c",
    "power_draw_w",
    "power_limit_w",
    "memory_total_mb",
    "memory_used_mb",
    "energy_mj",
    "ecc_corrected",
    "ecc_uncorrected",
)
BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = struct.pack(">h", -1)

# Each value follows its length; Postgres counts microseconds from 2000 on.
_TICK: Final = Struct(">h iq i16s iq id")
_ALL_KNOWN: Final = Struct(">ii ii id id id id iq iq iq iq iq").pack
_INT4: Final = Struct(">ii").pack
_INT8: Final = Struct(">iq").pack
_FLOAT8: Final = Struct(">id").pack
_NULL: Final = struct.pack(">i", -1)
_MICROSECOND: Final = timedelta(microseconds=1)


def tick_values(sample: GpuSampled) -> bytes:
    """Encode the columns with which each row of a tick begins."""
    at = (sample.observed_at - EPOCH) // _MICROSECOND
    boot = sample.boot_id.bytes
    return _TICK.pack(len(COLUMNS), 8, at, 16, boot, 8, sample.sequence, 8, sample.interval_seconds)


def device_values(device_no: int, condition_no: int | None, gpu: GpuReading) -> bytes:
    """The rest of a row. What Postgres cannot hold is unknown, as None is."""
    utilization, temperature = gpu.utilization_percent, gpu.temperature_c
    power, limit = gpu.power_draw_w, gpu.power_limit_w
    try:
        if isfinite(utilization + temperature + power + limit):  # type: ignore[operator]  # see below
            # Plain arguments: to put them together from tuples takes half as long again.
            # fmt: off
            return _ALL_KNOWN(
                4, device_no, 4, condition_no, 8, utilization, 8, temperature, 8, power, 8, limit,
                8, gpu.memory_total_mb, 8, gpu.memory_used_mb, 8, gpu.energy_mj,
                8, gpu.ecc_corrected, 8, gpu.ecc_uncorrected,
            )
            # fmt: on
    except (TypeError, struct.error):
        pass  # something is unknown, or too large
    return b"".join(
        (
            _INT4(4, device_no),
            _NULL if condition_no is None else _INT4(4, condition_no),
            *map(_float8, (utilization, temperature, power, limit)),
            *map(_int8, (gpu.memory_total_mb, gpu.memory_used_mb, gpu.energy_mj)),
            *map(_int8, (gpu.ecc_corrected, gpu.ecc_uncorrected)),
        )
    )


def _float8(value: float | None) -> bytes:
    return _FLOAT8(8, value) if value is not None and isfinite(value) else _NULL


def _int8(value: int | None) -> bytes:
    return _INT8(8, value) if value is not None and value <= MAX_INTEGER else _NULL
