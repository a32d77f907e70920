"""Readings from what dcgm-exporter and nvidia-smi print; pure."""

import math
from collections.abc import Iterable
from typing import Final

from schemas.base import MAX_INTEGER
from schemas.cluster.nodes import ClusterGpuReading
from shared.gpu.dcgm_values import is_blank, memory_mb, utilization_percent
from shared.prometheus_text import samples

TEMPERATURE: Final = "DCGM_FI_DEV_GPU_TEMP"
READ: Final = frozenset(
    {
        "DCGM_FI_DEV_GPU_UTIL",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        "DCGM_FI_DEV_FB_USED",
        "DCGM_FI_DEV_FB_FREE",
        "DCGM_FI_DEV_FB_TOTAL",
        "DCGM_FI_DEV_FB_RESERVED",
        TEMPERATURE,
    }
)
NVIDIA_SMI: Final = (
    "nvidia-smi",
    "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total,temperature.gpu",
    "--format=csv,noheader,nounits",
)
_FIELDS: Final = 6
_MAX_UUID_CHARACTERS: Final = 128


def from_exporter(page: str) -> tuple[ClusterGpuReading, ...]:
    """Return whole GPUs by index; of instances (MIG) nothing but their board's temperature
    counts.
    """
    values: dict[tuple[int, str], dict[str, float]] = {}
    for name, labels, value in samples(page):
        uuid, index = labels.get("UUID") or labels.get("uuid") or "", _whole(labels.get("gpu"))
        if name not in READ or is_blank(value) or index is None:
            continue
        if not labels.get("GPU_I_ID") or name == TEMPERATURE:
            values.setdefault((index, uuid), {}).setdefault(name, value)
    return tuple(
        _reading(index, uuid, metrics) for (index, uuid), metrics in sorted(values.items())
    )


def from_nvidia_smi(text: str) -> tuple[ClusterGpuReading, ...]:
    """GPUs that the container sees, with its own numbers of them."""
    readings = []
    for line in text.splitlines():
        fields = [cell.strip() for cell in line.split(",")]
        if len(fields) != _FIELDS or (index := _whole(fields[0])) is None:
            continue
        percent, used, total, temperature = (_number(field) for field in fields[2:])
        readings.append(
            ClusterGpuReading(
                index=index,
                uuid=_uuid(fields[1]),
                utilization_percent=_percent(percent),
                memory_used_mb=_mebibytes(used),
                memory_total_mb=_mebibytes(total),
                temperature_c=temperature,
            )
        )
    return tuple(readings)


def merge_readings(
    readings: Iterable[tuple[ClusterGpuReading, ...]],
) -> tuple[ClusterGpuReading, ...]:
    """Merge readings of several containers of one node: each GPU once, numbered anew.

    Each container numbers the GPUs that it sees from 0.
    """
    by_uuid = {reading.uuid: reading for several in readings for reading in several if reading.uuid}
    ordered = [by_uuid[uuid] for uuid in sorted(by_uuid)]
    return tuple(
        ClusterGpuReading(
            index=index,
            uuid=reading.uuid,
            utilization_percent=reading.utilization_percent,
            memory_used_mb=reading.memory_used_mb,
            memory_total_mb=reading.memory_total_mb,
            temperature_c=reading.temperature_c,
        )
        for index, reading in enumerate(ordered)
    )


def _reading(index: int, uuid: str, values: dict[str, float]) -> ClusterGpuReading:
    total, used, _ = memory_mb(values)
    return ClusterGpuReading(
        index=index,
        uuid=_uuid(uuid),
        utilization_percent=_percent(utilization_percent(values, is_instance=False)),
        memory_used_mb=used,
        memory_total_mb=total,
        temperature_c=values.get(TEMPERATURE),
    )


def _uuid(text: str) -> str | None:
    return text if 0 < len(text) <= _MAX_UUID_CHARACTERS else None


def _whole(text: str | None) -> int | None:
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= len("999")
    return int(text or "") if is_number else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:  # [N/A]
        return None
    return number if math.isfinite(number) else None


def _percent(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 100 else None


def _mebibytes(value: float | None) -> int | None:
    return int(value) if value is not None and 0 <= value <= MAX_INTEGER else None
