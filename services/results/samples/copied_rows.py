"""Ticks as rows in the binary form of COPY, packed straight from the readings."""

import struct
from collections.abc import Sequence
from datetime import timedelta
from math import isfinite
from struct import Struct
from typing import Final

from schemas.base import MAX_INTEGER
from schemas.telemetry.readings import GpuReading, GpuSampled
from services.results.domain.rollup import EPOCH

# A tick's arrays: of each device a row, with these columns.
FLOATS: Final = ("utilization_percent", "temperature_c", "power_draw_w", "power_limit_w")
INTEGERS: Final = (
    *("memory_total_mb", "memory_used_mb", "energy_mj"),
    *("ecc_corrected", "ecc_uncorrected", "condition_no"),
)
TICK_COLUMNS: Final = (
    *("set_id", "observed_at", "boot_id", "sequence", "interval_seconds", "floats", "integers"),
)
# Of a sample as it is read.
COLUMNS: Final = (
    *("observed_at", "boot_id", "sequence", "interval_seconds", "device_no", *FLOATS, *INTEGERS),
)
BEGIN: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = struct.pack(">h", -1)

# Each value follows its length; Postgres counts microseconds from 2000 on.
_TICK: Final = Struct(">h i16s iq i16s iq id").pack
_FLOATS: Final = Struct(">id id id id").pack
_INTEGERS: Final = Struct(">iq iq iq iq iq iq").pack
_INT8: Final = Struct(">iq").pack
_FLOAT8: Final = Struct(">id").pack
_NULL: Final = struct.pack(">i", -1)
# Bytes, dimensions, 0, the elements' type, and of both dimensions the size and the first number.
_ARRAY: Final = Struct(">iiii iiii").pack
_FLOAT8_TYPE: Final = 701
_INT8_TYPE: Final = 20
_MICROSECOND: Final = timedelta(microseconds=1)


def tick_row(sample: GpuSampled, set_id: bytes, condition_nos: Sequence[int | None]) -> bytes:
    """Encode a tick of a set of devices, each in its condition."""
    at = (sample.observed_at - EPOCH) // _MICROSECOND
    boot, interval, count = sample.boot_id.bytes, sample.interval_seconds, len(condition_nos)
    try:
        floats, integers = _encode_known(sample.gpus, condition_nos)
    except (TypeError, ValueError, struct.error):  # something is unknown, or too large
        floats = b"".join([_encode_floats(gpu) for gpu in sample.gpus])
        integers = b"".join(map(_encode_integers, sample.gpus, condition_nos))
    return b"".join(
        (
            _TICK(len(TICK_COLUMNS), 16, set_id, 8, at, 16, boot, 8, sample.sequence, 8, interval),
            _ARRAY(28 + len(floats), 2, 0, _FLOAT8_TYPE, count, 1, len(FLOATS), 1),
            floats,
            _ARRAY(28 + len(integers), 2, 0, _INT8_TYPE, count, 1, len(INTEGERS), 1),
            integers,
        )
    )


def _encode_known(
    gpus: Sequence[GpuReading], condition_nos: Sequence[int | None]
) -> tuple[bytes, bytes]:
    """Encode the floats and integers of devices of which Postgres can hold all. Raises TypeError,
    ValueError or struct.error for others.
    """
    floats, integers, total = [], [], 0.0
    for gpu, condition_no in zip(gpus, condition_nos, strict=True):
        utilization, temperature = gpu.utilization_percent, gpu.temperature_c
        power, limit = gpu.power_draw_w, gpu.power_limit_w
        total += utilization + temperature + power + limit  # type: ignore[operator]  # see above
        # Plain arguments: to put them together from tuples takes half as long again.
        floats.append(_FLOATS(8, utilization, 8, temperature, 8, power, 8, limit))
        # fmt: off
        integers.append(_INTEGERS(
            8, gpu.memory_total_mb, 8, gpu.memory_used_mb, 8, gpu.energy_mj,
            8, gpu.ecc_corrected, 8, gpu.ecc_uncorrected, 8, condition_no,
        ))
        # fmt: on
    if not isfinite(total):
        raise ValueError("expected finite numbers")
    return b"".join(floats), b"".join(integers)


def _encode_floats(gpu: GpuReading) -> bytes:
    """Encode a device's floats. What Postgres cannot hold is unknown, as None is."""
    values = (gpu.utilization_percent, gpu.temperature_c, gpu.power_draw_w, gpu.power_limit_w)
    return b"".join(map(_float8, values))


def _encode_integers(gpu: GpuReading, condition_no: int | None) -> bytes:
    values = (gpu.memory_total_mb, gpu.memory_used_mb, gpu.energy_mj)
    counts = (gpu.ecc_corrected, gpu.ecc_uncorrected, condition_no)
    return b"".join(map(_int8, values + counts))


def _float8(value: float | None) -> bytes:
    return _FLOAT8(8, value) if value is not None and isfinite(value) else _NULL


def _int8(value: int | None) -> bytes:
    return _INT8(8, value) if value is not None and value <= MAX_INTEGER else _NULL
